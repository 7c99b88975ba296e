"""Caps of upper quantiles: the law on compound Poisson streams, what it costs, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp.forecasting.bands import Bands
from streamgp.forecasting.caps import Caps
from streamgp.testing import check_stateful
from tests.forecasting.test_bands import BATCH, CALIBRATION, HORIZON, SHAPE, Player

FIRST, ROWS = 128, 3000


def compound(rate: float, seed: int, rows: int = ROWS) -> np.ndarray:
    """Sums of N exponentials, N of a Poisson distribution."""
    generator = np.random.default_rng(seed)
    return np.asarray(generator.gamma(np.maximum(generator.poisson(rate, rows), 1e-12)))


def played(y: np.ndarray, rate: float, period: int) -> tuple[Bands, np.ndarray, np.ndarray]:
    """Bands that have met 300 truths before, 97.5 % quantiles (rows, H), and whether truths are inside of the 95 %."""
    bands = Bands(SHAPE, CALIBRATION, period)
    bands.note(torch.zeros(300, dtype=torch.int64), torch.from_numpy(compound(rate, 99, 300))[:, None])
    player = Player(bands, y, mean=rate, sd=(2 * rate) ** 0.5)
    inside = player.play()[1]
    return bands, player.quantiles[-1], inside


@pytest.mark.sampled
@pytest.mark.parametrize("period", [1, 24])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 2.0])
def test_upper_ends_are_within_twice_the_true_one(rate: float, period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    true = float(np.quantile(compound(rate, 1000, 400_000), 0.975))
    y = compound(rate, 1)
    _, upper, inside = played(y, rate, period)
    assert upper[FIRST:].max() < 2 * true and np.median(upper[FIRST:]) > 0.5 * true
    assert 0.945 < inside[FIRST:].mean() < 0.99
    if period == 24 and rate < 2:
        monkeypatch.setattr(Caps, "earned", lambda self, units: np.zeros(len(units), bool))
        assert played(y, rate, period)[1][FIRST:].max() > 2 * true


def test_targets_that_are_seldom_0_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.random.default_rng(0).normal(size=800)
    issued = Player(Bands(SHAPE, CALIBRATION, 24), y).play()
    monkeypatch.setattr(Bands, "_capped", lambda self, quantiles, *_: ([quantiles[..., 0]] * 2, quantiles))
    np.testing.assert_array_equal(issued, Player(Bands(SHAPE, CALIBRATION, 24), y).play())


def test_where_caps_cost_there_are_none() -> None:
    caps, unit = Caps(2, 1, 1, HORIZON), np.zeros(3, np.int64)
    at = unit, unit, unit
    caps.learn(np.zeros(1, np.int64), at, np.ones(3), np.array([[1.0, 2.0]] * 3), np.ones(1))
    assert caps.earned(np.arange(2)).tolist() == [False, True]
    caps.learn(np.zeros(1, np.int64), at, np.ones(3), np.array([[3.0, 1.0]] * 3), np.ones(1))
    assert caps.earned(np.arange(2)).all()


def test_they_are_stateful() -> None:
    y = compound(0.3, 2)

    def advance(bands: Bands, step: int) -> torch.Tensor:
        player = Player(bands, y[step * BATCH : (step + 6) * BATCH], mean=0.3, sd=0.8)
        bands.note(torch.zeros(BATCH, dtype=torch.int64), torch.from_numpy(y[:BATCH])[:, None])
        player.play()
        return torch.from_numpy(player.quantiles)

    def same(one: torch.Tensor, two: torch.Tensor) -> bool:
        return torch.equal(one.nan_to_num(-1.0), two.nan_to_num(-1.0))

    check_stateful(lambda: Bands(SHAPE, CALIBRATION, 24), advance, 3, same)
