"""Seasons that are given as lengths of time, and are rows of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from streamgp import Forecaster
from streamgp.errors import CheckpointError, UsageError
from streamgp_pipelines import load
from streamgp_pipelines.config import ForecastConfig, TrainConfig
from streamgp_pipelines.learning.survey import surveyed, with_shown
from tests.pipelines.worlds import HOUR_NS, config_of, frame_of, make_table, run


@pytest.mark.parametrize("every_ns", [HOUR_NS, None])
@pytest.mark.parametrize(
    ("given", "found"),
    [("24h", (24,)), ("1d,1w", (24, 168)), ("7d, 12", (12, 168)), (["1d", 48], (24, 48)), ("1h", ())],
)
def test_they_are_counted_by_the_interval(
    given: Any, found: tuple[int, ...], every_ns: int | None, tmp_path: Path
) -> None:
    table = make_table(tmp_path / "t", frame_of(400), every_ns=every_ns)
    assert with_shown(config_of(table, tmp_path / "c", season=given), table).season == found


def test_a_run_is_that_of_the_rows(tmp_path: Path) -> None:
    make_table(tmp_path / "t", frame_of(400))
    found = [run(tmp_path / "t", tmp_path / name, season=season) for name, season in (("a", "1d"), ("b", 24))]
    assert found[0]["crps"] == found[1]["crps"]
    run(tmp_path / "t", tmp_path / "a", season=24)  # it goes on
    with pytest.raises(CheckpointError, match="season"):
        run(tmp_path / "t", tmp_path / "a", season="2d")


@pytest.mark.parametrize(
    ("months", "rows", "found"), [(1, 60, (12,)), (3, 60, (4,)), (1, 35, ()), (12, 60, ()), (5, 60, ())]
)
def test_rows_a_month_apart_have_a_year(months: int, rows: int, found: tuple[int, ...], tmp_path: Path) -> None:
    """By the calendar: no number of days leads from one to the next."""
    first = pl.lit(0).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    data = frame_of(rows).with_columns(t=first.dt.offset_by(pl.format("{}mo", pl.int_range(pl.len()) * months)))
    table = make_table(tmp_path / "t", data, every_ns=None)
    config = config_of(table, tmp_path / "c", season="clock", warmup=None, horizon=2, lags=None)
    assert with_shown(config, table).season == found
    asked = run(table, tmp_path / "c", season="clock", warmup=None, lags=None, horizon=2)
    assert asked["seasons"] == list(found)
    ahead = load(tmp_path / "c").forecast().frame["ds"]
    assert ahead.dt.day().to_list() == [1, 1] and len(ahead.dt.month().unique()) == (1 if months == 12 else 2)


@pytest.mark.parametrize(
    ("apart", "options", "looks"),
    [
        ("1h", {}, False),
        ("1d", {}, True),
        ("1w", {}, True),
        ("1mo", {}, True),
        ("1d", {"calendar": False}, False),
        ("1d", {"simulate": 3, "horizon": 1}, False),
    ],
)
def test_the_calendar_is_an_input_where_rows_are_a_day_or_more_apart(
    apart: str, options: dict[str, Any], looks: bool, tmp_path: Path
) -> None:
    first = pl.lit(0).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    text = pl.format("{}" + apart.lstrip("1"), pl.int_range(pl.len()))
    table = make_table(tmp_path / "t", frame_of(60).with_columns(t=first.dt.offset_by(text)), every_ns=None)
    config = config_of(table, tmp_path / "c", **{"season": "clock", "warmup": None, "lags": None} | options)
    assert surveyed(config, table)[1].calendar is looks


def test_the_calendar_is_an_input_where_nights_have_no_rows(tmp_path: Path) -> None:
    data = frame_of(2000).filter(OPEN["office hours"][0])
    for every_ns, looks in ((None, True), (HOUR_NS, False)):  # a declared interval makes gaps of the nights
        table = make_table(tmp_path / str(every_ns), data, every_ns=every_ns)
        config = config_of(table, tmp_path / "c", season="clock", warmup=None, lags=None)
        assert surveyed(config, table)[1].calendar is looks


def test_weeks_have_a_year(tmp_path: Path) -> None:
    """The stream holds six of them; no season of 52 rows is looked at."""
    year, noise = 2 * np.pi * np.arange(312) / 52.18, 3 * np.random.default_rng(0).standard_normal(312)
    for at in range(1, 312):
        noise[at] += 0.6 * noise[at - 1]
    first = pl.lit(0).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    weeks = first.dt.offset_by(pl.format("{}w", pl.int_range(pl.len())))
    data = frame_of(312).with_columns(t=weeks, y=40 * np.cos(year) + 12 * np.sin(2 * year) + noise)
    table = make_table(tmp_path / "t", data, every_ns=None)
    options: dict[str, Any] = {"model": "auto", "season": "clock", "lags": None, "warmup": None, "horizon": 4}
    with_year, without = (run(table, tmp_path / str(on), calendar=on, **options)["mae"] for on in (None, False))
    assert with_year < 0.9 * without


OPEN: dict[str, tuple[pl.Expr, tuple[int, ...]]] = {
    "office hours": ((pl.col("t").dt.weekday() <= 5) & pl.col("t").dt.hour().is_between(8, 16), (9, 45)),
    "days of work": ((pl.col("t").dt.weekday() <= 5) & (pl.col("t").dt.hour() == 0), (5,)),
    "four times a day": (pl.col("t").dt.hour().is_in([7, 9, 12, 20]), (4, 28)),
    "a row lost each eleventh day": (  # most rows of a week ago are not 63 back, nor 168
        pl.col("t").dt.hour().is_between(8, 16)
        & ~((pl.col("t").dt.hour() == 12) & (pl.col("t").dt.ordinal_day() % 11 == 5)),
        (9,),
    ),
    "a hole a month": (pl.int_range(pl.len()) % 720 > 5, (24, 168)),
    "holes everywhere": (pl.int_range(pl.len()) * 37 % 29 > 1, (24, 168)),
}


@pytest.mark.parametrize("named", OPEN)
def test_rows_of_a_day_are_counted_where_it_has_nights(named: str, tmp_path: Path) -> None:
    """Windows count rows: the row of a day before is 9 rows back where an office is open for 9 hours, not 24."""
    kept, found = OPEN[named]
    data = frame_of(5000).filter(kept)
    table = make_table(tmp_path / "t", data, every_ns=None)
    config = config_of(table, tmp_path / "c", season="clock", warmup=None, lags=None)
    assert with_shown(config, table).season == found
    if named == "a row lost each eleventh day":
        return  # a week that is named is by the interval where rows do not agree
    in_time = config_of(table, tmp_path / "c", season="1d,1w", warmup=None, lags=None)
    assert with_shown(in_time, table).season == found
    if named == "office hours":  # a declared interval makes gaps of the nights
        declared = make_table(tmp_path / "d", data, every_ns=3600 * 10**9)
        assert with_shown(config_of(declared, tmp_path / "c", season="clock", warmup=None), declared).season == (
            24,
            168,
        )


def test_what_is_no_whole_number_of_rows_is_refused_with_one_that_is(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(400))
    with pytest.raises(UsageError, match=r"--season 150m: .* one every 1h") as refused:
        with_shown(config_of(table, tmp_path / "c", season="150m"), table)
    assert "2h are 2 rows" in refused.value.hint
    uneven = frame_of(400).with_columns(pl.col("t") + pl.duration(minutes=pl.int_range(pl.len()) ** 2 % 59))
    table = make_table(tmp_path / "u", uneven, every_ns=None)
    with pytest.raises(UsageError, match="not at one interval"):
        with_shown(config_of(table, tmp_path / "c", season="1d"), table)
    table = make_table(tmp_path / "s", frame_of(400).with_columns(t=pl.int_range(pl.len())), every_ns=1)
    with pytest.raises(UsageError, match="no clock"):
        with_shown(config_of(table, tmp_path / "c", season="1d"), table)


@pytest.mark.parametrize("given", ["1x", "1d,x", "0h", "-1d", "1d,clock", "1.5"])
def test_what_is_neither_rows_nor_time_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="lengths of time such as 1d,7d"):
        TrainConfig.read({"table": "t", "season": given})


def test_steps_are_rows() -> None:
    for name in ("horizon", "lags"):
        with pytest.raises(
            UsageError,
            match=f"--{name}: 24h is a length of time.* every 1h 24, .* every 30m 48, .* every 15m 96",
        ):
            TrainConfig.read({"table": "t", name: "24h"})
    with pytest.raises(UsageError, match=r"--horizon: 100ms is a length of time, and steps are rows of the table$"):
        ForecastConfig.read({"checkpoint": "c", "horizon": "100ms"})


def test_regression_has_no_season_in_time_either() -> None:
    with pytest.raises(UsageError, match="--lags 0"):
        TrainConfig.read({"table": "t", "lags": 0, "season": "1d"})


def test_a_forecaster_takes_them(tmp_path: Path) -> None:
    given: dict[str, Any] = {"every": "1h", "model": "linear", "batch": 64}
    made = [Forecaster("y", season=season, **given).fit(frame_of(300)) for season in ("1d", 24)]
    assert made[0].scores["crps"] == made[1].scores["crps"]
