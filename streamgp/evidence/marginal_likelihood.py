"""Hyper-parameters by maximum marginal likelihood (ML-II), with restarts.

Minimised is the negative log marginal likelihood of n rows and T columns, with gradients in closed form: one
factorisation and one inverse an evaluation, or one a column where each has its own noise. L-BFGS is there in some tens
of evaluations; Adam needs some hundreds, and is offered because the literature's figures are its.

The marginal likelihood has several maxima. The first start is the kernel as given, every further one a draw
(`starts.draw_start`); the best value wins. A start that fails numerically is reported, and the others go on.

With few rows and many lengthscales the marginal likelihood over-fits as any likelihood does. `prior` adds
½ Σ_j ((θ_j − c_j)/prior)² over the logarithms θ of the kernel's hyper-parameters, c the data's own scales
(`starts.centres`); without it this is plain ML-II.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.errors import NotPositiveDefinite, NumericalError
from streamgp.evidence.minimise import BOUND, HUGE, adam, lbfgs
from streamgp.evidence.starts import centres, draw_start
from streamgp.evidence.tuned import Attempt, Each, Tuned, attempts
from streamgp.kernels import Tied
from streamgp.objectives.marginal_likelihood import shared_noise
from streamgp.solvers import exact

OWN = 4
"""Columns up to which each has a noise of its own by default."""


class MarginalLikelihoodConfig(BaseModel):
    """Maximum marginal likelihood."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: Literal["lbfgs", "adam"] = Field(
        "lbfgs", description="lbfgs: few evaluations, each with a line search; adam: many small steps"
    )
    evaluations: int = Field(
        60,
        ge=1,
        le=100_000,
        description="of the marginal likelihood, for each start; lbfgs stops earlier where nothing is left to gain, "
        "and finishes the iteration that it is in",
    )
    restarts: int = Field(0, ge=0, le=1000, description="further starts, drawn around the data's scales; best one wins")
    rate: float = Field(0.1, gt=0, le=10, description="adam: step size, in logarithms of the hyper-parameters")
    noise: Literal["auto", "own", "shared"] = Field(
        "auto",
        description="own: every column has its noise, and costs a factorisation; shared: one noise for all; "
        "auto: own up to four columns",
    )
    floor: float = Field(
        1e-4, ge=1e-12, le=1, description="least noise variance, in squared units of the standardised target"
    )
    prior: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="standard deviation of the kernel's log hyper-parameters around the data's scales; "
        "none: plain maximum likelihood",
    )
    seed: int = Field(0, ge=0, description="of the further starts")

    def noises(self, columns: int) -> int:
        """How many noises T columns have: T, or one that they share."""
        shared = columns > OWN if self.noise == "auto" else self.noise == "shared"
        return 1 if shared else columns


def maximise(
    kernel: Tied,
    log_noise: Tensor,
    x: Tensor,
    y: Tensor,
    config: MarginalLikelihoodConfig,
    default: tuple[Tied, Tensor] | None = None,
    each: Each = map,
) -> Tuned:
    """See the module, and `tuned` for arguments and result; the loss is NLML a row and column, with the prior's part
    where there is one.

    An evaluation is O(n³), or O(T n³) with own noise; memory O(n²).

    Args:
        kernel, log_noise, x, y, config: see `tuned`.
        default: kernel and (T,) log σ² of a second start, which the prior is around; without, `kernel` is both. Where a
            search continues an earlier one, the prior would otherwise be around what that one found.
        each: see `tuned`.

    Raises:
        NumericalError: no start led anywhere.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = Tied(squared_exponential.Config(lengthscale=0.1), torch.zeros(1, dtype=torch.int64))
        >>> x = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
        >>> found = maximise(kernel, torch.tensor([-2.0]).double(), x, x.sin(), MarginalLikelihoodConfig())
        >>> found.loss < 0, 1 < found.kernel["log_lengthscale"].exp().item() < 4
        (True, True)
    """
    begun, around = time.process_time(), None if default is None else default[0]
    problem = LikelihoodProblem(kernel, y.shape[1], x, y, config, around)
    generator = torch.Generator().manual_seed(config.seed)
    given = {name: value.detach() for name, value in kernel.named_parameters()}
    starts = [problem.pack(given, log_noise)]
    if default is not None:
        starts.append(problem.pack({name: value.detach() for name, value in default[0].named_parameters()}, default[1]))
    starts += [problem.pack(*draw_start(kernel, x, y.shape[1], generator)) for _ in range(config.restarts)]

    def attempt(start: Tensor) -> Attempt:
        begun, own = time.process_time(), LikelihoodProblem(kernel, y.shape[1], x, y, config, around)
        if config.method == "lbfgs":
            one = lbfgs(own, start, config.evaluations, bounds=[(-BOUND, BOUND)] * len(start))
        else:
            one = adam(own, start, config.evaluations, rate=config.rate)
        return Attempt(one, own.evaluations, own.failure, time.process_time() - begun)

    tried, elsewhere = attempts(each, attempt, starts)
    found = [one.found for one in tried if one.found.value < HUGE]
    failures = [f"start {number}: {one.failure}" for number, one in enumerate(tried) if not one.found.value < HUGE]
    if not found:
        raise NumericalError(
            f"no start of {len(starts)} has a finite marginal likelihood ({failures[0]})",
            hint="look for constant or huge columns, raise the least noise, or start from longer lengthscales",
        )
    best = min(found, key=lambda one: one.value)
    problem.put(best.at)
    state = {name: value.detach().clone() for name, value in problem.kernel.state_dict().items()}
    noise = problem.noise.detach().expand(y.shape[1]).clone()
    seconds, evaluations = time.process_time() - begun + elsewhere, sum(one.evaluations for one in tried)
    return Tuned(state, noise, best.value, tuple(best.history), seconds, evaluations, tuple(failures))


