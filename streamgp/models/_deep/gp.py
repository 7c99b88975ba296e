"""GPs on the latents of an encoder: k̃(x, x') = k_θ(φ_W(x), φ_W(x')), one a column (Al-Shedivat et al. 2017).

Training alternates steps on the encoder and on the kernel (`streamgp.optim.alternating`). Between refreshes a stream is
learned by the solver's own data alone, which for the additive KISS head is exact, at a cost that does not depend on the
rows seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Self

import torch
from pydantic import BaseModel
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.encoders import Bounded, Dropout, Encoder
from streamgp.errors import UsageError
from streamgp.models._deep.config import DeepGpConfig
from streamgp.models._deep.model import CHUNK, DeepModel
from streamgp.online.recent import RecentWindows
from streamgp.online.state import Parts, holding
from streamgp.online.training import OUTLIER, Moments, attempt, sized, training
from streamgp.optim.alternating import Alternating
from streamgp.optim.squared_error import SquaredError
from streamgp.solvers import Data, Posterior, Solver

GRID_WIDTH = 2
"""Columns of the latent space unless the encoder's options say otherwise: a grid in more than three is too large."""
SETTLED, SPREAD, SMOOTH = 2048, 0.35, 0.1
"""Rows on which latents are settled; their spread on a grid, where tanh is still nearly linear; without one, at
most: a perceptron's first latents are of order 1, and a GP on few rows that starts rough stays rough."""
LEAST = 1e-6
"""Smallest factor on the variance that a stream without errors can lead to."""
MANY = 1000
"""Rows above which pre-training pays; on fewer, pre-trained nets grow over-confident."""


