"""Pictures: what is drawn, where, and from what."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from streamgp_data.moments import Moments
from streamgp_pipelines.adapters import plots
from streamgp_pipelines.adapters.plots import plot_alarms, plot_curves, plot_forecast, plot_reliability, plot_steps
from streamgp_pipelines.adapters.run_plots import draw_run
from streamgp_pipelines.learning.curves import Curves

START = datetime(2014, 12, 1)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved in this test."""
    saved: list[Figure] = []
    save = plots.save

    def keep(figure: Figure, path: Path) -> Path:
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(plots, "save", keep)
    return saved


def frames(series: int, clock: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A history of 96 rows and a forecast of 8 steps for each series."""
    ds = [START + timedelta(minutes=30 * step) if clock else step for step in range(104)]
    history, forecast = [], []
    for index in range(series):
        y = [math.sin(step / 8) + index for step in range(96)]
        history.append(pl.DataFrame({"unique_id": f"s{index}", "ds": ds[:96], "y": y}))
        mean = [float(index)] * 8
        bands = {f"m-{side}-{level}": [index + sign * level / 80] * 8 for level in (80, 95) for side, sign in SIDES}
        forecast.append(pl.DataFrame({"unique_id": f"s{index}", "ds": ds[96:], "m": mean} | bands))
    return pl.concat(history), pl.concat(forecast)


SIDES = (("lo", -1.0), ("hi", 1.0))


@pytest.mark.parametrize("clock", [True, False])
def test_a_forecast_shows_history_mean_and_one_band_a_level(tmp_path: Path, figures: list[Figure], clock: bool) -> None:
    history, forecast = frames(1, clock)
    path = plot_forecast(forecast, history, tmp_path / "new" / "f.png", model="m", levels=(80, 95), unit="GW")
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figures[0].axes
    assert len(axes.collections) == 2 and axes.get_ylabel() == "GW"
    past, mean = axes.lines
    assert len(past.get_xdata()) == 96
    assert len(mean.get_xdata()) == 9  # joined to the last value seen
    assert mean.get_ydata()[0] == past.get_ydata()[-1]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["history", "95 %", "80 %", "forecast"]


@pytest.mark.parametrize(
    ("form", "label", "last"), [("elapsed-s", "elapsed, s", 10.3), ("epoch-s", "", 0.0), ("step", "step", 103)]
)
def test_times_are_drawn_as_the_source_has_them(
    tmp_path: Path, figures: list[Figure], form: str, label: str, last: float
) -> None:
    moments = Moments(clock=form != "step", form=form, whole=False)
    ns = np.arange(104) * (1 if form == "step" else 100_000_000)
    parts = [part.with_columns(ds=moments.write(at)) for part, at in zip(frames(1), (ns[:96], ns[96:]), strict=True)]
    plot_forecast(parts[1], parts[0], tmp_path / "f.png", model="m", levels=(80,), moments=moments)
    (axes,) = figures[0].axes
    end = axes.lines[1].get_xdata()[-1]
    assert axes.get_xlabel() == label
    assert end == (datetime(1970, 1, 1, 0, 0, 10, 300_000) if form == "epoch-s" else last)


@pytest.mark.parametrize(
    ("every", "label"),
    [(30, r"12:00|[1-9]\d? Dec"), (1, r"\d\d:\d\d|[1-9]\d? Dec"), (1440, r"\d+ Dec|[A-Z]..( \d{4})?")],
)
def test_axes_are_read_by_people_and_the_legend_covers_nothing(
    tmp_path: Path, figures: list[Figure], every: int, label: str
) -> None:
    history, forecast = frames(1)
    later = (pl.col("ds") - START) * every / 30 + START
    large = [part.with_columns(later, pl.col("^[my].*$") * 1000 + 12_000) for part in (history, forecast)]
    plot_forecast(large[1], large[0], tmp_path / "f.png", model="m", levels=(80, 90, 95)[::2], target="s0", unit="MW")
    (axes,) = figures[0].axes
    assert axes.get_ylabel() == "s0, MW" and axes.get_title(loc="left") == ""  # said once
    numbers = [text.get_text() for text in axes.get_yticklabels()]
    assert "12,000" in numbers and all(re.fullmatch(r"\d\d?,\d{3}", text) for text in numbers)
    dates = [text.get_text() for text in axes.get_xticklabels()]
    assert 3 <= len(dates) <= 10 and all(re.fullmatch(label, text) for text in dates), dates
    legend = axes.get_legend().get_window_extent()
    assert legend.y0 >= axes.bbox.y1 - 1 and legend.x1 <= figures[0].bbox.x1


def test_several_series_are_panels_up_to_a_limit(tmp_path: Path, figures: list[Figure]) -> None:
    history, forecast = frames(9)
    plot_forecast(forecast, history, tmp_path / "f.svg", model="m", levels=(80,))
    assert [axes.get_title(loc="left") for axes in figures[0].axes] == [f"s{index}" for index in range(plots.PANELS)]
    assert "the first 6 of 9 series" in figures[0].get_suptitle()


def test_the_truth_is_drawn_over_the_bands_and_gaps_stay_gaps(tmp_path: Path, figures: list[Figure]) -> None:
    history, forecast = frames(1)
    late = pl.col("ds") >= START + timedelta(hours=47)
    history = history.with_columns(y=pl.when(late).then(None).otherwise(pl.col("y")))
    truth = forecast.select("unique_id", "ds", y="m")
    plot_forecast(forecast, history, tmp_path / "f.png", model="m", levels=(95,), truth=truth)
    (axes,) = figures[0].axes
    assert len(axes.lines) == 3 and len(axes.lines[2].get_xdata()) == 8


def test_outcomes_are_points_and_probabilities_are_not_joined_to_them(tmp_path: Path, figures: list[Figure]) -> None:
    history, forecast = frames(1)
    history = history.with_columns(y=(pl.col("y") > 0).cast(pl.Float64))
    plot_forecast(forecast, history, tmp_path / "f.png", model="m", levels=(), binary=True)
    (axes,) = figures[0].axes
    past, chance = axes.lines
    assert not axes.collections and past.get_linestyle() == "None" and set(past.get_ydata()) == {0, 1}
    assert len(chance.get_xdata()) == 8 and chance.get_label() == "probability of 1"


def test_reliability_is_drawn_with_intervals_that_hold_it(tmp_path: Path, figures: list[Figure]) -> None:
    bins = [
        {"probability": 0.05, "frequency": 0.0, "forecasts": 3},
        {"probability": 0.6, "frequency": 0.7, "forecasts": 90},
    ]
    plot_reliability({"rain": bins, "hail": bins[1:]}, tmp_path / "r.png")
    (axes,) = figures[0].axes
    rain, hail = axes.containers
    assert list(rain.lines[0].get_ydata()) == [0.0, 0.7] and list(hail.lines[0].get_xdata()) == [0.6]
    (few, many) = rain.lines[2][0].get_segments()
    assert few[0][1] == 0 and few[1][1] > 0.5 and 0.59 < many[0][1] < 0.7 < many[1][1] < 0.79


def test_alarms_are_marked_by_kind_at_their_values(tmp_path: Path, figures: list[Figure]) -> None:
    history, _ = frames(2)
    raised = pl.when(pl.int_range(pl.len()).over("unique_id") == 40).then(pl.lit("anomaly+stuck"))
    judged = history.with_columns((pl.col("y") - 1).alias("m-lo-95"), (pl.col("y") + 1).alias("m-hi-95"), alarm=raised)
    path = plot_alarms(judged, tmp_path / "a.png", model="m", level=95.0, moments=Moments(), target="y", unit="MW")
    assert path.exists() and figures[0].get_suptitle() == "Alarms of the newest 96 rows"
    for index, axes in enumerate(figures[0].axes):
        assert axes.get_title(loc="left") == f"s{index}" and axes.get_ylabel() == "y, MW"
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == ["95 %, one step ahead", "value", "anomaly (1)", "change (0)", "stuck (1)"]
        value, anomaly, change, stuck = axes.lines
        assert list(anomaly.get_ydata()) == list(stuck.get_ydata()) == [value.get_ydata()[40]]
        assert len(change.get_xdata()) == 0 and len(axes.collections) == 1


def test_curves_carry_their_nominal_value(tmp_path: Path, figures: list[Figure]) -> None:
    points = {"95 %": [(1.0, 0.9), (2.0, 0.96)], "80 %": [(1.0, 0.8), (2.0, 0.81)]}
    plot_curves(points, tmp_path / "c.png", title="coverage", ylabel="share", nominal={"95 %": 0.95})
    (axes,) = figures[0].axes
    assert len(axes.lines) == 3 and set(axes.lines[1].get_ydata()) == {0.95}


def test_steps_begin_at_one(tmp_path: Path, figures: list[Figure]) -> None:
    plot_steps({"rmse": [0.1, 0.2, 0.3]}, tmp_path / "s.png", title="error", ylabel="GW")
    assert list(figures[0].axes[0].lines[0].get_xdata()) == [1, 2, 3]


def test_a_run_is_drawn_from_its_curves_and_its_summary(tmp_path: Path) -> None:
    curves = Curves()
    for rows in range(256, 2560, 256):
        scored = {"rmse": 0.2, "mae": 0.1, "crps": 0.1, "coverage_95": 0.94, "width_95": 1.0}
        scored |= {"weight_linear_1": 0.6, "weight_svdgp": 0.4}
        curves.add(rows, 1.0, {"loss": 1.0} if rows < 600 else scored)
    steps = [{"step": step, "rmse": 0.1 * step, "mae": 0.1, "crps": 0.05} for step in (1, 2, 3)]
    draw_run(curves, {"coverage": {"95": 0.94}, "width": {"95": 1.0}, "steps": steps}, None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "coverage.png",
        "error.png",
        "error_by_step.png",
        "weights.png",
        "width.png",
    ]


def test_a_run_on_outcomes_has_losses_and_reliability_in_place_of_bands(tmp_path: Path) -> None:
    curves = Curves()
    for rows in range(256, 2560, 256):
        curves.add(rows, 1.0, {"rmse": 0.4, "log_loss": 0.5, "brier": 0.16, "calibration_error": 0.03})
    steps = [{"step": step, "rmse": 0.4, "log_loss": 0.5, "brier": 0.2, "calibration_error": 0.1} for step in (1, 2)]
    bins = [{"probability": 0.5, "frequency": 0.45, "forecasts": 100}]
    found = {"log_loss": 0.5, "coverage": {}, "width": {}, "steps": steps, "reliability": bins}
    draw_run(curves, found | {"targets": {"rain": {"reliability": bins}, "hail": {"reliability": []}}}, None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["error.png", "error_by_step.png", "reliability.png"]


def test_a_run_that_scored_nothing_draws_nothing(tmp_path: Path) -> None:
    draw_run(Curves(), {"coverage": {"95": None}, "width": {}, "steps": [{"step": 1, "rmse": None}]}, None, tmp_path)
    assert not list(tmp_path.iterdir())
