"""A lower bound that the truths respect, found by what came before: targets that are 0 or more, and often exactly 0.

The bound of a unit (an output of a stream, or of a series that is a stream of its own) is 0 once SEEN of its truths
were 0 and as many were more, these zeros are a share OFTEN of all, and none was less. The first truth below 0 ends it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamgp.forecasting.streams import longer
from streamgp.state import Arrays, Declared

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SEEN, OFTEN = 20, 0.05
"""Least zeros, and least positive truths, before a bound is found; least share of zeros."""

ZERO, MORE, LESS = range(3)
"""Places of the counts of truths that are 0, more and less."""


class Change(NamedTuple):
    """Units (V,) whose bound was found, and units whose bound has ended."""

    found: Ints
    ended: Ints


class Bounds(Declared):
    """Zeros, positive and negative truths of each unit; Stateful.

    Args:
        units: U.

    Example:
        >>> bounds, unit = Bounds(1), np.zeros(60, np.int64)
        >>> bounds.follow(unit, np.arange(60.0) % 2).found.tolist(), bounds.lower(unit[:1]).tolist()
        ([0], [0.0])
        >>> bounds.follow(unit[:1], np.array([-1.0])).ended.tolist(), bounds.lower(unit[:1]).tolist()
        ([0], [-inf])
    """

    STATE = (Arrays("counts"),)

    def __init__(self, units: int) -> None:
        self._counts = np.zeros((units, 3), np.int64)

    def reserve(self, units: int) -> None:
        """Room for this many more units."""
        self._counts = longer(self._counts, units)

    def lower(self, units: Ints) -> Floats:
        """(...) the bounds of units (...); -inf: none."""
        return np.where(self.bounded(units), 0.0, -np.inf)

    def bounded(self, units: Ints) -> Bools:
        """(...) which units (...) have a bound."""
        return np.asarray(self._bounded()[units])

    def shares(self, units: Ints) -> Floats:
        """(V,) zeros in all truths."""
        counts = self._counts[units]
        return np.asarray(counts[:, ZERO] / np.maximum(counts.sum(1), 1))

    def follow(self, unit: Ints, y: Floats) -> Change:
        """Take in the next truths (R,) and their units; NaN: no truth."""
        before = self._bounded()
        known = ~np.isnan(y)
        kind = np.where(y == 0, ZERO, np.where(y > 0, MORE, LESS))
        np.add.at(self._counts, (unit[known], kind[known]), 1)
        now = self._bounded()
        return Change(np.flatnonzero(now & ~before), np.flatnonzero(before & ~now & (self._counts[:, LESS] > 0)))

    def _bounded(self) -> Bools:
        zeros, more, less = self._counts.T
        return np.asarray((less == 0) & (np.minimum(zeros, more) >= SEEN) & (zeros >= OFTEN * (zeros + more)))
