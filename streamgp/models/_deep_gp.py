"""GPs on the latents of an encoder: k̃(x, x') = k_θ(φ_W(x), φ_W(x')), one a column (Al-Shedivat et al. 2017).

Training alternates steps on the encoder and on the kernel (`streamgp.optim.alternating`). Between refreshes a stream is
learned by the solver's own data alone, which for the additive KISS head is exact, at a cost that does not depend on the
rows seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from pydantic import BaseModel
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import Inputs, Json, Shape
from streamgp.encoders._base import Dropout, Encoder
from streamgp.encoders._bounded import Bounded
from streamgp.models._deep import CHUNK, DeepModel, Moments, sized, training
from streamgp.models._deep_config import DeepGpConfig
from streamgp.models._state import Parts
from streamgp.optim.alternating import Alternating
from streamgp.optim.squared_error import SquaredError
from streamgp.solvers._base import Data, Posterior, Solver

GRID_WIDTH = 2
"""Columns of the latent space unless the encoder's options say otherwise: a grid in more than three is too large."""
SETTLED, SPREAD = 2048, 0.35
"""Rows on which a grid's latents are settled, and their spread before the tanh, where that is nearly linear."""
MANY = 1000
"""Rows above which pre-training pays; on fewer, pre-trained nets grow over-confident."""


class DeepGp(DeepModel):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        encoder: the Config of φ_W.

    Raises:
        UsageError: the shape does not go with the mode, the encoder or the solver.
    """

    config: DeepGpConfig

    def __init__(self, config: DeepGpConfig, shape: Shape, encoder: BaseModel) -> None:
        super().__init__(config, shape)
        inner: Encoder = choice.build("encoders", sized(encoder, GRID_WIDTH), self.frame.layout)
        kernel = choice.build("kernels", gridded(config), inner.width)
        self.solver: Solver = choice.build("solvers", config.solver, kernel, shape.columns)
        self.encoder: Encoder = Bounded(inner) if self.solver.bounded else inner
        self.alternating = Alternating(self.encoder, self.solver, config.training)
        self.online = Alternating(self.encoder, self.solver, config.refreshing)
        self.data: Data = self.solver.data()
        self.posterior: Posterior = self.solver.condition(self.data)

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    @property
    def basis(self) -> int:
        return round(self.data.count)

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: one function a path and column from the posterior, and noise at every step."""
        draw = self.posterior.draw(paths, generator)

        def observe(x: Inputs) -> Tensor:
            z = self.frame.inputs(x)
            with torch.no_grad():
                h = self.encoder(z)
                mean = self.posterior.mean(h)
                drawn = draw(h.unflatten(0, (paths, -1))).flatten(0, 1)
            noise = torch.randn(drawn.shape, generator=generator, dtype=drawn.dtype) * self.posterior.noise.sqrt()
            spread = (drawn - mean + noise) * self.factor.sqrt()
            return self.frame.baseline(x, z) + self.frame.scale * (mean + spread)

        return observe

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        super().restore(tensors, rest)
        self.posterior = self.solver.condition(self.data)

    def _learners(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "solver": self.solver}

    def _head(self) -> Parts:
        return {"data": self.data, "alternating": self.alternating, "online": self.online}

    def _start(self, z: Tensor, r: Tensor) -> None:
        """Pre-training where it pays; then latents and noise are put to where the kernel's training starts well."""
        wanted = self.config.pretrain
        epochs = wanted if wanted != "auto" else 5 if len(z) > MANY else 0
        if epochs:
            first = SquaredError(self.encoder, r.shape[1], self.config.pretraining)
            with training(self.encoder):
                for _ in range(epochs):
                    loss = first.epoch(z, r, self.generator)
            with torch.no_grad():
                self.solver.log_noise.fill_(math.log(max(loss, 2 * self.solver.floor) - self.solver.floor))
        if isinstance(self.encoder, Bounded):
            self.encoder.settle(z[:: len(z) // SETTLED + 1], SPREAD)

    def _train(self, z: Tensor, r: Tensor) -> float:
        with training(self.encoder):
            return self.alternating.epoch(z, r, self.generator)

    def _serve(self, z: Tensor, r: Tensor) -> None:
        self.data = self.solver.data()
        for part in range(0, len(z), CHUNK):
            rows = slice(part, part + CHUNK)
            self._add(z[rows], r[rows])
        self.posterior = self.solver.condition(self.data)

    def _served(self) -> Callable[[], None]:
        data, posterior = self.data, self.posterior

        def put_back() -> None:
            self.data, self.posterior = data, posterior

        return put_back

    def _rescaled(self, squares: Tensor) -> Tensor:
        return squares.clamp(min=1.0) ** self.config.rescale

    def _absorb(self, z: Tensor, r: Tensor) -> None:
        memory = self.config.online.memory
        if memory is not None:
            self.data.forget(math.exp(-len(z) / memory))
        self._add(z, r)
        self.posterior = self.solver.condition(self.data)

    def _renew(self, z: Tensor, r: Tensor, count: int, recent: int) -> None:
        with training(self.encoder):
            self.online.steps(z, r, count, self.generator, recent)
        self._serve(z, r)

    def _add(self, z: Tensor, r: Tensor) -> None:
        with torch.no_grad():
            self.data.add(self.encoder(z), r)

    def _moments(self, z: Tensor) -> Moments:
        draws, noise = self.config.draws, self.posterior.noise
        if not draws:
            h = self.encoder(z)
            return Moments(self.posterior.mean(h), self.posterior.variance(h), noise)
        generator = torch.Generator().manual_seed(self.config.seed)  # the same networks at every call
        mean, square = torch.zeros_like(z[:, :1]), torch.zeros_like(z[:, :1])
        for _ in range(draws):
            h = self.encoder(z, Dropout(generator, shared=True))
            one = self.posterior.mean(h)
            mean = mean + one / draws
            square = square + (one.square() + self.posterior.variance(h)) / draws
        return Moments(mean, (square - mean.square()).clamp(min=0.0), noise)


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
