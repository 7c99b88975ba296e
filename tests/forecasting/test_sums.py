"""Sums over forecasts by column and place: the fast ways give the digits of the plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from streamgp.forecasting.quantiles import below, hits_at
from streamgp.forecasting.scores import _by_column


@pytest.mark.parametrize("ties", [0, 50])
def test_hits_are_the_sums_at_each_place(ties: int) -> None:
    random, p = np.random.default_rng(0), np.linspace(0.05, 0.95, 13)
    quantiles, y = np.sort(random.normal(size=(13, 400)), 0), random.normal(size=400)
    quantiles[:, :ties], y[:ties] = quantiles[:, :ties].clip(0.0), 0.0  # as at a bound: a truth is several quantiles
    under, place = below(p, quantiles, y), random.integers(0, 7, 400)
    assert ((under % 1) > 0).any() == (ties > 0)
    wanted = np.stack([np.bincount(place, row, 7) for row in under], -1)
    np.testing.assert_array_equal(hits_at(under, place, 7), wanted)


@pytest.mark.parametrize("whole", [True, False])
def test_columns_are_summed_in_the_order_of_the_rows(whole: bool) -> None:
    random, column = np.random.default_rng(0), np.tile(np.arange(6), 50)
    column = column if whole else random.permutation(column)
    values = random.normal(size=(3, 300)) * 10.0 ** random.integers(-9, 9, 300)
    wanted = np.stack([np.bincount(column, row, 6) for row in values])
    np.testing.assert_array_equal(_by_column(values, column, 6), wanted)
