"""The prior that the regression of all series gives to the linear part of each; see `pooled`.

With φ_E = √(σ²/κ) L⁻¹(z, 1), LLᵀ = G, the prior of the weights of a series is N(m, I): m is √(κ/σ²) Lᵀ times the
pooled coefficients in its own units, and 0 for the basis functions. m enters only where w is found
(`regression.additive`): each update of a series has the newest pooled coefficients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.errors import UsageError
from streamgp.evidence.search import thinned
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.pooled import PooledRegression, strength, whitened, with_one
from streamgp.online.reservoir import State
from streamgp.online.stacked import Packed
from streamgp.online.stacked_units import StackedUnits


class PooledPrior:
    """What the linear parts of a panel's models share; Stateful.

    Args:
        config: of each.
        shape: of the windows.
        units: of the series.
        device: where the sums live.

    Raises:
        UsageError: a window has more columns than the basis has functions.
    """

    def __init__(self, config: Config, shape: Shape, units: StackedUnits, device: torch.device) -> None:
        self.config, self.shape, self.units = config, shape, units
        self.width = len(units.inputs.groups)
        if self.width > config.basis:
            hint = f"raise basis to {self.width}, or leave pooled out"
            raise UsageError(f"pooled=true with {self.width} columns a window needs as large a basis", hint=hint)
        self._regression = PooledRegression(self.width, shape.columns, device)
        self._strength: dict[int, float] = {}  # generation -> κ
        self._root: dict[int, Tensor] = {}  # generation -> L
        self._reached = 0, 0

    def begin(self) -> None:
        """See `Timed`."""
        self._regression.begin()

    def reach(self, together: int, newest: int) -> None:
        """See `Timed`."""
        self._reached = together, newest

    def add(self, packed: Packed, held: State, x: Inputs, truth: Tensor, series: int) -> None:
        """Give windows of some series to the regression of all, each in the units of its series.

        Args:
            packed: the windows.
            held: states of their series.
            x: of the batch.
            truth: (K, N, T) NaN = not observed.
            series: S that there are; the regression forgets as each of them does.
        """
        own = x.rows(packed.rows.flatten())
        unit, offset = self._scale(held)
        z = self.units.standardised(held, own).flatten(0, 1)
        t = (truth - self.units.reference(own).unflatten(0, packed.rows.shape) - offset) / unit
        time = self.config.forgetting(self.shape)
        kept = 1.0 if time is None else math.exp(-float(packed.counts.sum()) / (time * series))
        self._regression.add(z, t.flatten(0, 1), packed.there.flatten().to(FLOAT), kept, self._reached[1])

    def use(self) -> None:
        """Use what was added, as far as all series that are learned now have come."""
        self._regression.reach(self._reached[0])

    def rest(self, held: State, z: Tensor, y: Tensor) -> Tensor:
        """(N, T) what the regression leaves of the truths of one series. z: (N, W), y: (N, T), both standardised."""
        expected = self._expected(held)
        return y if expected is None else y - with_one(z) @ expected[0]

    def estimate(self, generation: int, rests: list[tuple[Tensor, Tensor]]) -> None:
        """Estimate κ of a generation. rests: windows and `rest` of a sample of series."""
        root, rows = self._regression.spread()
        thin = [thinned(len(z), self.shape.horizon, len(z), z.device) for z, _ in rests]
        kappa = strength([(z[some], rest[some]) for (z, rest), some in zip(rests, thin, strict=True)], root)
        self._strength[generation] = self.config.tempering(self.shape) / (1.0 / kappa + 1.0 / rows)
        self._root[generation] = root

    def forget(self, generation: int) -> None:
        """Nobody uses a generation any more."""
        del self._strength[generation], self._root[generation]

    def weaken(self, generation: int, phi: Tensor) -> Tensor:
        """(N, E + m) φ of which the linear part departs from the prior as little as κ says; changed in place."""
        linear = slice(self.width + 1)
        phi[:, linear] = whitened(self._root[generation], phi[:, linear]) * self._strength[generation] ** -0.5
        return phi

    def mean(self, held: State, generation: int, noise: Tensor) -> Tensor | None:
        """(K, P, T) prior means of the weights of series; None where they are 0.

        Args:
            held: their states.
            generation: of them.
            noise: () σ² of the updates.
        """
        expected = self._expected(held)
        if expected is None:
            return None
        own = (self._root[generation].T @ expected) * (self._strength[generation] / noise).sqrt()
        return torch.nn.functional.pad(own, (0, 0, 0, held["outer"].shape[1] - own.shape[1]))

    def _expected(self, held: State) -> Tensor | None:
        """(K, E, T) the pooled coefficients in the units of each series; None where there are none."""
        pooled = self._regression.coefficients
        if pooled is None:
            return None
        unit, offset = self._scale(held)
        output = held["output.scale"][:, None]
        found = pooled * (unit / output)
        found[:, -1:] += (offset - held["output.location"][:, None]) / output
        return found

    def _scale(self, held: State) -> tuple[Tensor, Tensor]:
        """(K, 1, T) units of the regression of all, and what is taken off before: those of the target's channel."""
        if self.shape.lags:
            unit = held["input.scale"][:, None, : self.shape.outputs].repeat_interleave(self.shape.horizon, 2)
            return unit, torch.zeros_like(unit)
        return held["output.scale"][:, None], held["output.location"][:, None]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self._regression.state()
        tensors |= {f"root.{one}": root for one, root in self._root.items()}
        return tensors, rest | {"strength": {str(one): kappa for one, kappa in self._strength.items()}}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._regression.restore(tensors, rest)
        found: Any = rest["strength"]
        self._root = {int(one): tensors[f"root.{one}"].clone() for one in found}
        self._strength = {int(one): float(kappa) for one, kappa in found.items()}
