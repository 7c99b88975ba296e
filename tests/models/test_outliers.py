"""One glitch of a sensor on a stream that is forecast in closed form, and changes that are none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.base import Inputs, Model, Shape
from streamgp.models import linear, svdgp
from streamgp.online.stacked import Packed
from streamgp.online.winsorise import Winsoriser
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing.stateful import reborn

LAGS, WARM, AT = 8, 600, 1500
MODELS = {
    "linear": (linear, {}),
    "svdgp": (svdgp, {"basis": 100, "evidence_rows": 100, "reservoir": 1000, "rebuild": 800}),
}
REGRESSION = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))


class Told(NamedTuple):
    """Of each row of a stream, in its order: the forecast's error and standard deviation, (N,)."""

    error: np.ndarray
    deviation: np.ndarray


def series(rows: int) -> np.ndarray:
    """A wave of 48 rows and an autoregression; its spread is about 2, its one-step noise 0.3."""
    noise = 0.3 * np.random.default_rng(0).normal(size=rows)
    rest = np.zeros(rows)
    for row in range(1, rows):
        rest[row] = 0.7 * rest[row - 1] + noise[row]
    return np.asarray(10 + 3 * np.sin(2 * np.pi * np.arange(rows) / 48) + rest)


def windows(values: np.ndarray, horizon: int = 1) -> tuple[Shape, Inputs, Tensor]:
    shape = Shape(targets=("y",), horizon=horizon, lags=LAGS, past=("y",), future=())
    rows = len(values) - LAGS - horizon + 1
    every = torch.from_numpy(np.lib.stride_tricks.sliding_window_view(values, LAGS + horizon).copy())
    return shape, Inputs(every[:, :LAGS, None], torch.zeros(rows, horizon, 0).double()), every[:, LAGS:]


def made(name: str, shape: Shape, **options: Any) -> Model:
    torch.set_num_threads(1)
    module, usual = MODELS[name]
    model: Model = module.build(module.Config(**usual, **options), shape)
    return model


def stream(model: Model, x: Inputs, y: Tensor, batch: int = 50) -> Told:
    """Warm up, then forecast and learn; of the first step ahead."""
    list(model.fit(x.rows(slice(0, WARM)), y[:WARM], 1))
    errors, deviations = [np.zeros(WARM)], [np.zeros(WARM)]
    for start in range(WARM, len(y), batch):
        rows = slice(start, start + batch)
        issued = model.predict(x.rows(rows))
        errors.append((issued.mean - y[rows])[:, 0].numpy())
        deviations.append(issued.variance[:, 0].sqrt().numpy())
        assert model.update(x.rows(rows), y[rows]).healthy
    return Told(np.concatenate(errors), np.concatenate(deviations))


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [7, 50])
@pytest.mark.parametrize("horizon", [1, 6])
@pytest.mark.parametrize("name", MODELS)
def test_one_glitch_is_forgotten_once_it_has_left_the_windows(name: str, horizon: int, batch: int) -> None:
    values = series(2800)
    clean = stream(made(name, windows(values)[0]), *windows(values, 1)[1:]) if horizon == 1 else None
    values[AT] += 200 * values.std()
    shape, x, y = windows(values, horizon)
    told = stream(made(name, shape), x, y, batch)
    before, after = slice(WARM, AT - LAGS - 10), slice(AT + batch, None)
    assert told.deviation[after].max() < 1.3 * np.median(told.deviation[before])  # unlimited: 25 times
    assert np.abs(told.error[after]).mean() < 1.1 * np.abs(told.error[before]).mean()
    if clean is not None:
        assert np.abs(told.error[after]).mean() == pytest.approx(np.abs(clean.error[after]).mean(), rel=0.05)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_without_a_limit_the_bands_are_wide_for_a_thousand_rows(name: str) -> None:
    """What the limit is for."""
    values = series(2800)
    values[AT] += 200 * values.std()
    shape, x, y = windows(values)
    told = stream(made(name, shape, limit=None), x, y)
    assert np.median(told.deviation[AT + 50 : AT + 600]) > 10 * np.median(told.deviation[WARM : AT - 20])