class LikelihoodProblem:
    """What is minimised, as a function of one vector: the kernel's logarithms, then those of the noise above its floor.

    Args:
        kernel: copied.
        columns: T.
        x: (n, W)
        y: (n, T)
        config: of which `noise`, `floor` and `prior` are looked at.
        default: what the prior is around; without, `kernel`.
    """

    def __init__(
        self,
        kernel: Tied,
        columns: int,
        x: Tensor,
        y: Tensor,
        config: MarginalLikelihoodConfig,
        default: Tied | None = None,
    ) -> None:
        self.kernel = copy.deepcopy(kernel).requires_grad_(True)
        self.x, self.y = x, y
        self.names = [name for name, _ in self.kernel.named_parameters()]
        noises = config.noises(columns)
        self.shared = noises == 1
        self.solver = exact.build(exact.Config(floor=config.floor), self.kernel, noises).to(x.device)
        self.prior, self.centres = config.prior, torch.empty(0)
        if config.prior is not None:
            around = centres(default or kernel, x)
            self.centres = torch.cat([around[name].flatten() for name in self.names])
        self.evaluations, self.failure = 0, ""

    @property
    def noise(self) -> Tensor:
        """(T,), or (1,) where there is one for all."""
        return self.solver.noise

    def pack(self, values: Mapping[str, Tensor], log_noise: Tensor) -> Tensor:
        """Names and their logarithms, (T,) log σ² -> the vector; a noise at its floor is lifted by a tenth of it."""
        floor = self.solver.floor
        rest = (log_noise.detach().to(self.x).exp() - floor).clamp(min=0.1 * floor).log()
        rest = rest.mean()[None] if self.shared else rest.expand(self.solver.log_noise.shape)
        parts = [values[name].to(self.x).flatten() for name in self.names]
        return torch.cat([*parts, rest]).clamp(-BOUND, BOUND)

    @torch.no_grad()
    def put(self, packed: Tensor) -> None:
        """Write the vector into kernel and noise."""
        named = dict(self.kernel.named_parameters())
        places = [*(named[name] for name in self.names), self.solver.log_noise]
        for place, part in zip(places, packed.split([place.numel() for place in places]), strict=True):
            place.copy_(part.view_as(place))

    def __call__(self, packed: Tensor) -> tuple[float, Tensor]:
        """The loss a row and column, and its gradient; `HUGE` and zeros where it cannot be computed."""
        self.evaluations += 1
        self.put(packed)
        size = self.y.numel()
        try:
            with torch.enable_grad():
                if self.shared:
                    total = shared_noise(self.kernel, self.noise[0], self.x, self.y)
                else:
                    total = self.solver.nlml_at(self.x, self.y)
                free = [*self.kernel.parameters(), self.solver.log_noise]
                gradient = torch.cat([part.flatten() for part in torch.autograd.grad(total, free)]) / size
        except NotPositiveDefinite as error:
            self.failure = error.message
            return HUGE, torch.zeros_like(packed)
        loss = total.item() / size
        if self.prior is not None:
            off = (packed[: len(self.centres)] - self.centres) / self.prior
            loss += 0.5 * off.square().sum().item() / size
            gradient[: len(off)] += off / (self.prior * size)
        if not (math.isfinite(loss) and bool(torch.isfinite(gradient).all())):
            self.failure = "the marginal likelihood is not finite"
            return HUGE, torch.zeros_like(packed)
        return loss, gradient
