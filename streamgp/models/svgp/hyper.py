"""The kernel of an SVGP, and where its hyper-parameters start: the evidence of some hundred rows.

A radial kernel has closed-form gradients and a prior of its lengthscales (`evidence.thinned`); where none is named, the
best of four is taken. On windows that overlap a few steps are taken only, as at the maximum the noise is too low. The
hyper-parameters of any other kernel maximise its marginal likelihood (`evidence.marginal_likelihood`). The lengthscales
of outcomes of 0 and 1 are those of a regression on −1 and 1; their outputscale maximises the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial, structure
from streamgp.evidence.marginal_likelihood import MarginalLikelihoodConfig, maximise
from streamgp.evidence.starts import centres
from streamgp.evidence.thinned import START_NOISE, LogHyper, by_adam, choose, start
from streamgp.kernels import Kernel, Stationary, Tied, matern, squared_exponential

AUTO: tuple[BaseModel, ...] = (squared_exponential.Config(), *(matern.Config(nu=nu) for nu in (2.5, 1.5, 0.5)))
"""What is chosen from where nothing is named: ever rougher functions."""
EVALUATIONS = 20
"""Of the evidence for each kernel at first; half of them later."""
STEPS, FURTHER = 60, 30
"""Of Adam on windows that overlap, at first and at every rebuild."""
SPREAD, WIDE = 0.2, 16
"""Prior standard deviation of log ℓ among the columns of outcomes, which over-fit with free ones, beyond WIDE
groups; up to these the common prior does, and keeps lengthscales from falling to where a function is as good as noise.
"""
HEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""ρ² of a logit that are tried at first; afterwards those next to the last one, and 1."""
OTHERS = MarginalLikelihoodConfig(evaluations=30, noise="shared", prior=1.0, floor=1e-3)
"""For kernels that are not radial."""


class Chosen(Kernel):
    """One of several kernels of the same columns, each with its own hyper-parameters.

    Args:
        kernels: Configs to choose from.
        groups: (W,) the group of each column.

    Attributes:
        index: () int64, the one in use.

    Example:
        >>> kernel = Chosen(AUTO, torch.zeros(1, dtype=torch.int64))
        >>> one = torch.ones(1, 1, dtype=FLOAT)
        >>> smooth = kernel(0.0 * one, one).item()
        >>> kernel.index.fill_(3).item(), round(smooth, 4), round(kernel(0.0 * one, one).item(), 4)
        (3, 0.6065, 0.3679)
    """

    def __init__(self, kernels: Sequence[BaseModel], groups: Tensor) -> None:
        super().__init__()
        self.dims = len(groups)
        self.kernels = nn.ModuleList(Tied(config, groups) for config in kernels)
        self.index: Tensor
        self.register_buffer("index", torch.zeros((), dtype=torch.int64))

    @property
    def own(self) -> Tied:
        """The one in use."""
        return cast(Tied, self.kernels[int(self.index)])

    def take(self, initial: Initial) -> None:
        """Use the one that hyper-parameters found before are of.

        Raises:
            UsageError: there is none.
        """
        for index, kernel in enumerate(self.kernels):
            if structure(cast(Tied, kernel).config) == structure(initial.config):
                self.index.fill_(index)
                return
        initial.fits(self.own.config)

    @property
    def radial(self) -> bool:
        """Whether every one is a function of one distance."""
        zero = torch.zeros(1, dtype=FLOAT)
        for kernel in self.kernels:
            try:
                cast(Tied, kernel).profile(zero)
            except UsageError:
                return False
        return True

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, W), (M, W) -> (N, M)"""
        return self.own.forward(x, z)

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, W) -> (N,)"""
        return self.own.diagonal(x)


def configs(kernel: BaseModel | None, only: bool) -> tuple[BaseModel, ...]:
    """Those to choose from; `only` the smoothest where nothing is named."""
    if kernel is not None:
        return (kernel,)
    return AUTO[:1] if only else AUTO


def _by_likelihood(own: Tied, x: Tensor, y: Tensor, noise: Tensor | None, again: bool) -> tuple[Tensor, str]:
    """`estimate`, of a kernel whose gradients have no closed form here."""
    usual = torch.full((y.shape[1],), START_NOISE, dtype=FLOAT).to(x)
    default = (_default(own, x), usual) if again else None
    if noise is None:
        own.load_state_dict(_default(own, x).state_dict())
    before = usual if noise is None else noise.log().expand(y.shape[1])
    found = maximise(own, before.to(x), x, y, OTHERS, default)
    own.load_state_dict(found.kernel)
    return found.noise.log().mean(), "; ".join(found.failures)


