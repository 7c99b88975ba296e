"""Stochastic training of a GP with kernel φ(x)ᵀφ(x'): mini-batch steps on features, weights and noise.

    before an epoch, where a method or the weights ask for it: Z = φ(X) without graph, its sums G, c, q
    for every mini-batch: φ with graph, an estimate of ∂l/∂φ, ∂l/∂w, ∂l/∂σ² in closed form (Shoham & Avron, section 3),
        one backward pass through φ, one step on all, of Adam by default

What a step puts in the place of log|F| is the method's: `finite_head.Scgd`, and those of `streamgp.papers.finite_rkhs`.
Losses are per row, l/N: rates and clipping do not depend on N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.objectives.evidence import CHUNK
from streamgp.objectives.finite_evidence import Statistics, best_weights, statistics
from streamgp.state import Declared, Nested, Value
from streamgp.training.adam import Adam
from streamgp.training.descent import batches_of, minibatches
from streamgp.training.finite_head import Estimator, FiniteHead, HeldInverse, Scgd

CLIP = 10.0
"""Largest norm of a gradient of the loss per row, over all parameters: only first steps and outliers reach it."""
WARMUP, LAST = 0.02, 0.01
"""Part of the epochs in which the rates rise from 0 at first, and of the rates that is left at the end."""
LOG_2PI = math.log(2.0 * math.pi)


class FiniteDescentConfig(BaseModel):
    """How features, weights and noise are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch: int = Field(64, ge=1, description="rows of a mini-batch, at most; an epoch is cut into even parts")
    rate: float = Field(
        5e-3, ge=0, le=10, description="step size for the features, before it falls by half a cosine over all epochs"
    )
    weights_rate: float | None = Field(
        None, ge=0, le=10, description="step size for the weights w; none: a fifth of that of the features"
    )
    noise_rate: float = Field(
        3e-3, ge=0, le=10, description="step size for log noise, which does not fall: it follows features at rest"
    )
    b: float = Field(0.1, gt=0, le=1, description="scgd: weight of a mini-batch in the average; the paper's is 0.9")


class StepRule(Protocol):
    """Steps on tensors that others own, `training.adam.Adam` for one. Stateful."""

    def step(self, gradients: Sequence[Tensor], rate: float) -> None: ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]: ...

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None: ...


