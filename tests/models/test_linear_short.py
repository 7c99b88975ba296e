"""The regression on the short season is `linear` of windows with no other, and the mix of both is the better one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from streamgp.base import Inputs
from streamgp.models import ensemble, linear, linear_short
from streamgp.models.linear import DirectLinear
from streamgp.testing import check_model
from streamgp.testing.models import SEASONS
from streamgp.windows.windows import Windows, WindowSpec

HORIZON = 6


def windows(y: np.ndarray, k: np.ndarray, seasons: tuple[int, ...]) -> tuple[Inputs, Tensor, Tensor, Windows]:
    """Windows of a stream, their truths (N, H), and the rows (N,) that they are asked at."""
    spec = WindowSpec(targets=("y",), known=("k",), lags=4, horizon=HORIZON, season=seasons[-1], seasons=seasons)
    made = Windows(spec)
    asks, _ = made.push(pa.record_batch({"y": y, "k": k}))
    return asks.x, torch.from_numpy(y)[asks.position[:, None] + torch.arange(1, HORIZON + 1)], asks.position, made


def stream(rows: int, weekend: float, drift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A day that is smaller at the weekend by this part and whose size drifts, a known input, and slow noise."""
    generator, at = np.random.default_rng(3), np.arange(rows)
    k, slow = np.cumsum(generator.standard_normal(rows)) * 0.2, np.zeros(rows)
    for row in range(1, rows):
        slow[row] = 0.9 * slow[row - 1] + 0.3 * generator.standard_normal()
    size = np.exp(np.cumsum(generator.standard_normal(rows // 24 + 1)) * drift)[at // 24]
    day = 5 * size * np.sin(2 * np.pi * at / 24) * np.where(at % 168 >= 120, 1.0 - weekend, 1.0)
    return 50 + day + 2 * k + slow, k


def error(model: linear.Linear | DirectLinear | ensemble.Ensemble, x: Inputs, y: Tensor, first: int = 700) -> float:
    """Mean absolute error from a row on, each day forecast before it is learned."""
    found = []
    for start in range(0, len(y), 24):
        rows = slice(start, start + 24)
        issued = model.predict(x.rows(rows))
        found.append((issued.mean - y[rows]).abs())
        model.update(x.rows(rows), y[rows], issued)
    return float(torch.cat(found)[first:].mean())


@pytest.mark.slow
@pytest.mark.parametrize("panel", [False, True])
def test_it_keeps_the_laws(panel: bool) -> None:
    check_model(lambda shape: linear_short.build(linear_short.Config(), shape), shapes=[replace(SEASONS, panel=panel)])


def test_it_is_linear_of_windows_with_the_short_season_alone() -> None:
    y, k = stream(420, weekend=0.4)
    x, truth, at, both = windows(y, k, (24, 168))
    short, _, there, alone = windows(y, k, (24,))
    short = short.rows(torch.isin(there, at))
    ours, theirs = (
        module.build(module.Config(), made.shape) for module, made in ((linear_short, both), (linear, alone))
    )
    assert isinstance(ours, DirectLinear) and isinstance(theirs, DirectLinear)
    for start in range(0, len(truth), 24):
        rows = slice(start, start + 24)
        issued, wanted = ours.predict(x.rows(rows)), theirs.predict(short.rows(rows))
        torch.testing.assert_close(issued.mean, wanted.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(issued.noise, wanted.noise, rtol=1e-9, atol=1e-12)
        ours.update(x.rows(rows), truth[rows], issued)
        theirs.update(short.rows(rows), truth[rows], wanted)


def test_with_one_season_it_is_linear_and_idle_beside_it() -> None:
    *_, made = windows(*stream(400, weekend=0.4), (24,))
    config = linear_short.Config()
    assert config.idle(made.shape, ("linear",)) and not config.idle(made.shape, ("svdgp",))
    built = linear_short.build(config, made.shape)
    assert isinstance(built, DirectLinear) and built.regression.context == made.shape.context
    assert not config.idle(SEASONS, ("linear",)) and config.idle(replace(SEASONS, context=None), ("linear",))
    assert "linear_short" in ensemble.build(ensemble.Config(), SEASONS).names


@pytest.mark.slow
@pytest.mark.parametrize(("weekend", "drift"), [(0.8, 0.0), (0.0, 0.15)])
def test_the_mix_is_as_good_as_the_better_one(weekend: float, drift: float) -> None:
    x, y, _, made = windows(*stream(2000, weekend, drift), (24, 168))
    experts = ("linear", "linear_short", "persistence")
    mixed = error(ensemble.build(ensemble.Config(experts=experts), made.shape), x, y)
    each = [error(module.build(module.Config(), made.shape), x, y) for module in (linear, linear_short)]
    assert mixed < 1.01 * min(each), (mixed, each)
