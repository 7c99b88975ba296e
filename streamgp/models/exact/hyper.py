"""The hyper-parameters of an exact GP: where they start, and how they are learned from some of its rows."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Shape
from streamgp.evidence.initial import Initial, structure
from streamgp.evidence.thinned import START_NOISE
from streamgp.kernels._tied import Tied
from streamgp.models.exact.config import Config
from streamgp.models.exact.posterior import GrowingPosterior
from streamgp.online.inputs import KernelInputs
from streamgp.optim import _starts, marginal_likelihood

FURTHER = 3
"""Searches after the first start near the end, and have so many times fewer evaluations."""


class Hyperparameters(nn.Module):
    """Kernel and noise of T columns over standardised windows.

    Args:
        config: of the model.
        shape: of the windows.
        inputs: of the model; its groups of columns share a lengthscale, unless every column has its own.

    Attributes:
        kernel: over W columns, without gradients.
        log_noise: (T,) log σ², standardised; all the same where the noise is shared.
        initial: hyper-parameters found before, to start from.
        evaluations: of the marginal likelihood in the last search.
    """

    log_noise: Tensor

    def __init__(self, config: Config, shape: Shape, inputs: KernelInputs) -> None:
        super().__init__()
        self.config, self.shape, self.search = config, shape, config.search(shape)
        groups = torch.arange(shape.width) if config.ard == "column" else inputs.groups
        self.kernel = Tied(config.whole, groups).requires_grad_(False)
        self.channels = (inputs.groups,)  # in a tuple, so that it is no buffer of ours
        self.register_buffer("log_noise", torch.full((shape.columns,), START_NOISE, dtype=FLOAT))
        self.initial: Initial | None = None
        self.evaluations = 0

    def reset(self) -> None:
        """As they were built."""
        first = Tied(self.config.whole, self.kernel.groups.cpu())
        self.kernel.load_state_dict(first.state_dict())
        self.log_noise.fill_(START_NOISE)

    def initialise(self, initial: Initial) -> None:
        """Start from these.

        Raises:
            UsageError: windows, targets or kernel are others.
        """
        initial.check(self.shape, self.config.target, self.config.decay)
        if structure(initial.config) != structure(self.kernel.config):
            initial.fits(self.config.kernel)
        self.initial = initial

    def prior(self) -> GrowingPosterior:
        """Of no rows, under the present hyper-parameters, which it copies."""
        shared = self.search.noises(self.shape.columns) < self.shape.columns
        noise = self.log_noise.mean()[None].exp() if shared else self.log_noise.exp()
        noise = noise * self.config.tempering(self.shape)
        gap = self.shape.horizon - 1 if self.config.rescale else None
        return GrowingPosterior(copy.deepcopy(self.kernel), noise, self.shape.columns, gap)

    def learn(self, h: Tensor, r: Tensor, scale: Tensor, target_scale: Tensor, first: bool) -> tuple[str, ...]:
        """By the marginal likelihood of some rows, where the options say so.

        Args:
            h: (N, W) standardised windows.
            r: (N, T) standardised targets, NaN = not observed.
            scale: (G,) of the channels, in their units.
            target_scale: (T,) of what is learned of the targets, in their units.
            first: whether there is nothing yet to go on from.

        Returns:
            the starts that failed, a sentence each.

        Raises:
            NumericalError: all of them did.
        """
        training, most = self.search, self.config.evidence_rows
        once = most == 0 or self.config.learn == "once"
        given = self.initial is not None and (first or once)
        if self.initial is not None and given:  # also where they stay: in the units of the scaling that there is now
            self._take(self.initial, scale, target_scale)
        if most == 0 or (once and (given or not first)):
            return ()
        whole = torch.isfinite(r).all(1).nonzero()[:, 0]
        rows = whole if len(whole) > 1 else torch.arange(len(r), device=r.device)
        rows = rows[self._thin(len(rows), len(rows) if most is None else most)]
        h, r = h[rows], torch.nan_to_num(r[rows])
        if first and not given:
            self._settle(h)
        if not first:
            fewer = max(training.evaluations // FURTHER, 1)
            training = training.model_copy(update={"restarts": 0, "evaluations": fewer})
        found = marginal_likelihood.maximise(self.kernel, self.log_noise, h, r, training)
        self.kernel.load_state_dict(found.kernel)
        self.log_noise.copy_(found.noise.log())
        self.evaluations = found.evaluations
        return found.failures

    def _thin(self, rows: int, most: int) -> Tensor:
        """Indices of the rows for the marginal likelihood, evenly spread: about three a horizon."""
        count = min(max(3 * rows // self.shape.horizon, 60), most, rows)
        return torch.linspace(0, rows - 1, count, device=self.log_noise.device).round().long()

    def _settle(self, h: Tensor) -> None:
        """Lengthscales that nobody set begin where the data says."""
        around = _starts.centres(self.kernel, h)
        for name, value in self.kernel.named_parameters():
            if name.rpartition(".")[2] == "log_lengthscale" and not self._is_set(name):
                value.copy_(around[name])

    def _is_set(self, name: str) -> bool:
        config = self.kernel.config
        for place in name.split(".")[1:-1:2]:
            config = config.parts[int(place)]  # type: ignore[attr-defined]
        return "lengthscale" in config.model_fields_set

    def _take(self, initial: Initial, scale: Tensor, target_scale: Tensor) -> None:
        """In the units of the scaling that there is now; where nothing is learned, without the linear kernel."""
        found = Tied(initial.config, self.channels[0].cpu()).to(self.log_noise.device)
        self.log_noise.copy_(initial.onto(found, scale, target_scale))
        each = self.config.ard == "column"
        self.kernel.unit.copy_(found.unit[found.groups] if each else found.unit)
        values = found.spread() if each else dict(found.named_parameters())
        inner = "parts.0." if structure(initial.config) != structure(self.kernel.config) else ""
        for name, value in self.kernel.named_parameters():
            if name.startswith(inner):
                value.copy_(values[name.removeprefix(inner)].detach())
            elif self.config.learn == "once":
                value.fill_(-marginal_likelihood.BOUND)
