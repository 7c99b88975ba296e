"""The histograms of errors against their definition, bin by bin."""

from __future__ import annotations

import numpy as np
import pytest

from streamgp.base import Shape
from streamgp.forecasting.error_shape import (
    BINS,
    EDGES,
    KEPT_MEDIAN,
    SHAPE_CYCLES,
    TO_ALL,
    TO_PHASE,
    TO_PRIOR,
    ErrorShape,
    Truths,
    View,
)

GROUPS = 2


def truths(rows: int, phases: int, seed: int, passed: float) -> Truths:
    """Each block of the cycle has a spread and a skewness of its own."""
    rng = np.random.default_rng(seed)
    block, group = rng.integers(phases, size=rows), rng.integers(GROUPS, size=rows)
    error = (1 + block + group) * 0.3 * rng.gumbel(size=rows)
    ones = np.ones((rows, 1))
    one = np.zeros(1, np.int64)
    return Truths(
        one, np.zeros(rows, np.int64), block, group, error, ones, 0 * error, np.zeros(1, bool), np.array([passed])
    )


def expected(counts: np.ndarray, p: np.ndarray, cycle: float) -> np.ndarray:
    """(phases, groups, Q) quantiles of error/s. counts: (phases, groups, BINS)."""
    phases = len(counts)
    cumulative = 1 / (1 + np.exp(-2 * np.log(2) * EDGES))  # logistic, of mean |x| = 1
    cumulative[[0, -1]] = 0, 1
    every = counts.sum((0, 1)) + TO_PRIOR * cycle * np.diff(cumulative)
    every /= every.sum()
    found = np.empty((phases, GROUPS, len(p)))

    def at(cells: np.ndarray, levels: np.ndarray | float) -> np.ndarray:
        return np.asarray(np.interp(levels, np.concatenate([[0], cells.cumsum()]), EDGES))

    for block in range(phases):
        phase = counts[block].sum(0)
        if phases >= 4:  # each neighbour counts half; midnight has neighbours on both sides, too
            phase = phase + 0.5 * counts[block - 1].sum(0) + 0.5 * counts[(block + 1) % phases].sum(0)
        own = phase + max(TO_ALL * cycle / phases, 60) * every
        own /= own.sum()
        for group in range(GROUPS):
            cells = counts[block, group] + max(TO_PHASE * cycle / phases, 30) * own
            cells /= cells.sum()
            found[block, group] = at(cells, p) - (1 - KEPT_MEDIAN) * (at(cells, 0.5) - at(every, 0.5))
    return found


@pytest.mark.parametrize(("phases", "cycle"), [(1, 1.0), (3, 24.0), (4, 48.0), (12, 48.0)])
def test_quantiles_are_those_of_the_shrunken_histograms(phases: int, cycle: float) -> None:
    shape = ErrorShape(Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()), 1, cycle, phases, GROUPS, 1)
    counts = np.zeros((phases, GROUPS, BINS))
    for seed, passed in ((0, 0.0), (1, SHAPE_CYCLES)):  # after a half-life the first rows count half
        some = truths(900 * phases, phases, seed, passed)
        zero = np.zeros(len(some.error))
        shape.learn(some, View(zero, zero.astype(np.int64), zero), np.ones(len(zero), bool))
        counts *= 0.5 ** (passed / SHAPE_CYCLES)
        bins = np.clip(np.searchsorted(EDGES, some.error) - 1, 0, BINS - 1)
        np.add.at(counts, (some.block, some.group, bins), 1.0)
    p = np.array([0.025, 0.1, 0.5, 0.9, 0.975])
    for group in range(GROUPS):
        block, zero = np.arange(phases)[:, None], np.zeros((phases, 1))
        at = np.zeros((phases, 1), np.int64), block, np.array([group])
        levels, middle = np.broadcast_to(p, (1, phases, 5)), np.full((1, phases), 0.5)
        view = View(zero + np.log(2.0), zero.astype(np.int64), zero)  # s = 2
        found = shape.quantiles(np.zeros(1, np.int64), view, zero + 7.0, at, levels, middle)
        np.testing.assert_allclose(found[:, 0], 7 + 2 * expected(counts, p, cycle)[:, group], rtol=1e-9)
