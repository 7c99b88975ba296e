"""Stochastic training of a GP with kernel φ(x)ᵀφ(x'): mini-batch steps on features, weights and noise.

    before an epoch, where a method or the weights ask for it: Z = φ(X) without graph, its sums G, c, q
    for every mini-batch: φ with graph, an estimate of ∂l/∂φ, ∂l/∂w, ∂l/∂σ² in closed form (Shoham & Avron, section 3),
        one backward pass through φ, one step of Adam on all

What a step puts in the place of log|F| is the method's (`scgd`, `minimax`, `ldb`, `bsgd`, or nothing at all, a
control). `full` takes exact gradients over all rows, a chunk at a time. Losses are per row, l/N: rates and clipping do
not depend on N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Json
from streamgp.objectives.evidence import CHUNK
from streamgp.objectives.finite_evidence import Statistics, best_weights, statistics
from streamgp.optim._finite_steps import FiniteSteps
from streamgp.optim.bsgd import Bsgd
from streamgp.optim.descent import DescentConfig, batches_of, minibatches, rate, recent_batches
from streamgp.optim.finite_head import Estimator, FiniteHead, NoDeterminant
from streamgp.optim.ldb import Ldb, LdbConfig
from streamgp.optim.minimax import Minimax, MinimaxConfig
from streamgp.optim.scgd import Scgd, ScgdConfig

LOG_2PI = math.log(2.0 * math.pi)


class FiniteDescentConfig(DescentConfig):
    """How features, weights and noise are trained."""

    batch: int = Field(64, ge=1, description="rows of a mini-batch, at most; an epoch is cut into even parts")
    method: Literal["scgd", "ldb", "minimax", "bsgd", "full", "no_determinant"] = Field(
        "scgd",
        description="what stands for log|F| in a mini-batch: scgd (moving average), ldb (variational), minimax "
        "(penalty), bsgd (the mini-batch by itself, biased), no_determinant (nothing: a control); full takes all rows",
    )
    optimiser: Literal["adam", "adadelta"] = Field("adam", description="of features, weights and noise")
    rate: float = Field(5e-3, ge=0, le=10, description="step size for the features, before the schedule")
    weights_rate: float | None = Field(
        None, ge=0, le=10, description="step size for the weights w; none: a fifth of that of the features"
    )
    noise_rate: float | None = Field(
        None,
        ge=0,
        le=10,
        description="step size for the logarithm of the noise, without schedule; none: 0.003 with adam, that of the "
        "features with adadelta",
    )
    warmup: float = Field(
        0.02, ge=0, le=1, description="part of the epochs a schedule spans in which the rates rise from 0 at first"
    )
    solve: int = Field(
        0,
        ge=0,
        le=10_000,
        description="epochs after which w is solved for, from all rows; 0 never, which learns faster: w then has "
        "gradient steps alone",
    )
    full_steps: int = Field(1, ge=1, le=10_000, description="steps an epoch of method full")
    scgd: ScgdConfig = Field(ScgdConfig(), description="options of method scgd")
    ldb: LdbConfig = Field(LdbConfig(), description="options of method ldb")
    minimax: MinimaxConfig = Field(MinimaxConfig(), description="options of method minimax")


def estimator(config: FiniteDescentConfig) -> Estimator:
    """The method that a Config names; full is LDB with P = F⁻¹ held, which is exact over all rows.

    Example:
        >>> type(estimator(FiniteDescentConfig(method="bsgd"))).__name__
        'Bsgd'
    """
    if config.method == "scgd":
        return Scgd(config.scgd, config.batch)
    if config.method == "minimax":
        return Minimax(config.minimax)
    if config.method == "bsgd":
        return Bsgd()
    if config.method == "no_determinant":
        return NoDeterminant()
    return Ldb(config.ldb if config.method == "ldb" else LdbConfig(rate=0.0))


class FiniteDescent:
    """Trains features and a head in place. Stateful: goes on bit for bit from `state`.

    The parameters of both, and the generator, belong to their owner and are not in the state. Memory beyond z and y:
    O(d²), one mini-batch or 4096 rows with graph.

    Args:
        features: φ; features(z) -> (n, d), differentiable; float32 will do, factorisations are in float64.
        head: w and σ².
        config: see there.
        epochs: that a cosine schedule spans; 0: it does not fall.

    Attributes:
        epochs: done so far; the schedules' clock.
        healthy: whether every step of the last call had finite features and gradients; the others were left out.

    Example:
        >>> z = torch.linspace(-1, 1, 256, dtype=FLOAT)[:, None]
        >>> net = nn.Sequential(nn.Linear(1, 8, dtype=FLOAT), nn.Tanh())
        >>> descent = FiniteDescent(net, FiniteHead(8, 1), FiniteDescentConfig(rate=0.02))
        >>> losses = [descent.epoch(z, torch.sin(4 * z), torch.Generator().manual_seed(0)) for _ in range(30)]
        >>> losses[-1] < losses[0] - 1, descent.healthy
        (True, True)
    """

    def __init__(self, features: nn.Module, head: FiniteHead, config: FiniteDescentConfig, epochs: int = 0) -> None:
        self.features, self.head, self.config = features, head, config
        self.estimator = estimator(config)
        self.descent = FiniteSteps(features, head, config, config.optimiser)
        self.span, self.epochs, self.since = epochs, 0, 0
        self.healthy = True

    def epoch(self, z: Tensor, y: Tensor, generator: Generator) -> float:
        """One pass over all rows, or `full_steps` steps with all of them.

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
        count = self.config.full_steps if self.config.method == "full" else batches_of(len(y), self.config.batch)
        self.since = 0
        loss = self.steps(z, y, count, generator)
        self.epochs += 1
        return loss

    def steps(self, z: Tensor, y: Tensor, count: int, generator: Generator, recent: int = 0) -> float:
        """`count` mini-batches (steps with all rows for full); not an epoch.

        Mini-batches run through one permutation of the rows after another, or, with `recent`, draw half of their rows
        from the last so many. All rows are looked at (`Estimator.begin`, w solved) before the first step ever, and
        again once the steps since make an epoch. Arguments, value and errors are those of `epoch`.
        """
        if not len(y) or not count:
            return float("nan")
        before, whole = self.descent.skipped, batches_of(len(y), self.config.batch)
        total, taken = torch.zeros((), dtype=FLOAT, device=z.device), 0
        full = self.config.method == "full"
        drawn = self._drawn(z, y, count, generator, recent)
        others = self._drawn(z, y, count, generator, recent) if self.estimator.ascends else None
        for place in range(count):
            if self.since % whole == 0 or full:
                self._look(z, y)
            self.since += 1
            t = self.epochs + min(place / whole, 1.0)
            value = self._whole(z, y, t) if full else self._step(*next(drawn), len(y), t)
            if value is not None:
                total, taken = total.add_(value), taken + 1
            if others is not None:
                self._ascend(next(others)[0], len(y))
        self.healthy = before == self.descent.skipped
        return 0.5 * (float(total) / taken + y.shape[1] * LOG_2PI) if taken else float("nan")

    def statistics(self, z: Tensor, y: Tensor) -> Statistics:
        """Sums over all rows at the present features, 4096 rows at a time and without graph."""
        with torch.no_grad():
            pairs = zip(z.split(CHUNK), y.split(CHUNK), strict=True)
            return statistics((self.features(some), targets) for some, targets in pairs)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors: dict[str, Tensor] = {}
        rest: dict[str, Json] = {"epochs": self.epochs, "since": self.since, "healthy": self.healthy}
        for name, part in (("descent", self.descent), ("estimator", self.estimator)):
            inner, rest[name] = part.state()
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.epochs, self.since = int(str(rest["epochs"])), int(str(rest["since"]))
        self.healthy = bool(rest["healthy"])
        for name, part in (("descent", self.descent), ("estimator", self.estimator)):
            inner = rest[name]
            assert isinstance(inner, dict)
            part.restore({k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}, inner)

    def _look(self, z: Tensor, y: Tensor) -> None:
        """All rows, where somebody asks for them."""
        solve = bool(self.config.solve) and self.epochs % self.config.solve == 0
        if solve or self.estimator.looks:
            data = self.statistics(z, y)
            if solve:
                with torch.no_grad():
                    self.head.weights.copy_(best_weights(data, self.head.noise))
            self.estimator.begin(data, self.head)

    def _step(self, z: Tensor, y: Tensor, total: int, t: float) -> Tensor | None:
        """One mini-batch; its l̂/N, or None where it was left out."""
        phi = self.features(z)
        if not _finite(phi):
            self.descent.skipped += 1
            return None
        found = self.estimator.estimate(phi.detach(), y, self.head, total)
        own = self.descent.through(phi, found.phi)
        return found.value if self.descent.step(own, found.weights, found.log_noise, self.rates(t)) else None

    def _whole(self, z: Tensor, y: Tensor, t: float) -> Tensor | None:
        """One step with all rows: estimates of chunks at P = F⁻¹, in proportion to their rows."""
        value = torch.zeros((), dtype=FLOAT, device=z.device)
        own = [torch.zeros_like(p) for p in self.descent.own]
        weights, log_noise = torch.zeros_like(self.head.weights), torch.zeros_like(self.head.log_noise)
        for some, targets in zip(z.split(CHUNK), y.split(CHUNK), strict=True):
            phi = self.features(some)
            found, part = self.estimator.estimate(phi.detach(), targets, self.head, len(y)), len(targets) / len(y)
            more = self.descent.through(phi, part * found.phi)
            own = [done + some for done, some in zip(own, more, strict=True)]
            value, weights = value + part * found.value, weights + part * found.weights
            log_noise = log_noise + part * found.log_noise
        return value if self.descent.step(own, weights, log_noise, self.rates(t)) else None

    @torch.no_grad()
    def _ascend(self, z: Tensor, total: int) -> None:
        phi = self.features(z)
        if _finite(phi):
            self.estimator.ascend(phi, self.head, total)

    def rates(self, t: float) -> tuple[float, float, float]:
        """Of features, weights and noise, t epochs after the start."""
        config = self.config
        weights = 0.2 * config.rate if config.weights_rate is None else config.weights_rate
        warm = min(t / (config.warmup * self.span) + 1e-3, 1.0) if config.warmup * self.span else 1.0
        falling = [warm * rate(config, initial, t, self.span) for initial in (config.rate, weights)]
        usual = 3e-3 if config.optimiser == "adam" else config.rate
        return falling[0], falling[1], usual if config.noise_rate is None else config.noise_rate

    def _drawn(
        self, z: Tensor, y: Tensor, count: int, generator: Generator, recent: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Mini-batches of rows; those of 4096 rows are gathered at a time, which takes a tenth of the time."""
        n, batch = len(y), self.config.batch
        rows = recent_batches(n, recent, batch, count, generator) if recent else minibatches(n, batch, count, generator)
        while some := list(islice(rows, max(CHUNK // batch, 1))):
            sizes, order = [len(part) for part in some], torch.cat(some).to(z.device)
            yield from zip(z[order].split(sizes), y[order].split(sizes), strict=True)


def _finite(phi: Tensor) -> bool:
    """Whether features can go into sums of squares."""
    return math.isfinite(float(phi.detach().norm()))