@pytest.mark.sampled
@pytest.mark.parametrize("size", [20.0, 200.0])
@pytest.mark.parametrize("name", MODELS)
def test_a_lasting_shift_is_learned(name: str, size: float) -> None:
    values = series(2800)
    values[AT:] += size * values.std()
    shape, x, y = windows(values)
    told = stream(made(name, shape), x, y)
    before = np.abs(told.error[WARM : AT - 20]).mean()
    assert np.median(np.abs(told.error[AT + 400 :])) < 1.6 * before
    assert np.median(told.deviation[AT + 400 :]) < 5 * np.median(told.deviation[WARM : AT - 20])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_shift_is_learned_as_fast_as_without_a_limit(name: str) -> None:
    """Without lags to tell the new level, all that is lost are the rows that might have been a glitch."""
    random = np.random.default_rng(0)
    u = random.uniform(-3, 3, 2600)
    y = 2 * u + 0.3 * random.normal(size=2600)
    y[AT:] += 100
    x = Inputs(torch.zeros(2600, 0, 2).double(), torch.from_numpy(u)[:, None, None])
    truth = torch.from_numpy(y)[:, None]
    limited, free = (stream(made(name, REGRESSION, limit=limit), x, truth, 25) for limit in (5.0, None))
    part = slice(AT + 100, AT + 600)
    assert np.abs(limited.error[part]).mean() < 1.15 * np.abs(free.error[part]).mean()


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_a_model_saved_in_the_middle_of_a_shift_goes_on_as_it_would(name: str) -> None:
    values = series(1200)
    values[WARM + 100 :] += 50
    shape, x, y = windows(values)
    model, parts = made(name, shape), [slice(start, start + 4) for start in range(WARM, 1000, 4)]
    list(model.fit(x.rows(slice(0, WARM)), y[:WARM], 1))
    for part in parts[:24]:
        model.update(x.rows(part), y[part])
    assert 0 < float(model.state()[0]["limit.excess" if name == "linear" else "winsorise.excess"]) < 0.9
    other = reborn(model, made(name, shape))
    for part in parts[24:]:
        for one in (model, other):
            one.update(x.rows(part), y[part])
    assert torch.equal(model.predict(x).parameters(), other.predict(x).parameters())


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_a_target_that_stood_still_and_moves_is_learned(name: str) -> None:
    """Every window after the move is far out, and none is a glitch."""
    values = np.full(1400, 5.0)
    values[900:] += 0.5 * np.random.default_rng(0).normal(size=500)
    shape, x, y = windows(values)
    told = stream(made(name, shape), x, y, 10)
    assert np.median(told.deviation[1000:1100]) > 0.15  # the least error that a forecast can have is 0.5


@pytest.mark.parametrize("name", MODELS)
def test_rows_within_the_limit_are_learned_as_they_are(name: str) -> None:
    shape, x, y = windows(series(1000))
    one, other = (stream(made(name, shape, limit=limit), x, y) for limit in (8.0, None))
    assert np.array_equal(one.error, other.error) and np.array_equal(one.deviation, other.deviation)


def test_the_limit_is_of_each_column_and_waits_until_the_model_is_settled() -> None:
    shape = Shape(targets=("y", "z"), horizon=1, lags=3, past=("y", "z"), future=())
    limit = Winsoriser(shape, 3.0)
    zero = torch.zeros(2, 2, dtype=torch.float64)
    issued = Gaussian(zero + 1.0, zero, zero + torch.tensor([1.0, 4.0]))
    y = torch.tensor([[9.0, -9.0], [torch.nan, 5.0]], dtype=torch.float64)
    rows = torch.tensor([99.0, 100.0])
    nan = torch.nan
    wanted = torch.tensor([[9.0, -5.0], [nan, 5.0]], dtype=torch.float64)
    torch.testing.assert_close(limit(y, issued, rows), wanted, equal_nan=True)
    rate = 1 - np.exp(-2 / 8)  # of 2 (L + H) rows
    assert limit.excess.tolist() == pytest.approx([0.0, 0.5 * rate])


def test_a_row_weighs_no_more_than_its_direction_unless_that_lasts() -> None:
    limit = Winsoriser(Shape(targets=("y",), horizon=2, lags=6, past=("y",), future=()), 5.0)
    packed, lever = Packed.of(torch.tensor([0, 0, 1])), torch.tensor([8.0, 0.5, 8.0])[[0, 1, 2, 2]].view(2, 2, 1)
    rows, far = torch.tensor([1e3, 99.0]), torch.zeros(2, dtype=torch.float64)
    weights, far = limit.weighed(packed.there, lever, rows, far)
    assert weights[..., 0].tolist() == [[0.125, 1.0], [1.0, 0.0]]  # the second is not settled, and has one window
    assert far.tolist() == pytest.approx([0.5 * (1 - np.exp(-2 / 16)), 0.0])
    one, found = Packed.of(torch.tensor([0])), list[float]()
    for _ in range(14):
        weights, far = limit.weighed(one.there, lever[:1, :1], rows[:1], far[:1])
        found.append(float(weights))
    assert found[:9] == [0.125] * 9 and found[-2:] == [1.0] * 2
    assert Winsoriser(REGRESSION, None).weighed(packed.there, lever, rows, far)[0].flatten().tolist() == [
        1.0,
        1.0,
        1.0,
        0.0,
    ]


def test_what_lasts_is_not_limited_and_a_glitch_of_its_full_length_is() -> None:
    shape = Shape(targets=("y",), horizon=2, lags=6, past=("y",), future=())
    one = torch.ones(1, 2, dtype=torch.float64)
    issued, limited = Gaussian(0 * one, 0 * one, one), []
    limit = Winsoriser(shape, 5.0)
    for _ in range(14):  # a glitch stands in 8 windows
        limited.append(bool((limit(100 * one, issued, torch.tensor(1e3)) == 5.0).all()))
    assert limited == [True] * 12 + [False] * 2  # 16 ln 2 = 11.1 rows
    for _ in range(20):
        limit(one, issued, torch.tensor(1e3))
    assert (limit(100 * one, issued, torch.tensor(1e3)) == 5.0).all()
