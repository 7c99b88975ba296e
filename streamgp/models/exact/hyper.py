"""The hyper-parameters of an exact GP: where they start, and how they are estimated from some of its rows."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Shape
from streamgp.evidence import marginal_likelihood
from streamgp.evidence.initial import Initial, structure
from streamgp.evidence.minimise import BOUND
from streamgp.evidence.search import thinned
from streamgp.evidence.starts import centres
from streamgp.evidence.thinned import START_NOISE
from streamgp.kernels import Tied
from streamgp.models.exact.config import Config
from streamgp.models.exact.growing import GrowingPosterior

FURTHER = 3
"""Searches after the first have this many times fewer evaluations each."""


class Hyperparameters(nn.Module):
    """Kernel and noise of T columns over standardised windows.

    Args:
        config: of the model.
        shape: of the windows.
        channels: (W,) the group of each column; a group shares a lengthscale, unless every column has its own.

    Attributes:
        kernel: over W columns, without gradients.
        log_noise: (T,) log σ², standardised; all the same where the noise is shared.
        found: () whether they were estimated, or taken from a file.
        initial: hyper-parameters found before, to start from.
        evaluations: of the marginal likelihood in the last search.
    """

    NOT_STATE: ClassVar = {"evaluations": "a figure of the last search, which no forecast depends on"}
    log_noise: Tensor
    found: Tensor

    def __init__(self, config: Config, shape: Shape, channels: Tensor) -> None:
        super().__init__()
        self.config, self.shape, self.search = config, shape, config.search(shape)
        groups = torch.arange(shape.width) if config.ard == "column" else channels
        self.kernel = Tied(config.whole(shape), groups).requires_grad_(False)
        self.channels = channels.cpu()
        self.register_buffer("log_noise", torch.full((shape.columns,), START_NOISE, dtype=FLOAT))
        self.register_buffer("found", torch.zeros((), dtype=torch.bool))
        self.initial: Initial | None = None
        self.evaluations = 0

    def reset(self) -> None:
        """As they were built."""
        self.kernel.load_state_dict(self._fresh().state_dict())
        self.log_noise.fill_(START_NOISE)
        self.found.fill_(False)

    def start_from(self, initial: Initial) -> None:
        """Start from these.

        Raises:
            UsageError: the kernel is another one.
        """
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

    def estimate(self, z: Tensor, y: Tensor, scale: Tensor, target_scale: Tensor) -> tuple[str, ...]:
        """By the marginal likelihood of some rows, where the options say so.

        The first search starts from the default, or from a file. Every later one starts from the last hyper-parameters
        and from the default, and the better one wins: from few rows with little signal alone it could end where
        the gradient is nothing, and stay there.

        Args:
            z: (N, W) standardised windows.
            y: (N, T) standardised targets, NaN = not observed.
            scale: (G,) of the channels, in their units.
            target_scale: (T,) of what is learned of the targets, in their units.

        Returns:
            the starts that failed, a sentence each.

        Raises:
            NumericalError: all of them did.
        """
        training, most, first = self.search, self.config.evidence_rows, not bool(self.found)
        once = most == 0 or self.config.learn == "once"
        given = self.initial is not None and (first or once)
        if self.initial is not None and given:  # also where they stay: in the units of the scaling that there is now
            self._take(self.initial, scale, target_scale)
        self.found.fill_(True)
        if most == 0 or (once and (given or not first)):
            return ()
        whole = torch.isfinite(y).all(1).nonzero()[:, 0]
        rows = whole if len(whole) > 1 else torch.arange(len(y), device=y.device)
        rows = rows[thinned(len(rows), self.shape.horizon, len(rows) if most is None else most, y.device)]
        z, y = z[rows], torch.nan_to_num(y[rows])
        default = None if first else (self._default(z), torch.full_like(self.log_noise, START_NOISE))
        if first and not given:
            self.kernel.load_state_dict(self._default(z).state_dict())
        if not first:
            fewer = max(training.evaluations // FURTHER, 1)
            training = training.model_copy(update={"restarts": 0, "evaluations": fewer})
        found = marginal_likelihood.maximise(self.kernel, self.log_noise, z, y, training, default)
        self.kernel.load_state_dict(found.kernel)
        self.log_noise.copy_(found.noise.log())
        self.evaluations = found.evaluations
        return found.failures

    def _fresh(self) -> Tied:
        """The kernel as it was built, on the device of this one."""
        whole = self.config.whole(self.shape)
        return Tied(whole, self.kernel.groups.cpu()).to(self.log_noise.device).requires_grad_(False)

    def _default(self, z: Tensor) -> Tied:
        """Where a search starts: lengthscales that nobody set are read off the rows (n, W)."""
        kernel = self._fresh()
        kernel.unit.copy_(self.kernel.unit)
        around = centres(kernel, z)
        for name, value in kernel.named_parameters():
            if name.rpartition(".")[2] == "log_lengthscale" and not self._is_set(name):
                value.copy_(around[name])
        return kernel

    def _is_set(self, name: str) -> bool:
        config = self.kernel.config
        for place in name.split(".")[1:-1:2]:
            config = config.parts[int(place)]  # type: ignore[attr-defined]
        return "lengthscale" in config.model_fields_set

    def _take(self, initial: Initial, scale: Tensor, target_scale: Tensor) -> None:
        """In the units of the scaling that there is now; where nothing is learned, without the linear kernel."""
        found = Tied(initial.config, self.channels).to(self.log_noise.device)
        self.log_noise.copy_(initial.onto(found, scale, target_scale))
        each = self.config.ard == "column"
        self.kernel.unit.copy_(found.unit[found.groups] if each else found.unit)
        values = found.spread() if each else dict(found.named_parameters())
        inner = "parts.0." if structure(initial.config) != structure(self.kernel.config) else ""
        for name, value in self.kernel.named_parameters():
            if name.startswith(inner):
                value.copy_(values[name.removeprefix(inner)].detach())
            elif self.config.learn == "once":
                value.fill_(-BOUND)
