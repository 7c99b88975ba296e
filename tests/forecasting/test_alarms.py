"""Alarms keep their rate where forecasts are wrong, find faults, and are the same however a run is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from streamgp.base import Due, Inputs, Shape
from streamgp.forecasting.alarms import KINDS, Alarms, e_detectors
from streamgp.predictives.gaussian import Gaussian

SHAPE = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
ANOMALY, CHANGE, STUCK = (1 << at for at in range(len(KINDS)))


def due(
    y: np.ndarray,
    sd: np.ndarray | float = 1.0,
    series: np.ndarray | int = 0,
    start: int = 0,
    mean: np.ndarray | float = 0.0,
) -> Due:
    """Truths of forecasts N(mean, sd²)."""
    rows = torch.arange(start, start + len(y))
    one = torch.ones(len(y), 1, dtype=torch.float64)
    scale = torch.from_numpy(np.broadcast_to(sd, len(y)).astype(float))
    middle = torch.from_numpy(np.broadcast_to(mean, len(y)).astype(float))
    bands = middle + scale * torch.tensor([[-1.96], [0.0], [1.96]], dtype=torch.float64)
    code = torch.from_numpy(np.broadcast_to(series, len(y)).astype(np.int64))
    rest: Any = (bands, scale.log()[None], Inputs(one[:0], one[:0]), one[:0], one[None])
    predictive = Gaussian(middle[:, None], one, one)
    return Due(code, rows, rows, rows, 0 * rows, torch.from_numpy(y.astype(float)), predictive, *rest)


def judged(y: np.ndarray, rate: float, batch: int = 256, alarms: Alarms | None = None, **about: Any) -> tuple[Any, Any]:
    """p and kinds of all rows."""
    alarms = alarms or Alarms(SHAPE, (0.025, 0.5, 0.975), rate)
    cut = [*range(0, len(y), batch), len(y)]
    parts = {name: np.broadcast_to(value, len(y)) for name, value in about.items()}
    found = [
        alarms.judge(due(y[a:b], start=a, **{name: part[a:b] for name, part in parts.items()}))
        for a, b in pairwise(cut)
    ]
    return torch.cat([one.p for one in found]).numpy(), torch.cat([one.kind for one in found]).numpy()


NOISE = np.random.default_rng(0).standard_normal(20_000)
STREAMS = {
    "right": (NOISE, 1.0),
    "bands of half the width": (NOISE, 0.5),
    "bands of twice the width": (NOISE, 2.0),
    "Student's t with 3 degrees": (np.random.default_rng(1).standard_t(3, 20_000), 1.0),
    "spread that changes by 3": (NOISE * np.where(np.arange(20_000) // 3000 % 2, 3.0, 1.0), 1.0),
    "rounded to whole numbers": (np.round(NOISE), 1.0),
}
STILL = np.repeat(np.random.default_rng(2).random(200) < 0.3, 100)
SPELLS = {
    "calm spells": (NOISE * np.where(STILL, 0.02, 1.0), 1.0),
    "spells aside": (NOISE + np.where(STILL, 0.7, 0.0), 1.0),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "rate"), [*((name, 0.01) for name in STREAMS), ("bands of half the width", 0.002)])
def test_the_share_of_anomalies_is_nominal(name: str, rate: float) -> None:
    y, sd = STREAMS[name]
    p, kind = judged(y, rate, sd=sd)
    assert ((kind & ANOMALY > 0) == (p <= rate)).all()
    assert 0.8 < (p <= rate).mean() / rate < 1.2


@pytest.mark.sampled
@pytest.mark.parametrize("rate", [0.01, 0.002])
@pytest.mark.parametrize("name", ["Student's t with 3 degrees", "rounded to whole numbers", *SPELLS])
def test_stretches_are_no_more_frequent_than_nominal(name: str, rate: float) -> None:
    y, sd = (STREAMS | SPELLS)[name]
    _, kind = judged(y, rate, sd=sd)
    for bit in (CHANGE, STUCK):
        assert (kind & bit > 0).mean() < 0.6 * rate  # nominal is half of the rate


@pytest.mark.sampled
@pytest.mark.parametrize("rate", [0.01, 0.001])
@pytest.mark.parametrize("level", [0.0, 7.25, -1e6])
def test_a_constant_raises_no_alarm(level: float, rate: float) -> None:
    """A truth that is its forecast says nothing, and a value that was never another is not stuck."""
    y = np.full(9000, level)
    p, kind = judged(y, rate, mean=level)
    assert not kind.any() and p.min() > 0.9


@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_long_stops_raise_alarms_at_most_at_the_nominal_rate(rate: float) -> None:
    """A vehicle that stands a third of the time, 20 to 600 rows each; at rest the forecast is the value itself."""
    rng = np.random.default_rng(5)
    moving = [rng.random() < 0.5 for _ in range(100)]
    lengths = rng.integers(20, 600, 100)
    stands = np.repeat(moving, lengths)[:20_000]
    y = np.where(stands, 0.0, 20 + NOISE)
    _, kind = judged(y, rate, mean=np.where(np.append(False, stands[:-1]), 0.0, 20.0))
    for bit in (CHANGE, STUCK):
        assert (kind & bit > 0).sum() <= max(0.5 * rate * len(y), 3)


def test_a_sensor_that_is_stuck_for_long_is_told_some_times_and_no_more() -> None:
    y = np.where(np.arange(6000) < 3000, NOISE[:6000], 1.5)
    _, kind = judged(y, 0.001)
    found = np.flatnonzero(kind & STUCK)
    assert 3000 <= found[0] <= 3005 and len(found) <= 5


def test_tail_probabilities_are_those_of_the_distribution() -> None:
    p, _ = judged(NOISE, 0.001)
    exact = 2 * norm.sf(np.abs(NOISE))
    late = np.arange(len(p)) > 10_000
    bulk = late & (exact > 0.05)
    assert np.abs(p - exact)[bulk].max() < 0.03
    tail = late & (exact < 0.01) & (exact > 0.001)
    assert np.abs(np.log(p / exact))[tail].max() < 1.0


def faulty(name: str, y: np.ndarray, at: int) -> np.ndarray:
    rows = np.arange(len(y))
    after = rows >= at
    changed = {
        "level": y + 1.5 * after,
        "variance": np.where(after, 3 * y, y),
        "drift": y + 0.02 * np.maximum(rows - at, 0),
        "stuck": np.where(after, y[at], y),
        "quiet": np.where(after, 0.1 * y, y),
    }
    return changed[name]


@pytest.mark.parametrize(
    ("name", "bit", "rows"),
    [
        ("level", CHANGE, 30),
        ("variance", CHANGE, 25),
        ("drift", CHANGE, 150),
        ("stuck", STUCK, 5),
        ("quiet", CHANGE, 40),
    ],
)
def test_faults_are_found(name: str, bit: int, rows: int) -> None:
    for at in (2000, 2321):
        _, kind = judged(faulty(name, NOISE[:2600], at), 0.001)
        found = np.flatnonzero(kind[at:] & bit)
        assert len(found) and found[0] <= rows, (name, at)


def test_detectors_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(3)
    series, bets = generator.integers(0, 4, 300), generator.normal(-0.1, 0.5, (300, 2))
    bets[generator.random(300) < 0.1] = -np.inf
    start, alarm = np.log(generator.random((4, 2))), generator.random(300) < 0.05
    now, expected = np.exp(start), np.empty((300, 2))
    for row in range(300):
        now[series[row]] = np.maximum(now[series[row]], 1.0) * np.exp(bets[row])
        expected[row] = now[series[row]]
        if alarm[row]:
            now[series[row]] = 0.0
    np.testing.assert_allclose(np.exp(e_detectors(series, bets, start, alarm)), expected, rtol=1e-12)


def test_a_restored_state_goes_on_with_the_same_numbers() -> None:
    series = np.random.default_rng(4).integers(0, 3, 4000)
    y = np.where(np.arange(4000) % 50 > 40, 0.0, NOISE[:4000])
    whole = judged(y, 0.01, series=series, batch=100)
    first, second = (Alarms(SHAPE, (0.025, 0.5, 0.975), 0.01) for _ in range(2))
    for a in range(0, 2000, 100):
        first.judge(due(y[a : a + 100], series=series[a : a + 100], start=a))
    second.restore(*first.state())
    for a in range(2000, 4000, 100):
        found = second.judge(due(y[a : a + 100], series=series[a : a + 100], start=a))
        assert (found.p.numpy() == whole[0][a : a + 100]).all() and (found.kind.numpy() == whole[1][a : a + 100]).all()


def test_series_have_stretches_of_their_own() -> None:
    y = np.column_stack([NOISE[:3000], NOISE[3000:6000]])
    y[2000:, 1] = y[2000, 1]
    _, kind = judged(y.reshape(-1), 0.001, series=np.tile([0, 1], 3000))
    kind = kind.reshape(-1, 2)
    assert (kind[2000:2010, 1] & STUCK).any() and not (kind[:, 0] & STUCK).any()


def test_a_value_that_often_comes_again_is_not_stuck() -> None:
    stands = np.random.default_rng(5).random(2000).repeat(10) < 0.3
    _, kind = judged(np.where(stands, 0.0, NOISE[:20_000] + 5), 0.001, sd=3.0)
    assert (kind & STUCK > 0).mean() <= 0.001
    other = np.where(stands, 0.0, NOISE[:20_000] + 5)
    other[15_000:15_020] = 4.321
    _, kind = judged(other, 0.001, sd=3.0)
    assert (kind[15_000:15_020] & STUCK).any()


@pytest.mark.parametrize("value", [1e200, np.inf])
def test_a_glitch_is_an_anomaly_and_nothing_more(value: float) -> None:
    y = NOISE[:6000].copy()
    y[3000] = value
    p, kind = judged(y, 0.001)
    assert p[3000] < 1e-6 and kind[3000] == ANOMALY
    clean, _ = judged(NOISE[:6000], 0.001)
    usual = clean > 0.1
    usual[3000] = False
    np.testing.assert_allclose(p[usual], clean[usual], rtol=0.01)


def test_forecasts_of_the_warm_up_and_of_later_steps_are_passed_over() -> None:
    shape = Shape(targets=("y",), horizon=2, lags=1, past=("y",), future=())
    alarms = Alarms(shape, (0.025, 0.5, 0.975), 0.01)
    given = due(NOISE[:100])
    warm = given.quantiles.clone()
    warm[:, :10] = torch.nan
    column = torch.arange(100) % 2
    found = alarms.judge(given._replace(column=column, quantiles=warm), torch.arange(100) >= 50)
    assert found.p.isnan().tolist() == [row < 10 or row % 2 == 1 for row in range(100)]
    assert alarms.rows == 25
