"""How often truths were below the quantiles as issued, and by how much that moves the probabilities of later ones.

Leaky trackers, one of all phases and one a phase (or a state of the last value): the P term of conformal PID control
(Angelopoulos, Candès & Tibshirani 2023).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamgp.forecasting.error_shape import Truths
from streamgp.forecasting.quantiles import hits_at
from streamgp.forecasting.streams import longer
from streamgp.state import Arrays, Declared

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SMALL_SAMPLE = 0.005
"""Probabilities are moved outwards by this share of their distance from ½, as for 200 independent errors."""
PHASE_RATE, PHASE_LEAK, RATE, LEAK = 0.0025, 0.99, 0.01, 0.95
"""A cycle: step and decay of the tracker of each phase, and of that of all."""


class Trackers(Declared):
    """Of each unit; Stateful.

    Args:
        units: U.
        phases: trackers beside that of all.
        probabilities: (P,) of the quantiles that are issued.
    """

    STATE = (Arrays("off"),)

    def __init__(self, units: int, phases: int, probabilities: Floats) -> None:
        self.phases, self.probabilities = phases, probabilities
        self._off = np.zeros((units, phases + 1, len(probabilities)))  # the last is that of all

    def reserve(self, units: int) -> None:
        """Room for this many more units."""
        self._off = longer(self._off, units)

    def moves(self, wanted: Floats, units: Ints) -> Floats:
        """(V, phases, Q) what they add to probabilities (Q,)."""
        known = np.concatenate([[0.0], self.probabilities, [1.0]])
        off = np.pad(self._off[units, :-1] + self._off[units, -1:], ((0, 0), (0, 0), (1, 1)))
        at = (np.searchsorted(known, wanted, "right") - 1).clip(0, len(known) - 2)
        slope = (off[..., at + 1] - off[..., at]) / (known[at + 1] - known[at])
        return np.asarray(slope * (wanted - known[at]) + off[..., at])

    def moved(self, wanted: Floats, units: Ints) -> Floats:
        """(V, phases, Q) the probabilities that are wanted, (Q,), moved by them."""
        p = 0.5 + (wanted + self.moves(wanted, units) - 0.5) * (1 + SMALL_SAMPLE)
        return np.asarray(p.clip(wanted / 6, 1 - (1 - wanted) / 6))

    def learn(self, under: Floats, truths: Truths, phase: Ints) -> None:
        """under: (P, R) how much of each truth was below the quantile as issued; phase: (R,) of each."""
        units, phases = len(truths.units), self.phases
        place, passed = truths.unit * phases + phase, truths.passed[:, None]
        wide = np.bincount(place, minlength=units * phases).reshape(units, phases)
        counts = np.concatenate([wide, wide.sum(1, keepdims=True)], 1)  # (V, phases + 1)
        rate = np.append(np.full(phases, PHASE_RATE), RATE)
        kept = np.append(np.full(phases, PHASE_LEAK), LEAK) ** passed
        off, p = self._off[truths.units], self.probabilities
        hits = hits_at(under, place, units * phases).reshape(units, phases, -1)
        share = np.concatenate([hits, hits.sum(1, keepdims=True)], 1) / np.maximum(counts, 1)[..., None]
        moved = kept[..., None] * off + (rate * np.minimum(passed, 10.0))[..., None] * (p - share)
        self._off[truths.units] = np.where(counts[..., None] > 0, moved, off)
