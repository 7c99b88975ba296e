"""Scores against the formulas written out over a whole frame of forecasts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from streamgp.base import Shape
from streamgp.forecasting.scores import Scores
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.testing import check_stateful
from tests.forecasting.frames import CALIBRATION, SHAPE, due_of, frame, normal

LEVELS = (80.0, 95.0)


def tensors(data: dict[str, np.ndarray], rows: slice = slice(None)) -> tuple[Gaussian, list[torch.Tensor]]:
    mean, latent, noise, y, column = (
        torch.from_numpy(data[name][rows]) for name in ("mean", "latent", "noise", "y", "column")
    )
    quantiles = normal(data)[:, rows]
    return Gaussian(mean[:, None], latent[:, None], noise[:, None]), [y, column, quantiles]


@cache
def crps(mean: float, sd: float, y: float) -> float:
    """∫ (F(x) − 1{x ≥ y})² dx, the definition."""
    low = quad(lambda x: norm.cdf(x, mean, sd) ** 2, mean - 12 * sd, y, epsabs=1e-10)[0]
    high = quad(lambda x: norm.sf(x, mean, sd) ** 2, y, mean + 12 * sd, epsabs=1e-10)[0]
    return float(low + high)


def direct(data: dict[str, np.ndarray], chosen: np.ndarray) -> dict[str, float]:
    mean, y = data["mean"][chosen], data["y"][chosen]
    sd, wider = np.sqrt(data["latent"] + data["noise"])[chosen], data["wider"][chosen]
    error, out = np.abs(y - mean), {}
    out["rmse"], out["mae"] = float(np.sqrt(np.mean(error**2))), float(error.mean())
    out["nlpd"] = float(-norm.logpdf(y, mean, sd).mean())
    out["crps"] = float(np.mean([crps(*three) for three in zip(mean, sd, y, strict=True)]))
    for level in LEVELS:
        half = norm.ppf(0.5 + level / 200) * sd
        out[f"coverage{level:g}"] = float((error <= wider * half).mean())
        out[f"raw_coverage{level:g}"] = float((error <= half).mean())
        out[f"width{level:g}"] = float((2 * wider * half).mean())
        out[f"raw_width{level:g}"] = float((2 * half).mean())
        for name, width in (("interval_score", wider * half), ("raw_interval_score", half)):
            outside = np.maximum(error - width, 0.0)
            out[f"{name}{level:g}"] = float((2 * width + 2 / (1 - level / 100) * outside).mean())
    return out


def check(figures: dict, wanted: dict[str, float]) -> None:
    for name, value in wanted.items():
        word = name.rstrip("0123456789")
        got = figures[word] if word == name else figures[word][name[len(word) :]]
        assert got == pytest.approx(value, rel=1e-8), name


def test_every_score_overall_per_step_and_per_target() -> None:
    data = frame(120, 0)
    scores = Scores(SHAPE, CALIBRATION)
    rng = np.random.default_rng(1)
    before, season = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    before[3, 0] = np.nan
    scores.scale(torch.from_numpy(before), torch.from_numpy(season))
    for start in range(0, 120, 50):
        issued, (y, column, quantiles) = tensors(data, slice(start, start + 50))
        scores.add(due_of(issued, y, column, quantiles))
    summary = scores.summary()
    column = data["column"]
    assert summary["scored"] == scores.scored == 120
    check(summary, direct(data, np.full(120, True)))
    for step in (1, 2, 3):
        check(summary["steps"][step - 1], direct(data, column % 3 == step - 1) | {"step": step})
    scale = np.nanmean(np.abs(before - season), axis=0)
    ratios = []
    for o, name in enumerate("yz"):
        wanted = direct(data, column // 3 == o)
        check(summary["targets"][name], wanted | {"mase": wanted["mae"] / scale[o]})
        ratios.append(wanted["mae"] / scale[o])
        check(summary["targets"][name]["steps"][1], direct(data, column == 3 * o + 1) | {"step": 2})
    assert summary["mase"] == pytest.approx(np.mean(ratios))


def test_mase_is_the_mean_over_the_series_each_by_its_own_scale() -> None:
    data = frame(120, 5)
    issued, (y, column, quantiles) = tensors(data)
    series, scale = torch.arange(120) % 3, np.array([1.0, 50.0])
    scores = Scores(SHAPE, CALIBRATION)
    season = torch.zeros(4, 2, dtype=torch.float64)
    for code, size in enumerate(scale):
        scores.scale(season + size, season, torch.full((4,), code))
    scores.add(due_of(issued, y, column, quantiles)._replace(series=series))
    code = series.numpy()
    each = [
        np.mean([direct(data, (column.numpy() // 3 == o) & (code == s))["mae"] / scale[s] for s in (0, 1)])
        for o in (0, 1)
    ]
    assert scores.summary()["mase"] == pytest.approx(np.mean(each))  # series 2 has no scale
    lap = scores.lap()
    assert lap["mase"] == pytest.approx(np.mean(each)) and scores.lap()["mase"] is None
    assert scores.naive()["series"] == 2  # type: ignore[index, call-overload]
    after = Scores(SHAPE, CALIBRATION)
    after.restore(*scores.state())
    assert after.summary() == scores.summary()


def test_the_naive_error_is_exact_up_to_a_season_and_a_bound_beyond() -> None:
    y = np.cumsum(np.random.default_rng(0).normal(size=500))
    assert Scores(SHAPE, CALIBRATION).past_naive_mae() is None
    for season, horizon in ((4, 3), (1, 3)):
        shape = Shape(("y",), horizon, 2, ("y", "season(y)"), ("season(y)",), season=season)
        scores = Scores(shape, CALIBRATION)
        truth, back = torch.from_numpy(y[season:, None]), torch.from_numpy(y[:-season, None])
        scores.follow(truth[:200], back[:200])
        scores.follow(truth[200:], back[200:])
        seasons = -(-np.arange(1, horizon + 1) // season)
        direct = np.mean([np.abs(y[k * season :] - y[: -k * season]).mean() for k in seasons])
        found = scores.past_naive_mae()
        assert found is not None and found == pytest.approx(scores.lap()["naive_mae"])
        assert found == pytest.approx(direct) if horizon <= season else direct < found < 2.0 * direct


def test_laps_are_what_came_since() -> None:
    data = frame(90, 3)
    scores = Scores(SHAPE, CALIBRATION)
    for start in (0, 30, 60):
        issued, (y, column, quantiles) = tensors(data, slice(start, start + 30))
        scores.add(due_of(issued, y, column, quantiles))
        part = np.zeros(90, bool)
        part[start : start + 30] = True
        check(scores.lap(), direct(data, part))
    assert scores.lap()["rmse"] is None
    check(scores.summary(), direct(data, np.full(90, True)))


def test_nothing_scored_is_none_and_not_nan() -> None:
    summary = Scores(SHAPE, CALIBRATION).summary()
    assert summary["scored"] == 0
    for name in ("rmse", "mae", "nlpd", "crps", "mase"):
        assert summary[name] is None
    assert summary["coverage"] == {"80": None, "95": None}
    assert len(summary["steps"]) == 3


def test_mase_needs_a_scale() -> None:
    issued, (y, column, quantiles) = tensors(frame(20, 4))
    regression = Shape(targets=("y", "z"), horizon=3, lags=0, past=("y", "z", "u"), future=("u",))
    for shape, change in ((SHAPE, 0.0), (regression, 1.0)):
        scores = Scores(shape, CALIBRATION)
        scores.scale(torch.full((5, 2), change, dtype=torch.float64), torch.zeros(5, 2, dtype=torch.float64))
        scores.add(due_of(issued, y, column, quantiles))
        assert scores.summary()["mase"] is None


def test_other_families_are_scored_with_their_own_quantiles() -> None:
    rows = 4000
    generator = torch.Generator().manual_seed(0)
    one = torch.ones(rows, 1, dtype=torch.float64)
    issued = StudentT(0 * one, 2 * one, 3 * one, one)
    y = issued.sample(1, generator)[0, :, 0]
    scores = Scores(SHAPE, CALIBRATION)
    wide = torch.linspace(-9, 9, len(CALIBRATION.probabilities)).double()[:, None].expand(-1, rows)
    scores.add(due_of(issued, y, torch.zeros(rows, dtype=torch.int64), wide))
    summary = scores.summary()
    assert summary["raw_coverage"]["95"] == pytest.approx(0.95, abs=0.01)
    assert summary["nlpd"] == pytest.approx(-issued.log_prob(y[:, None]).mean().item())


def test_state() -> None:
    def advance(scores: Scores, step: int) -> dict:
        issued, (y, column, quantiles) = tensors(frame(20, step))
        scores.scale(y[:, None].expand(-1, 2), quantiles[:2].T)
        scores.add(due_of(issued, y, column, quantiles))
        return scores.summary() | {"lap": scores.lap() if step % 2 else None}

    check_stateful(lambda: Scores(SHAPE, CALIBRATION), advance, 5, lambda a, b: a == b)
