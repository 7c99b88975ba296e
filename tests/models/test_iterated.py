"""Iterated forecasts: a vector autoregression rolled in NumPy, what is known ahead, limits, and its part in a mix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models import ensemble, iterated
from streamgp.testing import SHAPES, check_model

LAGS, HORIZON = 4, 6
SHAPE = Shape(targets=("y",), horizon=HORIZON, lags=LAGS, past=("y", "k", "u"), future=("k",))
"""A known input before one of which only the past is seen."""


def system(rows: int, noise: float) -> np.ndarray:
    """(rows, 3) y, u, k: a stable VAR of y and u with the present k."""
    g = np.random.default_rng(0)
    found = np.zeros((rows, 3))
    found[:, 2] = g.normal(size=rows)
    for at in range(2, rows):
        y, u = found[at - 1, :2]
        found[at, 0] = 0.7 * y + 0.4 * u - 0.3 * found[at - 2, 0] + 0.8 * found[at, 2] + noise * g.normal()
        found[at, 1] = 0.5 * u - 0.2 * y + 0.3 * found[at - 1, 2] + noise * g.normal()
    return found


def windows(values: np.ndarray, shape: Shape, columns: list[int], known: list[int]) -> tuple[Inputs, Tensor]:
    """Windows of rows whose past has these columns, and whose known inputs are those; truths of the first columns."""
    v = torch.from_numpy(values).unfold(0, shape.lags + shape.horizon, 1).transpose(1, 2)
    past, ahead = v[:, : shape.lags, columns], v[:, shape.lags :]
    return Inputs(past, ahead[..., known]), ahead[..., columns[: shape.outputs]].transpose(1, 2).flatten(1)


def learned(model: iterated.Iterated | ensemble.model.Ensemble, x: Inputs, y: Tensor, batch: int = 200) -> None:
    for start in range(0, len(y), batch):
        rows = slice(start, start + batch)
        assert model.update(x.rows(rows), y[rows], model.predict(x.rows(rows))).healthy


def test_forecasts_are_those_of_a_least_squares_var_rolled_row_by_row() -> None:
    values = system(3000, 0.05)
    x, y = windows(values, SHAPE, [0, 2, 1], [2])
    model = iterated.build(iterated.Config(), SHAPE)
    learned(model, x, y)
    lags = LAGS - 1
    seen = len(y) + lags  # rows in the past of a window
    rows = np.arange(lags, seen + 1)
    past = np.concatenate([values[rows - back] for back in range(lags, 0, -1)], 1)
    design = np.concatenate([np.ones((len(rows), 1)), past, values[rows, 2:]], 1)
    weights = np.linalg.lstsq(design, values[rows, :2], rcond=None)[0]
    for at in (1500, 2500):
        run = values[: at + HORIZON].copy()
        run[at:, :2] = np.nan
        for step in range(at, at + HORIZON):
            run[step, :2] = np.concatenate([[1.0], run[step - lags : step].ravel(), run[step, 2:]]) @ weights
        plain = model.predict(x.rows(slice(at - LAGS, at - LAGS + 1))).experts[0, 0]
        assert np.allclose(plain.numpy(), run[at:, 0], atol=2e-3)
    issued = model.predict(x)
    assert (issued.mean - y).std() < 0.3 * y.std()
    assert ((issued.mean - y).abs() < 2 * issued.variance.sqrt()).to(FLOAT).mean() > 0.9


def test_laws() -> None:
    check_model(lambda shape: iterated.build(iterated.Config(), shape), [SHAPE])
    with pytest.raises(UsageError, match="row before"):
        iterated.build(iterated.Config(), replace(SHAPE, lags=1))


def test_forecasts_stay_in_bounds_when_what_was_learned_explodes() -> None:
    """A regression of growth, asked far outside: as much again as the range, and never beyond numbers."""
    shape = Shape(targets=("y",), horizon=400, lags=3, past=("y",), future=())
    values = 1.05 ** np.arange(600.0)[:, None] / 1e3
    x, y = windows(values, shape, [0], [])
    model = iterated.build(iterated.Config(), shape)
    learned(model, x, y, 50)
    found = model.predict(x).experts
    assert torch.isfinite(found).all()
    top = torch.maximum(x.past.amax((1, 2)), x.past[:-1].max())
    assert (found <= 2.0 * top[:, None] + 1e-9).all() and found.max() > 1.9 * top.min()


def two_tanks(rows: int) -> np.ndarray:
    """(rows, 2) level of the lower of two tanks, and the pump."""
    g = np.random.default_rng(1)
    u = np.repeat(g.uniform(0.1, 1.0, rows), g.integers(10, 40, rows))[:rows]
    level, found = np.array([0.3, 0.3]), np.empty(rows)
    for at, now in enumerate(u):
        out = 0.12 * np.sqrt(np.maximum(level, 0.0))
        level = level + np.array([0.12 * now - out[0], out[0] - out[1]])
        found[at] = level[1]
    return np.stack([found + 0.005 * g.normal(size=rows), u], 1)


def mixed(x: Inputs, y: Tensor, shape: Shape) -> tuple[ensemble.model.Ensemble, Tensor]:
    """Linear, iterated and persistence, and the mean absolute errors by step of the mix and its experts, at the end."""
    config = ensemble.Config(experts=("linear", "iterated", "persistence"))
    model = ensemble.build(config, shape)
    end = len(y) - 500
    learned(model, x.rows(slice(0, end)), y[:end])
    issued = model.predict(x.rows(slice(end, None)))
    error = (torch.cat([issued.mean[None], issued.experts]) - y[end:]).abs().mean(1)
    assert sorted(model.shares()) == ["iterated", "linear", "persistence"]
    assert torch.allclose(sum(model.shares().values()), torch.ones(shape.horizon, dtype=FLOAT))  # type: ignore[arg-type]
    return model, error


def test_a_mix_takes_the_iterated_forecast_of_a_system_that_bends() -> None:
    shape = Shape(targets=("y",), horizon=30, lags=10, past=("y", "u"), future=("u",))
    model, error = mixed(*windows(two_tanks(4000), shape, [0, 1], [1]), shape)
    assert (model.shares()["iterated"][9:] > 0.5).all()
    assert (error[0, 9:] < 0.6 * error[1, 9:]).all()  # of the columns


def test_a_mix_takes_the_columns_where_one_step_says_nothing_of_many() -> None:
    """y repeats itself after 12 rows, and is noise within them: no row tells the next from 4 lags but an input does."""
    g = np.random.default_rng(2)
    signal = g.normal(size=4000)
    values = np.stack([np.roll(signal, 8) + 0.1 * g.normal(size=4000), signal], 1)[50:]
    shape = Shape(targets=("y",), horizon=8, lags=3, past=("y", "u"), future=())
    model, error = mixed(*windows(values, shape, [0, 1], []), shape)
    assert model.shares()["linear"][5:].min() > 0.9
    assert (error[0] < 1.05 * error[1:].amin(0)).all()


def test_it_is_left_out_where_linear_is_as_good() -> None:
    names = [ensemble.build(ensemble.Config(), shape).names for shape in (*SHAPES[:2], SHAPE, replace(SHAPE, lags=1))]
    assert ["iterated" in one for one in names] == [False, False, True, False]
    assert ensemble.build(ensemble.Config(experts=("iterated", "persistence")), SHAPES[1]).names[0] == "iterated"
