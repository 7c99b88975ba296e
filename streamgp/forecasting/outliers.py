"""Truths that decide the RMSE alone: a handful of rows that hold most of the squared error."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamgp.state import Arrays, Declared

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


MOST = 10
"""Truths of a target that are a handful: those with the largest squared errors are kept."""
SHARE = 0.9
"""Part of the squared error that decides: without it RMSE is less than a third."""
RARE = 0.01
"""Part of the truths at most."""
FAR = 100.0
"""Mean absolute errors of the others that the error of each is at least: in samples of Student's t with 3 degrees of
freedom, the Laplace or the lognormal distribution fewer than 1 in 100 have such truths."""


class Outliers(NamedTuple):
    """Truths that decide the RMSE of a target.

    Attributes:
        series, ds: (M,) codes and times of the truths, largest error first.
        share: their part of the squared error.
        truths: scored in all.
        rmse: without them.
    """

    series: Ints
    ds: Ints
    share: float
    truths: int
    rmse: float


class Largest(Declared):
    """The truths with the largest squared errors, of each target, in bounded memory.

    Args:
        outputs: how many targets.
        steps: forecasts of a truth.

    Example:
        >>> largest = Largest(1, 1)
        >>> errors = np.append(np.ones(999), 1e4)
        >>> largest.add(np.zeros(1000, np.int64), np.arange(1000), np.zeros(1000, np.int64), errors**2)
        >>> found = largest.outliers(0, 1000.0, (errors**2).sum(), errors.sum())
        >>> found.ds.tolist(), round(float(found.share), 4), float(found.rmse)
        ([999], 1.0, 1.0)
    """

    STATE = (Arrays("squares", "places", prefix="", grows=False),)

    def __init__(self, outputs: int, steps: int) -> None:
        self._steps = steps
        self.squares: Floats = np.zeros((outputs, MOST))
        self.places: Ints = np.zeros((outputs, MOST, 2), np.int64)
        """Series and time of each."""

    def add(self, series: Ints, ds: Ints, output: Ints, squares: Floats) -> None:
        """Take squared errors (R,) of the forecasts of truths; those of a truth together. Mostly one pass over R."""
        if not len(squares) or squares.max() * self._steps <= self.squares.min():
            return
        for target in range(len(self.squares)):
            here = output == target
            places = np.concatenate([self.places[target], np.stack([series[here], ds[here]], 1)])
            held = np.concatenate([self.squares[target], squares[here]])
            order = np.lexsort(places.T)
            places, held = places[order], held[order]
            first = np.flatnonzero(np.append(True, (places[1:] != places[:-1]).any(1)))
            total = np.add.reduceat(held, first)
            best = np.argsort(-total, kind="stable")[:MOST]
            self.squares[target], self.places[target] = 0.0, 0
            self.squares[target, : len(best)], self.places[target, : len(best)] = total[best], places[first[best]]

    def outliers(self, output: int, forecasts: float, square: float, absolute: float) -> Outliers | None:
        """The truths that decide the RMSE of a target; None where there are no such.

        Args:
            output: which target.
            forecasts: of it that were scored.
            square: the sum of their squared errors.
            absolute: the sum of their absolute errors.
        """
        steps = self._steps
        truths = round(forecasts / steps)
        held = self.squares[output]
        least = int(np.searchsorted(held.cumsum(), SHARE * square)) + 1
        if least > min(MOST, RARE * truths) or not square > 0:
            return None
        errors = np.sqrt(held / steps)
        far = FAR * max(absolute - steps * float(errors[:least].sum()), 0.0) / max(forecasts - steps * least, 1.0)
        if errors[least - 1] < far:
            return None
        count = max(least, int((errors >= max(far, 1e-300)).sum()))
        rest = max(square - float(held[:count].sum()), 0.0)
        series, ds = self.places[output, :count].T
        rmse = (rest / max(forecasts - steps * count, 1.0)) ** 0.5
        return Outliers(series, ds, 1 - rest / square, truths, rmse)

    def gather(self, parts: list[tuple[Largest, Ints]]) -> None:
        """Become the largest of parts of the series, whose codes here are given."""
        self.squares[:], self.places[:] = 0.0, 0
        for part, codes in parts:
            for output, squares in enumerate(part.squares):
                series, ds = part.places[output, squares > 0].T
                here = np.full(len(series), output)
                self.add(codes[series], ds, here, squares[squares > 0])
