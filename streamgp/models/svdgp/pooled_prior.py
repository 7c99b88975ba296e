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
from streamgp.online.standardised import Standardised


class PooledPrior:
    """What the linear parts of a panel's models share; Stateful.

    Args:
        config: of each.
        shape: of the windows.
        width: W, columns of a standardised one.
        device: where the sums live.

    Raises:
        UsageError: a window has more columns than the basis has functions.
    """

    def __init__(self, config: Config, shape: Shape, width: int, device: torch.device) -> None:
        self.config, self.shape, self.width = config, shape, width
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

    def add(self, units: Standardised, x: Inputs, y: Tensor, series: int) -> None:
        """Give windows of some series to the regression of all, each in the units of its series.

        Args:
            units: of these series.
            x: K · N windows.
            y: (K, N, T) truths, NaN = not observed; a row without one is none.
            series: S that there are; the regression forgets as each of them does.
        """
        unit, offset = self._scale(units)
        t, there = (y - units.reference(x) - offset) / unit, torch.isfinite(y).any(2).flatten()
        time = self.config.forgetting(self.shape)
        kept = 1.0 if time is None else math.exp(-float(there.sum()) / (time * series))
        z: Tensor = units.inputs(x)
        self._regression.add(z.flatten(0, 1), t.flatten(0, 1), there.to(FLOAT), kept, self._reached[1])

    def use(self) -> None:
        """Use what was added, as far as all series that are learned now have come."""
        self._regression.reach(self._reached[0])

    def rest(self, units: Standardised, z: Tensor, y: Tensor) -> Tensor:
        """(N, T) what the regression leaves of the truths of one series. z: (N, W), y: (N, T), both standardised."""
        expected = self._expected(units)
        return y if expected is None else y - with_one(z) @ expected

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

    def mean(self, units: Standardised, generation: int, noise: Tensor, size: int) -> Tensor | None:
        """(K, P, T) prior means of the weights of series; None where they are 0.

        Args:
            units: of these series.
            generation: of them.
            noise: () σ² of the updates.
            size: P.
        """
        expected = self._expected(units)
        if expected is None:
            return None
        own = (self._root[generation].T @ expected) * (self._strength[generation] / noise).sqrt()
        return torch.nn.functional.pad(own, (0, 0, 0, size - own.shape[1]))

    def _expected(self, units: Standardised) -> Tensor | None:
        """(..., E, T) the pooled coefficients in the units of each series; None where there are none."""
        pooled = self._regression.coefficients
        if pooled is None:
            return None
        unit, offset = self._scale(units)
        location, output = (part.unsqueeze(-2) for part in (units.outputs.location, units.outputs.scale))
        found: Tensor = pooled * (unit / output)
        found[..., -1:, :] += (offset - location) / output
        return found

    def _scale(self, units: Standardised) -> tuple[Tensor, Tensor]:
        """(..., 1, T) units of the regression of all, and what is taken off before: those of the target's channel."""
        if self.shape.lags:
            scale = units.inputs.scaling.past.scale[..., None, : self.shape.outputs]
            unit = scale.repeat_interleave(self.shape.horizon, -1)
            return unit, torch.zeros_like(unit)
        return units.outputs.scale.unsqueeze(-2), units.outputs.location.unsqueeze(-2)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = self._regression.state()
        tensors |= {f"root.{one}": root for one, root in self._root.items()}
        return tensors, rest | {"strength": {str(one): kappa for one, kappa in self._strength.items()}}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self._regression.restore(tensors, rest)
        found: Any = rest["strength"]
        self._root = {int(one): tensors[f"root.{one}"].clone() for one in found}
        self._strength = {int(one): float(kappa) for one, kappa in found.items()}
