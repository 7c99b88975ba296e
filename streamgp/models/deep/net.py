"""A plain net: an encoder and a linear head, trained on squared error. The baseline of the GP on the same encoder.

A function is the net itself, with noise of variance s² at every step.

Its predictive is N(m(x), s²): s² is the mean squared error on validation rows, and on a stream the running mean
squared error of forecasts scored before their rows were learned. It knows no more of its uncertainty than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT, Shape
from streamgp.encoders import Encoder, Layout
from streamgp.models.deep.config import DeepNetConfig
from streamgp.models.deep.posterior import CHUNK, DeepPosterior
from streamgp.models.deep.squared_error import LinearHead, SquaredError
from streamgp.online.posterior import DrawsFunctions, Units
from streamgp.state import Parts
from streamgp.training.fit import Standing


class NetPosterior(DeepPosterior, DrawsFunctions):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        layout: of the windows that it sees.

    Attributes:
        noise: (T,) mean squared residual of the rows that were trained on.

    Raises:
        UsageError: the layout does not go with the encoder.
    """

    config: DeepNetConfig
    noise: Tensor

    def __init__(self, config: DeepNetConfig, shape: Shape, layout: Layout) -> None:
        super().__init__(config, shape, layout)
        encoder = config.encoder
        if "width" not in encoder.model_fields_set:
            encoder = encoder.model_copy(update={"width": encoder.model_dump()["hidden"]})
        self.encoder: Encoder = choice.build("encoders", encoder, layout)
        self.head = LinearHead(self.encoder.width, shape.columns, config.seed)
        self.register_buffer("noise", torch.ones(shape.columns, dtype=FLOAT))

    @property
    def size(self) -> int:
        return 0

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "head": self.head}

    def parts(self) -> Parts:
        return {"noise": self.noise}

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    def optimiser(self) -> SquaredError:
        return SquaredError(self.encoder, self.shape.columns, self.config.training, head=self.head)

    def start(self, z: Tensor, r: Tensor, units: Units, generator: Generator) -> None:
        """The head starts where it is."""

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

    def drawn(self, paths: int, generator: Generator) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The net, and noise at every step."""

        @torch.no_grad()
        def observe(z: Tensor) -> tuple[Tensor, Tensor]:
            found = self.standing(z)
            noise = torch.randn(found.mean.shape, generator=generator, dtype=FLOAT, device=generator.device)
            noise = noise.to(found.mean) * (found.noise * self.factor).sqrt()
            return found.mean, found.mean + noise

        return observe

    def fit_again(self, z: Tensor, r: Tensor, held: Tensor, generator: Generator) -> None:
        self.serve(z[~held], r[~held])
        if bool(held.any()):
            squares = (r[held] - self.standing(z[held]).mean).square()
            self.factor.copy_((squares.mean(0) / self.noise).clamp(min=1.0))

    def moving(self) -> nn.Module:
        return nn.ModuleDict(dict(self.trained))

    def function(self, z: Tensor, r: Tensor, generator: Generator) -> Callable[[Tensor], Tensor]:
        return self.net

    def moments(self, z: Tensor) -> Standing:
        mean = self.net(z)
        return Standing(mean, torch.zeros_like(mean), self.noise)

    def net(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T), standardised."""
        out: Tensor = self.head(self.encoder(z))
        return out