class DeepGp(DeepModel):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        encoder: the Config of φ_W.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver, or draws are asked of an encoder
            without dropout.
    """

    config: DeepGpConfig
    untuned = "learns its kernel on what its net makes of a window, and net and kernel together"

    def __init__(self, config: DeepGpConfig, shape: Shape, encoder: BaseModel) -> None:
        super().__init__(config, shape)
        if config.draws and not any(getattr(encoder, name, 0.0) for name in ("dropout", "recurrent_dropout")):
            raise UsageError(
                "draws averages over networks drawn by dropout, and the encoder has none",
                hint="set encoder.dropout or encoder.recurrent_dropout, such as 0.1, or leave draws out",
            )
        inner: Encoder = choice.build("encoders", sized(encoder, GRID_WIDTH), self.frame.layout)
        kernel = choice.build("kernels", gridded(config), inner.width)
        self.solver: Solver = choice.build("solvers", config.solver, kernel, shape.columns)
        if self.solver.limit is not None and config.online.window > self.solver.limit // 2:
            self.recent = RecentWindows(max(self.solver.limit // 2, 2), shape)
        self.encoder: Encoder = Bounded(inner) if self.solver.bounded else inner
        self._optimisers()
        self.data: Data = self.solver.data()
        self.posterior: Posterior = self.solver.condition(self.data)

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    @property
    def basis(self) -> int:
        return self.posterior.basis

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: one function a path and column from the posterior, and noise at every step."""
        posterior, draw = self.posterior, self.posterior.draw(paths, generator)

        def observe(x: Inputs) -> Tensor:
            z = self.frame.inputs(x)
            with torch.no_grad():
                mean = self._mean(z, posterior)
                drawn = draw(self._latents_of_paths(z, paths)).flatten(0, 1)
            noise = torch.randn(drawn.shape, generator=generator, dtype=drawn.dtype).to(drawn) * posterior.noise.sqrt()
            spread = (drawn - mean + noise) * self.factor.sqrt()
            return self.frame.baseline(x, z) + self.frame.scale * (mean + spread)

        return observe

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        super().restore(tensors, rest)
        self._move()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._move()
        return self

    def _move(self) -> None:
        """Data and posterior to where the solver is: they are no modules, which PyTorch would move."""
        tensors, rest = self.data.state()
        device = self.solver.log_noise.device
        self.data.restore({name: tensor.to(device) for name, tensor in tensors.items()}, rest)
        self.posterior = self.solver.condition(self.data)

    def _optimisers(self) -> None:
        """Without a past."""
        self.alternating = Alternating(self.encoder, self.solver, self.config.training)
        self.online = Alternating(self.encoder, self.solver, self.config.refreshing)

    def _networks(self) -> list[Dropout | None]:
        """What the encoder is asked with: as it is, or as one network after another, the same at every call."""
        generator = torch.Generator().manual_seed(self.config.seed)
        return [Dropout(generator, shared=True)] * self.config.draws or [None]

    def _mean(self, z: Tensor, posterior: Posterior) -> Tensor:
        """(N, T) over all networks."""
        means = torch.stack([posterior.mean(self.encoder(z, network)) for network in self._networks()])
        return means.mean(0)

    def _latents_of_paths(self, z: Tensor, paths: int) -> Tensor:
        """(P · S, W) -> (P, S, d); each path sees through one network, whenever it asks."""
        networks = self._networks()
        each = z.unflatten(0, (paths, -1))
        h: Tensor = each.new_zeros(*each.shape[:2], self.solver.kernel.dims)
        for number, network in enumerate(networks[:paths]):
            own = each[number :: len(networks)]
            h[number :: len(networks)] = self.encoder(own.flatten(0, 1), network).unflatten(0, own.shape[:2])
        return h

    def _learners(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "solver": self.solver}

    def _head(self) -> Parts:
        return {"data": self.data, "alternating": self.alternating, "online": self.online}

    def _start(self, z: Tensor, r: Tensor) -> None:
        """Pre-training where it pays; then latents and noise are put to where the kernel's training starts well."""
        self._optimisers()
        wanted = self.config.pretrain
        epochs = wanted if wanted != "auto" else 5 if len(z) > MANY else 0
        if epochs:
            first = SquaredError(self.encoder, r.shape[1], self.config.pretraining)
            with training(self.encoder):
                for _ in range(epochs):
                    loss = first.epoch(z, r, self.generator)
            with torch.no_grad():
                self.solver.log_noise.fill_(math.log(max(loss, 2 * self.solver.floor) - self.solver.floor))
        some = z[:: len(z) // SETTLED + 1]
        if self.solver.bounded:
            self.encoder.settle(some, SPREAD)
        elif not epochs:
            self.encoder.settle(some, SMOOTH, widen=False)

    def _span(self, epochs: int) -> None:
        self.alternating.weights.epochs = self.alternating.hyperparameters.epochs = epochs

    @property
    def _steady(self) -> bool:
        return self.alternating.healthy and self.online.healthy

    def _train(self, z: Tensor, r: Tensor) -> float:
        with training(self.encoder):
            return self.alternating.epoch(z, r, self.generator)

    def _serve(self, z: Tensor, r: Tensor) -> None:
        self.data = self.solver.data()
        for part in range(0, len(z), CHUNK):
            rows = slice(part, part + CHUNK)
            self._add(z[rows], r[rows])
        self.posterior = self.solver.condition(self.data)

    def _complete(self, z: Tensor, r: Tensor, held: Tensor) -> None:
        """The held rows join the others."""
        for some, part in zip(z[held].split(CHUNK), r[held].split(CHUNK), strict=True):
            self._add(some, part)
        self.posterior = self.solver.condition(self.data)

    def _served(self) -> Callable[[], None]:
        data, posterior = self.data, self.posterior

        def put_back() -> None:
            self.data, self.posterior = data, posterior

        return put_back

    def _rescaled(self, squares: Tensor) -> Tensor:
        return squares.clamp(min=1.0) ** self.config.rescale

    def _absorb(self, z: Tensor, r: Tensor) -> None:
        data, posterior = holding({"data": self.data}), self.posterior

        def put_back() -> None:
            data()
            self.posterior = posterior

        self.failed = attempt(lambda: self._learn(z, r), put_back)

    def _learn(self, z: Tensor, r: Tensor) -> None:
        memory = self.config.online.memory
        if memory is not None:
            self.data.forget(math.exp(-len(z) / memory))
        if self.data.rows + len(z) > 2 * self.recent.capacity:  # a solver that keeps rows, and no refresh is due
            self._serve(*self._newest())
            return
        self._add(z, r)
        self.posterior = self.solver.condition(self.data)

    def _renew(self, z: Tensor, r: Tensor, count: int, recent: int) -> None:
        learners, head = holding(self._learners()), self._served()

        def refresh() -> None:
            with training(self.encoder):
                self.online.steps(z, r, count, self.generator, recent)
            self._serve(z, r)

        self.failed = attempt(refresh, lambda: (learners(), head()))

    def _scored(self, errors: Tensor, squares: Tensor) -> None:
        """The factor on the variance follows the running mean of z² without it."""
        memory = self.config.online.variance
        if memory is None:
            return
        seen = torch.isfinite(squares)
        rows = seen.sum(0)
        kept = torch.exp(-rows.to(FLOAT) / memory)
        mean = torch.where(seen, squares, 0.0).clamp(max=OUTLIER).sum(0) / rows.clamp(min=1)
        self.factor.mul_(kept + (1 - kept) * mean).clamp_(min=LEAST)

    def _add(self, z: Tensor, r: Tensor) -> None:
        with torch.no_grad():
            self.data.add(self.encoder(z), r)

    def _moments(self, z: Tensor) -> Moments:
        """Of the mixture of networks, where there are several."""
        noise, mean, variance = self.posterior.noise, self.posterior.mean, self.posterior.variance
        latents = [self.encoder(z, network) for network in self._networks()]
        if len(latents) == 1:
            return Moments(mean(latents[0]), variance(latents[0]), noise)
        means = torch.stack([mean(h) for h in latents])
        within = torch.stack([variance(h) for h in latents]).mean(0)
        return Moments(means.mean(0), within + means.var(0, correction=0), noise)


def gridded(config: DeepGpConfig) -> BaseModel:
    """The kernel's Config; in front of a grid, the product over dimensions of a kernel that offers both forms."""
    fields = type(config.kernel).model_fields
    if (
        choice.part_name(config.solver) == "exact"
        or "separable" not in fields
        or "separable" in config.kernel.model_fields_set
    ):
        return config.kernel
    return config.kernel.model_copy(update={"separable": True})
