"""A fleet: a model for each series, and for each series the numbers of a run on it alone."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.errors import UsageError
from streamgp_data.table import Table
from streamgp_pipelines import load
from tests.pipelines.killed import Crash, code_of, start, train_apart
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, scores_of, tensors_of

NAMES = ("a", "b", "c")
HOURS, LATE, QUIET = 360, 61, 250
"""Series b begins at hour 61; series c rests from hour 250 on."""
OPTIONS: dict[str, Any] = {"season": None, "warmup": 100, "batch": 32, "lags": 4, "horizon": 2}
SVDGP = {"basis": "16", "reservoir": "128", "rebuild": "100", "evidence_rows": "32"}
RUNS: dict[str, dict[str, Any]] = {
    "linear": {},
    "season": {"season": 24, "score_from": "150"},
    "masses": {"target": "z"},
    "known": {"season": 24, "inputs": "x", "known": "k"},
    "svdgp": {"model": "svdgp", "set": SVDGP},
    "ensemble": {"model": "auto", "season": 24, "set": {"svdgp": SVDGP}},
    "outcomes": {"model": "svdgp", "target": "k", "set": SVDGP | {"likelihood": "logistic"}, "level": None},
}
POOLED = SVDGP | {"shared": "true", "pooled": "true"}
CLOSE: dict[str, Any] = {"rel_tol": 1e-7, "abs_tol": 1e-7}
"""Batched products add in another order."""
SLOW = {"known", "svdgp", "ensemble", "outcomes"}
each_run = pytest.mark.parametrize(
    "options", [pytest.param(RUNS[name], id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name in RUNS]
)


def panel(hours: int = HOURS) -> pl.DataFrame:
    """Rows of series in different phases, those of one hour side by side."""
    data = frame_of(hours, NAMES).with_columns(z=(pl.col("y") - 12).clip(0).round(1))  # often 0
    hour, name = (pl.col("t") - pl.col("t").min()).dt.total_hours(), pl.col("unique_id")
    return data.filter(~((name == "b") & (hour < LATE)) & ~((name == "c") & (hour >= QUIET)))


def fleet(table: Table, home: Path, **options: Any) -> tuple[dict[str, Any], pl.DataFrame]:
    """The summary of a run and what it forecast."""
    path = home.with_suffix(".parquet")
    found = run(table, home, **OPTIONS | {"fleet": True, "predictions": path} | options)
    return found, pl.read_parquet(path)


def of(found: pl.DataFrame, name: str) -> pl.DataFrame:
    """The forecasts of a series, without its name."""
    return found.filter(pl.col("unique_id") == name).drop("unique_id").sort("cutoff", "ds")


@pytest.mark.slow
@each_run
def test_the_numbers_of_a_series_are_those_of_a_run_on_it_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    data = panel()
    found, issued = fleet(make_table(tmp_path / "t", data), tmp_path / "fleet", **options)
    scored, ahead = 0, None if "known" in options else load(tmp_path / "fleet").forecast().frame
    for name in NAMES:
        own = make_table(tmp_path / name, data.filter(pl.col("unique_id") == name).drop("unique_id"))
        one, alone = fleet(own, tmp_path / f"alone-{name}", **options, fleet=False)
        assert_frame_equal(of(issued, name), alone.drop("unique_id").sort("cutoff", "ds"), **CLOSE)
        assert alone.height > 100
        if ahead is not None:
            next_steps = load(tmp_path / f"alone-{name}").forecast().frame.drop("unique_id")
            assert_frame_equal(of(ahead, name), next_steps, **CLOSE)
        scored += one["forecasts"]["scored"]
    assert found["forecasts"]["scored"] == scored and found["rows"] == data.height


def test_a_series_does_not_depend_on_when_rows_of_others_come(tmp_path: Path) -> None:
    data = panel()
    one, two = (
        fleet(make_table(tmp_path / f"t{by}", data.sort(by, maintain_order=True)), tmp_path / by)[1]
        for by in ("t", "unique_id")
    )
    for name in NAMES:
        assert_frame_equal(of(one, name), of(two, name), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cut"), [("linear", 401), ("season", 401), ("pooled", 401), pytest.param("pooled", 103, id="before b")]
)
def test_a_run_in_pieces_is_a_run_in_one_piece(tmp_path: Path, name: str, cut: int) -> None:
    own = {"model": "svdgp", "set": POOLED} if name == "pooled" else RUNS[name]
    data, options = panel(), OPTIONS | {"fleet": True} | own
    whole, _ = fleet(make_table(tmp_path / "t", data), tmp_path / "whole", **own)
    assert ("b" in data[:cut]["unique_id"]) == (cut == 401)
    table = make_table(tmp_path / "u", data[:cut], cuts=(7, 80))
    run(table, tmp_path / "pieces", **options)
    append(table, data[cut:], cuts=(100,))
    assert cut % (32 * len(NAMES))
    again = run(table, tmp_path / "pieces", **options)
    assert scores_of(again) == scores_of(whole)
    assert_same_state(tmp_path / "pieces", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("own", [{}, {"model": "svdgp", "set": POOLED}], ids=["linear", "pooled"])
def test_a_fleet_that_is_killed_ends_as_if_it_had_not_been(tmp_path: Path, own: dict[str, Any]) -> None:
    table, options = make_table(tmp_path / "t", panel()), OPTIONS | {"fleet": True} | own
    expected = run(table, tmp_path / "whole", **options)
    for count in (2, 5):
        crash = Crash("streamgp_pipelines.learning.learner", "Learner.learn", count, after=True)
        process = start(train_apart, table.path, str(tmp_path / "c"), options, crash, None)
        assert code_of(process) == -signal.SIGKILL
    process = start(train_apart, table.path, str(tmp_path / "c"), options, None, str(tmp_path / "summary.json"))
    assert code_of(process) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert scores_of(summary) == scores_of(json.loads(json.dumps(expected)))
    assert_same_state(tmp_path / "c", tmp_path / "whole")


def test_a_new_series_is_learned_when_it_comes_and_one_that_rests_keeps_its_state(tmp_path: Path) -> None:
    data = panel()
    table = make_table(tmp_path / "t", data.filter(pl.col("t") < data["t"][0] + pl.duration(hours=260)))
    fleet(table, tmp_path / "fleet")
    before = tensors_of(tmp_path / "fleet")
    later = data.filter(pl.col("t") >= data["t"][0] + pl.duration(hours=260))
    new = later.filter(pl.col("unique_id") == "a").with_columns(unique_id=pl.lit("new"))
    append(table, pl.concat([later, new, new.with_columns(pl.col("t") + pl.duration(hours=100))]))
    _, issued = fleet(table, tmp_path / "fleet")
    after = tensors_of(tmp_path / "fleet")
    assert issued["unique_id"].unique().sort().to_list() == ["a", "b", "c", "new"]
    gram = next(name for name in after if name.startswith("model/gram"))
    changed = [bool((after[gram][at] != before[gram][at]).any()) for at in range(len(before[gram]))]
    assert sorted(changed) == [False, True, True] and len(after[gram]) == 4
    assert load(tmp_path / "fleet").forecast().frame["unique_id"].n_unique() == 4


def test_a_glitch_in_one_series_changes_no_other(tmp_path: Path) -> None:
    data = panel()
    hour = (pl.col("t") - pl.col("t").min()).dt.total_hours()
    wild = (pl.col("unique_id") == "b") & (hour == 300)
    bad = data.with_columns(x=pl.when(wild).then(1e149).otherwise("x"), y=pl.when(wild).then(1e149).otherwise("y"))
    _, issued = fleet(make_table(tmp_path / "bad", bad), tmp_path / "one", inputs="x")
    _, expected = fleet(make_table(tmp_path / "t", data), tmp_path / "two", inputs="x")
    assert not of(issued, "b").equals(of(expected, "b"))
    for name in ("a", "c"):
        assert_frame_equal(of(issued, name), of(expected, name), **CLOSE)


def test_a_series_in_its_warm_up_has_no_forecast_yet_and_is_named(tmp_path: Path) -> None:
    data = panel(150)
    run(make_table(tmp_path / "t", data), tmp_path / "fleet", **OPTIONS, fleet=True)
    found = load(tmp_path / "fleet").forecast()
    assert found.frame["unique_id"].unique().sort().to_list() == ["a", "c"]
    assert len(found.warnings) == 1 and found.warnings[0].endswith(": b")


@pytest.mark.parametrize("options", [{"simulate": 3, "horizon": 1}, {"transform": "log"}, {"online": False}])
def test_what_a_fleet_cannot_do_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    table = make_table(tmp_path / "t", panel(80))
    with pytest.raises(UsageError, match="fleet"):
        run(table, tmp_path / "c", **OPTIONS | {"fleet": True, "warmup": None} | options)


@pytest.mark.slow
def test_a_shared_kernel_forecasts_about_as_well_as_own_ones(tmp_path: Path) -> None:
    table, errors = make_table(tmp_path / "t", panel()), dict[str, float]()
    for shared in ("false", "true"):
        found, _ = fleet(table, tmp_path / shared, model="svdgp", set=SVDGP | {"shared": shared})
        errors[shared] = found["crps"]
    assert errors["true"] < 1.1 * errors["false"]
    assert load(tmp_path / "true").forecast().frame["unique_id"].n_unique() == len(NAMES)


def test_a_shared_kernel_needs_a_fleet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="series of a fleet"):
        run(make_table(tmp_path / "t", frame_of(80)), tmp_path / "c", model="svdgp", set={"shared": "true"})


def test_a_regression_of_all_series_sees_no_row_before_it_forecasts_it(tmp_path: Path) -> None:
    data, options = panel(260), {"model": "svdgp", "set": POOLED}
    hour = (pl.col("t") - pl.col("t").min()).dt.total_hours()
    other = data.with_columns(y=pl.when(hour >= 162).then(50 - 3 * pl.col("y")).otherwise(pl.col("y")))
    one, two = (
        fleet(make_table(tmp_path / name, rows), tmp_path / f"{name}-run", **options)[1].filter(
            (pl.col("cutoff") - data["t"].min()).dt.total_hours() < 162
        )
        for name, rows in (("as-it-is", data), ("changed", other))
    )
    assert_frame_equal(one.drop("y"), two.drop("y"))  # b ends a micro-batch at hour 160, and a one at 163 before it
    assert one.filter(pl.col("unique_id") == "b").height > 0


def test_a_table_of_one_series_has_no_fleet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fleet"):
        run(make_table(tmp_path / "t", frame_of(80)), tmp_path / "c", **OPTIONS, fleet=True)


def test_a_fleet_learns_on_in_python(tmp_path: Path) -> None:
    data = panel(300)
    table = make_table(tmp_path / "t", data.head(500))
    found, _ = fleet(table, tmp_path / "begun")
    assert found["warmup"] == 300
    again = streamgp.load(tmp_path / "begun").learn(data.slice(500))
    again.save(tmp_path / "saved")
    append(table, data.slice(500))
    fleet(table, tmp_path / "begun")
    assert_frame_equal(again.forecast(), load(tmp_path / "begun").forecast().frame, check_column_order=False)
    assert_frame_equal(streamgp.load(tmp_path / "saved").forecast(), again.forecast())
