"""A plain net: an encoder and a linear head, trained on squared error. The baseline of the GP on the same encoder.

Where simulations are planned (`Shape.simulated`) the encoder learns what a ridge regression on the window leaves,

    m(z) = zᵀβ + c + s · net(z),

so that a forecast far from all data falls back to a linear one, and a training ends on simulation error
(`optim.unrolled`), in stages of more and more steps; a stage is kept where the validation rows are simulated better. A
function is the net itself, with noise of variance s² at every step.

Its predictive is N(m(x), s²): s² is the mean squared error on validation rows, and on a stream the running mean
squared error of forecasts scored before their rows were learned. It knows no more of its uncertainty than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import BaseModel
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT, Shape
from streamgp.encoders import Encoder, Layout
from streamgp.models.deep.config import DeepNetConfig
from streamgp.models.deep.posterior import CHUNK, DeepPosterior
from streamgp.online.posterior import Drawn
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts
from streamgp.optim.squared_error import Head, SquaredError
from streamgp.optim.unrolled import Chain
from streamgp.training.early_stopping import FEWEST, load, weights
from streamgp.training.fit import Optimiser, Standing, training

STAGES = ((5, 150), (20, 100))
"""Steps ahead, and mini-batches."""
RATE = 3e-3
"""Learning rate of these, which falls to 0 in each stage."""
RIDGE = 1.0
"""Weight of the prior that the coefficients β are 0, in rows, for inputs of unit spread."""


class NetPosterior(DeepPosterior, Drawn):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        encoder: the Config of the net; unless it names a width, it is as wide as its hidden layer.
        layout: of the windows that it sees.

    Attributes:
        noise: (T,) mean squared residual of the rows that were trained on.
        slope, residual: β, (W, T), and c and s.

    Raises:
        UsageError: the layout does not go with the encoder.
    """

    config: DeepNetConfig
    noise: Tensor
    slope: Tensor

    def __init__(self, config: DeepNetConfig, shape: Shape, encoder: BaseModel, layout: Layout) -> None:
        super().__init__(config, shape)
        if "width" not in encoder.model_fields_set:
            encoder = encoder.model_copy(update={"width": encoder.model_dump()["hidden"]})
        self.encoder: Encoder = choice.build("encoders", encoder, layout)
        self.head = Head(self.encoder.width, shape.columns, config.seed)
        self.register_buffer("noise", torch.ones(shape.columns, dtype=FLOAT))
        self.layout = layout if config.unrolled(shape) else None
        self.residual = Standardiser(shape.columns)
        self.register_buffer("slope", torch.zeros(layout.width, shape.columns, dtype=FLOAT))

    @property
    def size(self) -> int:
        return 0

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "head": self.head}

    def parts(self) -> Parts:
        return {"noise": self.noise, "slope": self.slope, "residual": self.residual}

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    def optimiser(self) -> SquaredError:
        return SquaredError(self.encoder, self.shape.columns, self.config.training, head=self.head)

    def start(self, z: Tensor, r: Tensor, generator: Generator) -> None:
        """The head starts where it is, on what a ridge regression leaves where simulations are planned."""
        if self.layout is not None:
            self.slope.copy_(ridge(z, r))
            self.residual.fit(r - z @ self.slope)

    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        left = r if self.layout is None else (r - self.mean(z)) / self.residual.scale.to(r)
        return super().descend(optimiser, z, left, generator)

    @torch.no_grad()
    def serve(self, z: Tensor, r: Tensor) -> None:
        squares = [(part - self.net(some)).square() for some, part in zip(z.split(CHUNK), r.split(CHUNK), strict=True)]
        self.noise.copy_(torch.cat(squares).mean(0).clamp(min=1e-12))

    def complete(self, z: Tensor, r: Tensor) -> None:
        """The variance stays what the held rows say of it: `noise` of the others times `factor`."""

    def served(self) -> Callable[[], None]:
        noise = self.noise.clone()

        def put_back() -> None:
            self.noise.copy_(noise)

        return put_back

    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        """The net, and noise at every step."""

        @torch.no_grad()
        def observe(z: Tensor) -> Tensor:
            found = self.standing(z)
            noise = torch.randn(found.mean.shape, generator=generator, dtype=FLOAT, device=generator.device)
            noise = noise.to(found.mean) * (found.noise * self.factor).sqrt()
            return found.mean + noise

        return observe

    def unroll(self, z: Tensor, y: Tensor, held: Tensor, generator: Generator) -> None:
        if self.layout is None:
            return
        chain = self._chain(z[~held], y[~held])
        other = self._chain(z[held], y[held]) if bool(held.any()) else chain
        for most, steps in STAGES:
            ahead = min(most, self.shape.simulated)
            if len(chain.starts(ahead)) < self.config.training.batch:
                break
            judge = other if len(other.starts(ahead)) >= FEWEST else chain
            typical, before = judge.typical(self.net, ahead, self.noise.sqrt()), weights(self.trained)
            score = judge.loss(self.net, judge.some(ahead), typical).item()
            config = self.config.training.model_copy(update={"rate": RATE, "schedule": "cosine"})
            self._simulate(
                SquaredError(self.encoder, self.shape.columns, config, 1, self.head), chain, ahead, steps, generator
            )
            with torch.no_grad():
                after = judge.loss(self.net, judge.some(ahead), typical).item()
            if not after < score:
                load(self.trained, before)
        self.serve(z[~held], y[~held])
        if bool(held.any()):
            squares = (y[held] - self.standing(z[held]).mean).square()
            self.factor.copy_((squares.mean(0) / self.noise).clamp(min=1.0))

    def _simulate(self, descent: SquaredError, chain: Chain, ahead: int, steps: int, generator: Generator) -> None:
        """Steps on the error of simulations so far."""
        typical = chain.typical(self.net, ahead, self.noise.sqrt())
        with training(self.encoder):
            for step in range(steps):
                starts = chain.draw(ahead, self.config.training.batch, generator)
                descent.descent.step(chain.loss(self.net, starts, typical), step / steps)

    def _chain(self, z: Tensor, y: Tensor) -> Chain:
        """Windows with what is learned of them, (N, T) standardised."""
        assert self.layout is not None
        return Chain(z, y, self.layout, float(self.config.learned(self.shape).target == "change"))

    def moments(self, z: Tensor) -> Standing:
        mean = self.net(z)
        return Standing(mean, torch.zeros_like(mean), self.noise)

    def net(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T), standardised."""
        out: Tensor = self.head(self.encoder(z))
        return out if self.layout is None else self.mean(z) + self.residual.scale.to(z) * out

    def mean(self, z: Tensor) -> Tensor:
        """(N, T) zᵀβ + c."""
        location = self.residual.location.to(z)
        return location + z @ self.slope


def ridge(z: Tensor, r: Tensor) -> Tensor:
    """(ZᵀZ + κI)⁻¹ Zᵀ(r − r̄), z centred: (N, W), (N, T) -> (W, T)."""
    z, r = z - z.mean(0), r - r.mean(0)
    gram = z.T @ z
    gram.diagonal().add_(RIDGE)
    found: Tensor = torch.linalg.solve(gram, z.T @ r)
    return found
