"""Bayesian linear regressions of K series on the features of a kernel and basis that they share.

Most windows are learned in the round of their forecast: of N rows one after another, all but the first `horizon` that
are learned were forecast just before, by the same kernel, and their features are not computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Shape
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.posterior import COMPARED, MANY, NOVEL, STRANGE
from streamgp.models.svdgp.shared import SharedKernels
from streamgp.online.posterior import Arrival, Look, Posterior, Rows, Units
from streamgp.online.stacked import Stacked
from streamgp.online.standardised import Standardised
from streamgp.regression import additive

ROOT = "posterior.regression.root"
"""Of the states of series: large, and rarely needed to learn."""


class Seen(NamedTuple):
    """Features of the windows z (K, N, W) of these series (K,), as of `SharedKernels.features`."""

    codes: Tensor
    z: Tensor
    phi: Tensor
    gap: Tensor


class SharedPosterior(Posterior):
    """See the module.

    Args:
        config: of each.
        shape: of the windows.
        shared: kernels and bases, by generation.

    Attributes:
        series: the states of all series.
        codes: (K,) of those whose tensors this has; they are of one generation.
        standardised: what standardises them.
        seen: what was forecast last, until something is learned.
    """

    many = True
    NOT_STATE: ClassVar = {"losses": "of what was learned last", "well": "likewise"}

    def __init__(self, config: Config, shape: Shape, shared: SharedKernels) -> None:
        super().__init__()
        self.config, self.shape, self.shared = config, shape, shared
        self.regression = nn.Module()
        for name, part in additive.fresh(shared.size, shape.columns).items():
            self.regression.register_buffer(name, part)
        self.generation: Tensor
        self.novelty: Tensor  # (K,) as of `SvdgpPosterior`
        self.novel: Tensor
        self.since: Tensor
        for name, value in {"generation": -1.0, "novelty": 0.0, "novel": 0.0, "since": 0.0}.items():
            self.register_buffer(name, torch.full((), value, dtype=FLOAT))
        self.series: Stacked
        self.codes: Tensor
        self.standardised: Standardised
        self.seen: list[Seen] = []
        self.losses = self.well = torch.zeros(0, dtype=FLOAT)

    @property
    def held(self) -> additive.Held:
        """The tensors of the regressions."""
        return cast("additive.Held", self.regression._buffers)

    @property
    def number(self) -> int:
        """The generation of the series."""
        return int(self.generation[0])

    @property
    def size(self) -> int:
        return len(self.shared.kernels[self.number].points)

    @property
    def weight(self) -> Tensor:
        """(K, 1)"""
        return self.held["weight"][:, None]

    @property
    def healthy(self) -> bool:
        return bool(self.well.all())

    def loss(self) -> float:
        return float(self.losses.mean())

    def judged(self) -> list[tuple[float, bool]]:
        return list(zip(self.losses.tolist(), self.well.tolist(), strict=True))

    @property
    def settled(self) -> Tensor:
        """(K,) whether nothing is forgotten, and the rows of a series come from where those before them came."""
        return (self.novelty > 0) & (self.novel <= STRANGE * self.since)

    def interval(self, rebuild: int, seen: Any) -> Any:
        return rebuild * torch.where(self.settled, (seen / self.config.reservoir).clamp(min=1.0), 1.0)

    def look(self, z: Tensor) -> Look:
        phi, gap = self.shared.features(self.number, z)
        self.seen.append(Seen(self.codes, z, phi, gap))
        look = self._looked(z, phi, gap)
        return look._replace(latent=look.latent + _known(self.held["root"], phi))

    def glance(self, z: Tensor) -> Look:
        """Without what the basis does not know of its own part."""
        return self._looked(z, *self._features(z))

    def _looked(self, z: Tensor, phi: Tensor, gap: Tensor) -> Look:
        return Look(z, (phi, gap), phi @ self.held["coefficients"], gap[..., None], self.held["residual"][:, None])

    def measured(self, look: Look, rows: Tensor) -> Look:
        """Of all rows of a series where it is asked of one."""
        some = rows.any(1)
        if not bool(some.any()):
            return look
        latent, root = look.latent.clone(), self.series.take(self.codes[some], (ROOT,))[ROOT]
        latent[some] += _known(root, look.features[0][some])
        return look._replace(latent=latent)

    def means(self, look: Look, rows: slice) -> Tensor:
        found: Tensor = look.features[0][:, rows] @ self.held["coefficients"]
        return found

    def absorb(self, look: Look, arrival: Arrival) -> str:
        there, time = torch.isfinite(arrival.y).any(2), self.config.forgetting(self.shape) or math.inf
        phi, gap = look.features
        count = there.sum(1).to(FLOAT)
        self.since = self.since + count
        self.novel = self.novel + (there & (gap > self.novelty[:, None])).sum(1)
        self._learn(phi, arrival.y, there.to(FLOAT), torch.exp(-count / time))
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        """Learn these rows on the newest kernel and basis."""
        fresh = additive.fresh(self.shared.size, self.shape.columns)
        for name in ("outer", "moment", "square", "weight", "coefficients"):
            self.held[name] = fresh[name].to(rows.z).repeat(len(rows.y), *[1] * fresh[name].dim())
        self.generation = torch.full_like(rows.weight[:, 0], self.shared.newest)
        phi, gap = self.shared.features(self.number, rows.z)
        self.novel = self.since = torch.zeros_like(self.generation)
        self.novelty = self.novel if self.config.forgetting(self.shape) else self._novelty(gap, rows.weight > 0)
        self._learn(phi, rows.filled, rows.weight, torch.ones_like(self.generation))
        return ""

    def _novelty(self, gap: Tensor, there: Tensor) -> Tensor:
        """(K,) the unexplained variance from which on a row is novel; 0 where the rows (K, N) are too few to say."""
        every = -(-gap.shape[1] // COMPARED)
        found = torch.where(there, gap, torch.nan)[:, ::every].nanquantile(NOVEL, 1)
        return torch.where(there.sum(1) >= MANY * self.config.basis, found, 0.0)

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """Never asked for: a fleet fits series by what `StreamModel.begin` and `learn` do.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("a fleet has no epochs of its own")

    def snapshot(self) -> Callable[[], None]:
        """Nothing: the states of all series have what was."""
        return lambda: None

    def _learn(self, phi: Tensor, y: Tensor, weight: Tensor, kept: Tensor) -> None:
        """Arguments as of `additive.absorb`."""
        held, noise = self.held, self.shared.kernels[self.number].noise
        prior = self.shared.mean(self.number, self.standardised)
        additive.absorb(held, phi, y, weight, kept)
        held["root"], failed = additive.root(held["outer"], noise)
        additive.settle(held, noise, mean=prior)
        self.losses = additive.loss(held, noise, mean=prior)
        self.well = (failed == 0) & additive.finite(held)

    def _features(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """As of `SharedKernels.features`; of windows that were forecast just before they are known."""
        for seen in self.seen:
            known = seen.z.shape[1] - self.shape.horizon
            more = z.shape[1] - known
            if known <= 0 or more < 0 or not torch.equal(seen.codes, self.codes):
                continue
            if torch.equal(z[:, more:], seen.z[:, :known]):
                phi, gap = self.shared.features(self.number, z[:, :more])
                return torch.cat([phi, seen.phi[:, :known]], 1), torch.cat([gap, seen.gap[:, :known]], 1)
        return self.shared.features(self.number, z)


def _known(root: Tensor, phi: Tensor) -> Tensor:
    """(K, N, 1) φᵀA⁻¹φ. root: (K, P, P) the factor of A; phi: (K, N, P)"""
    half: Tensor = torch.linalg.solve_triangular(root, phi.mT, upper=False)
    return half.square().sum(1)[..., None]