class FiniteDescent(Declared):
    """Trains features and a head in place. Stateful: continues bit for bit from `state`.

    The parameters of both, and the generator, belong to their owner and are not in the state. Memory beyond z and y:
    O(d²), one mini-batch or 4096 rows with graph.

    Args:
        features: φ; features(z) -> (n, d), differentiable; float32 will do, factorisations are in float64. Parameters
            that ask for a gradient are of one dtype; there may be none.
        head: w and σ².
        config: see there.
        epochs: that the rates fall over; 0: they do not fall.
        alone: step on the features alone, with w solved for at the beginning of each epoch.
        estimator: what stands for log|F|; where none is given SCGD, or with `alone` P = F⁻¹, held for an epoch.
        optimiser: what takes the steps on some tensors.

    Attributes:
        epochs: done so far; the schedules' clock.
        healthy: whether every step of the last call had finite features and gradients; the others were left out.

    Example:
        >>> z = torch.linspace(-1, 1, 256, dtype=FLOAT)[:, None]
        >>> _ = torch.manual_seed(0)
        >>> net = nn.Sequential(nn.Linear(1, 8, dtype=FLOAT), nn.Tanh())
        >>> descent = FiniteDescent(net, FiniteHead(8, 1), FiniteDescentConfig(rate=0.02))
        >>> losses = [descent.epoch(z, torch.sin(4 * z), torch.Generator().manual_seed(0)) for _ in range(30)]
        >>> losses[-1] < losses[0] - 1, descent.healthy
        (True, True)
    """

    STATE = (Value("epochs", int), Value("since", int), Value("healthy", bool), Nested(of="_parts"))

    NOT_STATE: ClassVar[Mapping[str, str]] = {
        "own": "they belong to the features",
        "span": "said again before an epoch",
    }

    def __init__(
        self,
        features: nn.Module,
        head: FiniteHead,
        config: FiniteDescentConfig,
        epochs: int = 0,
        alone: bool = False,
        estimator: Estimator | None = None,
        optimiser: Callable[[Sequence[Tensor]], StepRule] = Adam,
    ) -> None:
        self.features, self.head, self.config = features, head, config
        self.alone = alone
        self.estimator = estimator or (HeldInverse() if alone else Scgd(config.b))
        self.own = [p for p in features.parameters() if p.requires_grad]
        named = {"features": self.own, "weights": [head.weights], "log_noise": [head.log_noise]}
        self.groups = {name: optimiser(parts) for name, parts in named.items() if parts}
        self.span, self.epochs, self.since = epochs, 0, 0
        self.healthy = True

    def epoch(self, z: Tensor, y: Tensor, generator: Generator) -> float:
        """One pass over all rows.

        Args:
            z: (N, …) what the features take.
            y: (N, T) standardised targets, finite.
            generator: of the mini-batches; nothing else is random.

        Returns:
            mean over the steps of their estimate of ½(l/N + T log 2π): NLML per row in nats, summed over columns,
            where w is at its best and the method unbiased; NaN without rows.

        Raises:
            NotPositiveDefinite: a factorisation failed.
        """
        count = batches_of(len(y), self.config.batch)
        self.since = 0
        loss = self.steps(z, y, count, generator)
        self.epochs += 1
        return loss

    def steps(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> float:
        """`count` mini-batches; not an epoch.

        Mini-batches run through one permutation of the rows after another. All rows are looked at (`Estimator.begin`, w
        solved) before the first step ever, and again once the steps since make an epoch. Arguments, value and errors
        are those of `epoch`.
        """
        if not len(y) or not count:
            return float("nan")
        whole = batches_of(len(y), self.config.batch)
        total, taken = torch.zeros((), dtype=FLOAT, device=z.device), 0
        drawn = self._drawn(z, y, count, generator)
        others = self._drawn(z, y, count, generator) if self.estimator.ascends else None
        for place in range(count):
            if self.since % whole == 0:
                self._look(z, y)
            self.since += 1
            t = self.epochs + min(place / whole, 1.0)
            value = self._step(*next(drawn), len(y), t)
            if value is not None:
                total, taken = total.add_(value), taken + 1
            if others is not None:
                self._ascend(next(others)[0], len(y))
        self.healthy = taken == count
        return 0.5 * (float(total) / taken + y.shape[1] * LOG_2PI) if taken else float("nan")

    def statistics(self, z: Tensor, y: Tensor) -> Statistics:
        """Sums over all rows at the present features, 4096 rows at a time and without graph."""
        with torch.no_grad():
            pairs = zip(z.split(CHUNK), y.split(CHUNK), strict=True)
            return statistics((self.features(some), targets) for some, targets in pairs)

    def _parts(self) -> dict[str, StepRule | Estimator]:
        return {**self.groups, "estimator": self.estimator}

    def _look(self, z: Tensor, y: Tensor) -> None:
        """All rows, where somebody asks for them."""
        if not (self.alone or self.estimator.looks):
            return
        data = self.statistics(z, y)
        if self.alone:
            with torch.no_grad():
                self.head.weights.copy_(best_weights(data, self.head.noise))
        if self.estimator.looks:
            self.estimator.begin(data, self.head)

    def _step(self, z: Tensor, y: Tensor, total: int, t: float) -> Tensor | None:
        """One mini-batch; its l̂/N, or None where it was left out."""
        phi = self.features(z)
        if not _finite(phi):
            return None
        found = self.estimator.estimate(phi.detach(), y, self.head, total)
        own = self._through(phi, found.phi)
        gradients = {"features": own, "weights": [found.weights], "log_noise": [found.log_noise]}
        norm = math.hypot(*(float(part.norm()) for parts in gradients.values() for part in parts))
        if not math.isfinite(norm):
            return None
        for (name, parts), rate in zip(gradients.items(), self.rates(t), strict=True):
            if rate and name in self.groups:
                self.groups[name].step(parts if norm <= CLIP else [part * (CLIP / norm) for part in parts], rate)
        return found.value

    def _through(self, phi: Tensor, gradient: Tensor) -> list[Tensor]:
        """Gradients in the features' parameters from that in φ (n, d); zeros where one is not used."""
        if not self.own or not phi.requires_grad:
            return [torch.zeros_like(p) for p in self.own]
        found = torch.autograd.grad(phi, self.own, gradient.to(phi.dtype), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.own, found, strict=True)]

    @torch.no_grad()
    def _ascend(self, z: Tensor, total: int) -> None:
        phi = self.features(z)
        if _finite(phi):
            self.estimator.ascend(phi, self.head, total)

    def rates(self, t: float) -> tuple[float, float, float]:
        """Of features, weights and noise, t epochs after the start."""
        weights = 0.2 * self.config.rate if self.config.weights_rate is None else self.config.weights_rate
        part = 1.0
        if self.span:
            warm = min(t / (WARMUP * self.span) + 1e-3, 1.0)
            part = warm * (LAST + (1.0 - LAST) * 0.5 * (1.0 + math.cos(math.pi * min(t / self.span, 1.0))))
        return (
            part * self.config.rate,
            0.0 if self.alone else part * weights,
            0.0 if self.alone else self.config.noise_rate,
        )

    def _drawn(self, z: Tensor, y: Tensor, count: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Mini-batches of rows; those of 4096 rows are gathered at a time, which takes a tenth of the time."""
        n, batch = len(y), self.config.batch
        rows = minibatches(n, batch, count, generator)
        while some := list(islice(rows, max(CHUNK // batch, 1))):
            sizes, order = [len(part) for part in some], torch.cat(some).to(z.device)
            yield from zip(z[order].split(sizes), y[order].split(sizes), strict=True)


def _finite(phi: Tensor) -> bool:
    """Whether features can go into sums of squares."""
    return math.isfinite(float(phi.detach().norm()))
