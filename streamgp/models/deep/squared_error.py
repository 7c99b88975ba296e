"""A plain net: an encoder and a linear head, trained on squared error. The GPs' baseline, and their pretraining."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT
from streamgp.encoders import Dropout, Encoder
from streamgp.state import Declared, Value, Whole
from streamgp.training.descent import Descent, DescentConfig, batches_of, minibatches
from streamgp.training.shared_gradients import Sharing, here

RIDGE = 1e-9
"""Of a latent's variance, in a head's regression."""


class SquaredErrorConfig(DescentConfig):
    """How a plain net is trained."""

    rate: float = Field(1e-2, ge=0, le=1, description="Adam's step size for encoder and head, before the schedule")
    seed: int = Field(0, ge=0, description="of the head's initial weights")


class LinearHead(nn.Linear):
    """A linear map of latents to T columns in float64, from weights N(0, 1/d) that the seed alone decides.

    Example:
        >>> LinearHead(3, 2, seed=0)(torch.zeros(5, 3, dtype=FLOAT)).shape
        torch.Size([5, 2])
    """

    def __init__(self, width: int, columns: int, seed: int) -> None:
        super().__init__(width, columns, dtype=FLOAT)
        with torch.no_grad():
            self.weight.normal_(0.0, max(width, 1) ** -0.5, generator=torch.Generator().manual_seed(seed))
            self.bias.zero_()

    @torch.no_grad()
    def regress(self, h: Tensor, y: Tensor) -> None:
        """Become the least-squares map of latents h (N, d) to finite targets y (N, T); a faint ridge, of 1e-9 of each
        latent's variance, where latents are collinear.

        Example:
            >>> h = torch.tensor([[0.0], [1.0], [2.0]], dtype=FLOAT)
            >>> head = LinearHead(1, 1, seed=0)
            >>> head.regress(h, 3 * h + 1)
            >>> [round(value, 6) for value in (head.weight.item(), head.bias.item())]
            [3.0, 1.0]
        """
        centre, mean = h.mean(0), y.mean(0)
        gram = (h - centre).T @ (h - centre)
        ridge = torch.diag(RIDGE * gram.diagonal() + torch.finfo(FLOAT).tiny)
        self.weight.copy_(torch.linalg.solve(gram + ridge, (h - centre).T @ (y - mean)).T)
        self.bias.copy_(mean - self.weight @ centre)


class SquaredError(Declared):
    """Minimises the mean of (y − head(φ_W(x)))² over what was observed, in place. Stateful, bit for bit.

    The parameters of encoder and head, and the generator, belong to their owner and are not in the state.

    Args:
        encoder: φ_W; it may have no parameters.
        columns: T.
        config: see there.
        epochs: that a cosine schedule spans; 0: it does not fall.
        head: to go on with; none makes a new one from the Config's seed.

    Attributes:
        head: the linear map of the encoder's latents.
        sharing: how the gradient of a mini-batch is computed.
        epochs: done so far; the schedules' clock.
        healthy: whether every step of the last epoch had a finite gradient; the others were left out.

    Example:
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders import Layout
        >>> z = torch.linspace(-1, 1, 64, dtype=FLOAT)[:, None]
        >>> encoder = identity.build(identity.Config(), Layout(1, 1))
        >>> net = SquaredError(encoder, 1, SquaredErrorConfig(rate=0.1, batch=16))
        >>> losses = [net.epoch(z, 2 * z, torch.Generator().manual_seed(0)) for _ in range(20)]
        >>> losses[-1] < 0.01 * losses[0]
        True
    """

    STATE = (Value("epochs", int), Value("healthy", bool), Whole("descent", under="descent"))

    def __init__(
        self,
        encoder: Encoder,
        columns: int,
        config: SquaredErrorConfig,
        epochs: int = 0,
        head: LinearHead | None = None,
    ) -> None:
        self.encoder, self.config = encoder, config
        self.head = LinearHead(encoder.width, columns, config.seed) if head is None else head
        self.net = nn.ModuleDict({"encoder": encoder, "head": self.head})
        self.descent = Descent(self.net, config.rate, config, epochs)
        self.sharing: Sharing = here
        self.epochs = 0
        self.healthy = True

    @property
    def span(self) -> int:
        """Epochs that a cosine spans."""
        return self.descent.span

    @span.setter
    def span(self, epochs: int) -> None:
        self.descent.span = epochs

    def __call__(self, z: Tensor) -> Tensor:
        """(N, width) -> (N, T), differentiable."""
        out: Tensor = self.head(self.encoder(z))
        return out

    def epoch(self, z: Tensor, y: Tensor, generator: Generator) -> float:
        """One pass over all rows in mini-batches.

        Args:
            z: (N, width)
            y: (N, T); NaN is left out.
            generator: of the mini-batches and of dropout.

        Returns:
            mean squared error of the observed values, as the mini-batches saw it before their steps; NaN without any.
        """
        loss = self.steps(z, y, batches_of(len(y), self.config.batch), generator)
        self.epochs += 1
        return loss

    def steps(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> float:
        """`count` mini-batches, one permutation of the rows after another; as `epoch`, but not counted as one."""
        before, whole = self.descent.skipped, batches_of(len(y), self.config.batch)
        total, seen = 0.0, 0
        drawn = minibatches(len(y), self.config.batch, count, generator)
        for place, rows in enumerate(part.to(z.device) for part in drawn):
            some = int(torch.isfinite(y[rows]).sum())
            if not some:
                continue
            loss, *gradients = self.sharing(self.net, squared_error, (z, y), rows, some, generator)
            self.descent.descend(gradients, self.epochs + min(place / whole, 1.0))
            total, seen = total + float(loss) * some, seen + some
        self.healthy = before == self.descent.skipped
        return total / seen if seen else float("nan")


def squared_error(net: nn.Module, rows: Sequence[Tensor], count: int, generator: Generator) -> Tensor:
    """() Σ (y − head(φ_W(x)))² / count over what was observed of rows z (N, width), y (N, T); a `Loss`."""
    assert isinstance(net, nn.ModuleDict)
    z, y = rows
    known = torch.isfinite(y)
    error = net["head"](net["encoder"](z, Dropout(generator))) - torch.where(known, y, 0.0)
    return torch.where(known, error, 0.0).square().sum() / count
