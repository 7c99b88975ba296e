"""Which columns a run reads: names, patterns, roles, and what is said when one is not there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from streamgp.errors import SchemaError, UsageError
from streamgp.windows.windows import WindowSpec
from streamgp_data.table import TableMeta
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.columns import window_spec
from streamgp_pipelines.learning.session import columns_read, make_schedule, open_session
from streamgp_pipelines.learning.survey import surveyed
from tests.pipelines.worlds import HOUR_NS, config_of, frame_of, make_table
from tests.words import names, naming

SCHEMA = pa.schema(
    [
        ("_seq", pa.int64()),
        ("t", pa.timestamp("us", "UTC")),
        ("site", pa.string()),
        ("load", pa.float64()),
        ("temp_in", pa.float32()),
        ("temp_out", pa.float64()),
        ("holiday", pa.bool_()),
        ("count", pa.int32()),
        ("note", pa.string()),
    ]
)
CLOCK = TableMeta(time="t", series="site", zone="Europe/Berlin", every_ns=1_800 * 10**9)
ROWS = TableMeta()


def spec(meta: TableMeta = CLOCK, schema: pa.Schema = SCHEMA, **options: Any) -> WindowSpec:
    config = TrainConfig.read({"table": "t", "target": "load", "season": "none", **options})
    return window_spec(config, schema, meta, (48, 336))


def test_defaults() -> None:
    found = spec()
    assert found == WindowSpec(
        targets=("load",), lags=24, time="t", series="site", zone="Europe/Berlin", every_ns=1_800 * 10**9
    )
    assert columns_read(found) == ("t", "site", "load")


def test_lags_by_default_are_the_shortest_season_as_far_as_the_model_gains_by_them() -> None:
    seasons = {"season": [48, 336]}
    assert spec(**seasons).lags == spec(model="linear", **seasons).lags == 48
    assert spec(season=336).lags == 48 and spec(season=200).lags == 96
    for model in ("gp_lstm", "narx", "finite_rkhs"):
        assert spec(model=model, **seasons).lags == 24 and spec(model=model, season=12).lags == 12
        assert spec(model=model, lags=40, **seasons).lags == 40


def test_patterns_take_numbers_in_table_order() -> None:
    assert spec(inputs="temp*").inputs == ("temp_in", "temp_out")
    assert spec(inputs="*").inputs == ("temp_in", "temp_out", "holiday", "count")
    assert spec(inputs="count,temp_?n,temp*").inputs == ("count", "temp_in", "temp_out")
    assert spec(inputs="[ch]o*").inputs == ("holiday", "count")


def test_brackets_of_a_unit_are_no_pattern() -> None:
    schema = SCHEMA.append(pa.field("t [°C]", pa.float64())).append(pa.field("u [°C]", pa.float64()))
    assert spec(known="t [°C]", schema=schema).known == ("t [°C]",)
    assert spec(inputs="u [°C],t [°C]", schema=schema).inputs == ("u [°C]", "t [°C]")
    assert spec(inputs="? [°C]", schema=schema).inputs == ("t [°C]", "u [°C]")
    letters = schema.append(pa.field("t C", pa.float64()))
    assert spec(inputs="t [°C]", schema=letters).inputs == ("t [°C]",)  # the name before the pattern


def test_known_inputs_are_inputs() -> None:
    found = spec(inputs="*", known="holiday,count")
    assert found.inputs == ("temp_in", "temp_out", "holiday", "count") and found.known == ("holiday", "count")
    assert found.columns == ("load", "temp_in", "temp_out", "holiday", "count")
    assert spec(known="holiday").inputs == ("holiday",)


def test_the_test_column_is_no_input() -> None:
    assert "count" not in spec(inputs="*", test_column="count").inputs


def test_several_targets() -> None:
    found = spec(target="load,temp_out", inputs="*")
    assert found.targets == ("load", "temp_out") and found.inputs == ("temp_in", "holiday", "count")


def test_a_name_with_a_comma_is_one_column() -> None:
    schema = SCHEMA.append(pa.field("a, b", pa.float64())).append(pa.field("power (L1,L2)", pa.float64()))
    assert spec(schema=schema, target="a, b").targets == ("a, b",)
    assert spec(schema=schema, target="a,b,load").targets == ("a, b", "load")
    assert spec(schema=schema, target="power (L1,L2)", inputs="temp*,a, b").inputs == ("temp_in", "temp_out", "a, b")
    assert spec(schema=schema, known="a, b").known == ("a, b",)
    both = schema.append(pa.field("a", pa.float64())).append(pa.field("b", pa.float64()))
    with pytest.raises(UsageError, match=naming("a b")):
        spec(schema=both, target="a,b")
    assert spec(schema=both, target="a").targets == ("a",)


def test_the_column_y_is_the_target_by_itself() -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("y", pa.float64())])
    assert spec(TableMeta(time="t"), schema, target=None).targets == ("y",)
    with pytest.raises(UsageError) as caught:
        spec(target=None)
    assert "--target" in caught.value.hint and "load" in caught.value.hint


def test_without_a_clock_it_is_regression() -> None:
    found = spec(ROWS, inputs="temp*")
    assert found.lags == 0 and found.known == found.inputs == ("temp_in", "temp_out") and found.time is None
    assert spec(ROWS, lags=3).lags == 3 and spec(ROWS, lags=3).known == ()


@pytest.mark.parametrize(
    ("meta", "options", "message", "hint"),
    [
        (CLOCK, {"target": "laod"}, "--target laod", "load"),
        (CLOCK, {"target": "zzz"}, "zzz", ""),
        (CLOCK, {"inputs": "temp_on"}, "--inputs", "temp_in"),
        (CLOCK, {"known": "hoilday"}, "--known", "holiday"),
        (CLOCK, {"inputs": "wind*"}, "--inputs wind*", "load temp_in"),
        (CLOCK, {"inputs": "no*"}, "", ""),
        (CLOCK, {"known": "load"}, "load", ""),
        (CLOCK, {"target": "load,load"}, "", ""),
        (ROWS, {"calendar": True, "inputs": "count"}, "--calendar", "--time"),
        (ROWS, {}, "", "--lags --inputs"),
        (CLOCK, {"lags": 0}, "", "--lags --inputs"),
        (ROWS, {"inputs": "count", "horizon": 2}, "", "--lags"),
        (ROWS, {"inputs": "count", "season": 2}, "", "--lags"),
    ],
)
def test_what_is_refused(meta: TableMeta, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=naming(message)) as caught:
        spec(meta, **options)
    assert names(caught.value.hint, hint)


@pytest.mark.parametrize("options", [{"target": "note"}, {"inputs": "note"}, {"known": "site"}, {"target": "t"}])
def test_columns_must_be_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        spec(**options)
    assert "load" in caught.value.hint and caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("meta", "given", "ns"),
    [
        (CLOCK, "2024-07-01", 1_719_784_800),  # midnight in Berlin
        (CLOCK, "2024-07-01T00:00Z", 1_719_792_000),
        (TableMeta(time="t", zone="+05:30"), "2024-07-01", 1_719_772_200),
        (TableMeta(time="t"), "2024-07-01", 1_719_792_000),
    ],
)
def test_score_from_a_time(meta: TableMeta, given: str, ns: int) -> None:
    config = TrainConfig.read({"table": "t", "target": "load", "online": True, "score_from": given})
    schedule = make_schedule(config, meta, 0, False)
    assert schedule.score_time == ns * 10**9 and schedule.score_from is None


def test_score_from_that_is_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig.read({"table": "t", "target": "load", "online": True, "score_from": "later"})
    with pytest.raises(UsageError):
        make_schedule(config, CLOCK, 0, False)
    steps = TableMeta(time="count", clock=False)
    with pytest.raises(UsageError):
        make_schedule(config, steps, 0, False)
    rows = config.model_copy(update={"score_from": "1344"})
    assert make_schedule(rows, CLOCK, 0, False).score_from == 1344


def test_seasons_that_are_left_to_the_data_stay_those_of_the_checkpoint(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(900))
    first = open_session(config_of(table, tmp_path / "c", season="auto", lags=None, batch=None))
    assert first.learner.windows.spec.seasons == (24, 168) and first.learner.windows.spec.lags == 24
    assert first.config.batch == 24
    week = config_of(table, tmp_path / "c", season=168, lags=None)
    assert open_session(week).learner.windows.spec.seasons == (24, 168)  # the clock has a day
    other = config_of(table, tmp_path / "c", season=[12, 50], lags=None)
    assert open_session(other).learner.windows.spec.seasons == (12, 50)


@pytest.mark.parametrize("every", [None, HOUR_NS])
def test_a_week_that_is_named_alone_has_the_day_of_the_clock(tmp_path: Path, every: int | None) -> None:
    table = make_table(tmp_path / "t", frame_of(900), every_ns=every)
    week = config_of(table, tmp_path / "c", season=168, lags=None)
    learner = open_session(week).learner
    assert learner.windows.spec.seasons == (24, 168) and learner.windows.spec.lags == 24
    assert learner.phases.period == 24  # bands go by the hour
    assert surveyed(config_of(table, tmp_path / "d", season=160), table)[1].seasons == (160,)


def test_a_run_that_names_no_season_has_those_of_the_clock(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(900))

    def found(**options: Any) -> tuple[int, ...]:
        given = {"table": table.path, "target": "y", "horizon": 2, "model": "linear", "checkpoint": tmp_path / "c"}
        return surveyed(TrainConfig.read(given | options), table)[1].seasons

    assert found(online=True) == found(online=True, season="clock") == found(online=True, season="auto") == (24, 168)
    assert found() == (24, 168)  # of a batch
    assert found(season="none") == found(season=()) == found(online=True, simulate=5, horizon=1) == ()
    assert found(horizon=1, lags=0, inputs="x") == ()
    panel = make_table(tmp_path / "p", frame_of(900, ("a", "b")))
    given = {"table": panel.path, "target": "y", "online": True, "fleet": True, "model": "linear"}
    assert surveyed(TrainConfig.read(given), panel)[1].seasons == ()
    assert surveyed(TrainConfig.read(given | {"season": "clock"}), panel)[1].seasons == (24, 168)


def test_a_season_of_values_alone_is_taken_by_auto_alone(tmp_path: Path) -> None:
    at = pl.int_range(600)
    wave = pl.select(t=pl.lit(0, pl.Int64) + at * 10_000, y=(at * (2 * math.pi / 25)).sin()).with_columns(
        pl.from_epoch("t", time_unit="ms").cast(pl.Datetime("us", "UTC"))
    )
    table = make_table(tmp_path / "t", wave, every_ns=10 * 10**9)  # a day of 8,640 rows is none
    given = {"table": table.path, "target": "y", "online": True, "model": "linear"}
    for season, found in (("clock", ()), ("auto", (25,))):
        assert surveyed(TrainConfig.read(given | {"season": season}), table)[1].seasons == found


@pytest.mark.parametrize(("season", "told"), [(None, True), ("none", False), (24, False)])
def test_a_fleet_without_a_season_is_told_of_one_unless_it_asked_for_none(
    tmp_path: Path, season: int | str | None, told: bool
) -> None:
    table = make_table(tmp_path / "t", frame_of(600, ("a", "b")).with_columns(y=(pl.col("t").dt.hour() - 12.0) ** 2))
    given = {"table": table.path, "target": "y", "online": True, "fleet": True, "model": "linear", "lags": 4}
    given |= {"checkpoint": tmp_path / "c"} | ({} if season is None else {"season": season})
    found = open_session(TrainConfig.read(given)).warnings
    assert any("--season 24,168" in one for one in found) == told


def test_the_unit_of_a_column_can_be_left_out() -> None:
    schema = pa.schema(
        [(name, pa.float64()) for name in ("Power (kW)", "Temp (°C)", "Wind [m/s]", "Load (net)", "Load (all)")]
    )
    found = spec(ROWS, schema, target="Power", inputs=["Temp", "Wind"])
    assert found.targets == ("Power (kW)",) and found.inputs == ("Temp (°C)", "Wind [m/s]")
    assert spec(ROWS, schema, target="Power (kW)", known="Temp (°C)").known == ("Temp (°C)",)
    with pytest.raises(UsageError) as refused:
        spec(ROWS, schema, target="Load")
    assert refused.value.hint == "did you mean 'Load (net)' or 'Load (all)'?"


@pytest.mark.sampled
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+10:00"])
@pytest.mark.parametrize("role", ["inputs", "known"])
def test_a_column_that_may_sum_up_its_own_day_is_told(role: str, zone: str, tmp_path: Path) -> None:
    """The mean of a day beside each of its hours foretells them; a flag, the weekday or the temperature do not."""
    rows = frame_of(900, ("a", "b"), zone="UTC")
    hours = 10 if zone == "+10:00" else 0
    local = pl.col("t").dt.convert_time_zone("UTC" if hours else zone).dt.offset_by(f"{hours}h").dt
    rows = rows.with_columns(
        day_mean=pl.col("y").mean().over("unique_id", local.date()), weekday=local.weekday(), holiday=local.day() == 1
    ).cast({"weekday": pl.Float64, "holiday": pl.Float64})
    make_table(tmp_path / "t", rows, cuts=(500,), zone=zone)
    options = {"season": (), "model": "persistence", role: ("day_mean", "weekday", "holiday", "x")}
    told = open_session(config_of(tmp_path / "t", tmp_path / "c", **options)).warnings
    assert [note for note in told if "in each day" in note] == [note for note in told if "day_mean has one" in note]
    assert sum("in each day" in note for note in told) == 1
