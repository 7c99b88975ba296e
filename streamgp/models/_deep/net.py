"""A plain net: an encoder and a linear head, trained on squared error. The baseline of the GP on the same encoder.

Its predictive is N(m(x), s²): s² is the mean squared error on validation rows, and on a stream the running mean
squared error of forecasts scored before their rows were learned. It knows no more of its uncertainty than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT, Shape
from streamgp.encoders import Encoder
from streamgp.models._deep.config import DeepNetConfig
from streamgp.models._deep.model import CHUNK, DeepModel
from streamgp.online.state import Parts
from streamgp.online.training import OUTLIER, Moments, sized, training
from streamgp.optim.squared_error import Head, SquaredError


class DeepNet(DeepModel):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        encoder: the Config of the net.

    Raises:
        UsageError: the shape does not go with the mode or the encoder.
    """

    config: DeepNetConfig

    def __init__(self, config: DeepNetConfig, shape: Shape, encoder: BaseModel) -> None:
        super().__init__(config, shape)
        self.encoder: Encoder = choice.build("encoders", sized(encoder, None), self.frame.layout)
        self.head = Head(self.encoder.width, shape.columns, config.seed)
        self._optimisers()
        self.register_buffer("noise", torch.ones(shape.columns, dtype=FLOAT))
        self.noise: Tensor  # (T,) standardised

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    @property
    def basis(self) -> int:
        return 0

    def _optimisers(self) -> None:
        """Without a past."""
        config, columns = self.config, self.shape.columns
        self.trainer = SquaredError(self.encoder, columns, config.training, head=self.head)
        self.online = SquaredError(self.encoder, columns, config.refreshing, head=self.head)

    def _learners(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "head": self.head}

    def _head(self) -> Parts:
        return {"trainer": self.trainer, "online": self.online, "noise": self.noise}

    def _start(self, z: Tensor, r: Tensor) -> None:
        """The head starts where it was built."""
        self._optimisers()

    def _span(self, epochs: int) -> None:
        self.trainer.descent.epochs = epochs

    @property
    def _steady(self) -> bool:
        return self.trainer.healthy and self.online.healthy

    def _train(self, z: Tensor, r: Tensor) -> float:
        with training(self.encoder):
            return self.trainer.epoch(z, r, self.generator)

    def _serve(self, z: Tensor, r: Tensor) -> None:
        with torch.no_grad():
            squares = [
                (part - self.trainer(some)).square() for some, part in zip(z.split(CHUNK), r.split(CHUNK), strict=True)
            ]
        self.noise.copy_(torch.cat(squares).mean(0).clamp(min=1e-12))

    def _complete(self, z: Tensor, r: Tensor, held: Tensor) -> None:
        """The variance stays what the held rows say of it: `noise` of the others times `factor`."""

    def _served(self) -> Callable[[], None]:
        noise = self.noise.clone()

        def put_back() -> None:
            self.noise.copy_(noise)

        return put_back

    def _rescaled(self, squares: Tensor) -> Tensor:
        return squares.clamp(min=1e-12)  # a net has no other variance

    def _absorb(self, z: Tensor, r: Tensor) -> None:
        """Only the variance learns between refreshes."""

    def _renew(self, z: Tensor, r: Tensor, count: int, recent: int) -> None:
        with training(self.encoder):
            self.online.steps(z, r, count, self.generator, recent)

    def _scored(self, errors: Tensor, squares: Tensor) -> None:
        memory = self.config.online.variance
        if memory is None:
            return
        seen = torch.isfinite(errors)
        rows = seen.sum(0)
        kept = torch.exp(-rows.to(FLOAT) / memory)
        most = OUTLIER * self.noise * self.factor
        mean = torch.where(seen, errors, 0.0).square().minimum(most).sum(0) / rows.clamp(min=1) / self.factor
        self.noise.mul_(kept).add_((1 - kept) * mean)

    def _moments(self, z: Tensor) -> Moments:
        mean = self.trainer(z)
        return Moments(mean, torch.zeros_like(mean), self.noise)