def estimate(
    kernel: Chosen,
    x: Tensor,
    y: Tensor,
    noise: Tensor | None,
    *,
    outcomes: bool,
    slowly: bool,
    fixed: bool = False,
    again: bool = False,
) -> tuple[Tensor, str]:
    """Set the kernel in use and its hyper-parameters; returns () log σ² and what went wrong on the way.

    Args:
        kernel: changed.
        x: (n, W) standardised rows or latents.
        y: (n, T) standardised targets, or −1 and 1; none missing.
        noise: () σ² of before; None at first.
        outcomes: whether targets are −1 and 1.
        slowly: take few steps: windows overlap.
        fixed: whether the kernel in use is the only one to choose from.
        again: whether to search from the default too, and take the better evidence: from hyper-parameters of rows with
            little signal alone a search could stay where the gradient is nothing.

    Raises:
        NumericalError: the rows are not finite.

    Example:
        >>> kernel = Chosen(AUTO, torch.zeros(1, dtype=torch.int64))
        >>> x = torch.linspace(-3, 3, 40, dtype=FLOAT)[:, None]
        >>> log_noise, _ = estimate(kernel, x, x.sin(), None, outcomes=False, slowly=False)
        >>> bool(log_noise < -4), kernel.index.item()
        (True, 0)
    """
    if not kernel.radial:
        return _by_likelihood(kernel.own, x, y, noise, again)
    own, groups = kernel.own, kernel.own.groups
    first, count = noise is None, int(groups.max()) + 1
    few = slowly and not outcomes
    steps = (STEPS if first else FURTHER) if few else (EVALUATIONS if first else EVALUATIONS // 2)
    starts = [] if noise is None else [(LogHyper(*_logs(own), noise.log()), steps)]
    if first or again:
        starts.append((LogHyper.start(count) if few else start(count), steps))
    if few:
        hyper = by_adam(x, y, groups, starts, profile=own.profile).hyper
    else:
        offered = [cast(Stationary, one) for one in ([own] if fixed else kernel.kernels)]  # whose profile alone is used
        spread = SPREAD if outcomes and len(own.unit) > WIDE else None
        chosen = choose(x, y, groups, offered, starts, spread=spread)
        if not fixed:
            kernel.index.fill_(chosen.kernel)
        hyper = chosen.hyper
    with torch.no_grad():
        length, scale = _logs(kernel.own)
        length.copy_(hyper.lengthscale)
        if not outcomes:
            scale.copy_(hyper.outputscale)
    return hyper.noise, ""


def given(kernel: Chosen, initial: Initial, scale: Tensor, target_scale: Tensor) -> Tensor:
    """Give the kernel hyper-parameters found before; returns () log σ². Scales: as of `Initial.onto`."""
    kernel.take(initial)
    own = kernel.own
    log_noise = initial.onto(own, scale, target_scale)
    if kernel.radial:  # the evidence knows lengthscales in units of the scaling alone
        with torch.no_grad():
            own.unit.copy_(torch.bincount(own.groups).to(FLOAT).rsqrt())
            _logs(own)[0].copy_(initial.hyper(scale, target_scale).lengthscale)
    return log_noise.mean()


def heights(kernel: Chosen, first: bool) -> Iterator[None]:
    """Goes through outputscales of a logit: the kernel has one of them at every turn."""
    scale = _logs(kernel.own)[1]
    before = float(scale.exp())
    for value in HEIGHTS if first else (before / 3.0, before, 3.0 * before, HEIGHTS[1]):
        scale.fill_(value).log_()
        yield


def _logs(kernel: Tied) -> tuple[Tensor, Tensor]:
    """log ℓ and log ρ² of a radial kernel, as they are kept."""
    named = dict(kernel.named_parameters())
    return named["log_lengthscale"].detach(), named["log_outputscale"].detach()


@torch.no_grad()
def _default(kernel: Tied, x: Tensor) -> Tied:
    """The kernel as it was built, with lengthscales that are read off the rows (n, W)."""
    found = Tied(kernel.config, kernel.groups.cpu(), kernel.unit.cpu()).to(x.device)
    around = centres(found, x)
    for name, value in found.named_parameters():
        if name.rpartition(".")[2] == "log_lengthscale":
            value.copy_(around[name])
    return found
