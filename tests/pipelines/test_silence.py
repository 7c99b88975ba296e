"""A silent target is reported once, wherever alarms are, and alike however a stream is learned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import streamgp
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_pipelines.config import ReportConfig
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.reporting.report import report
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run

HOURS, ENDED = 130, 90
SPEC = WindowSpec(targets=("y",), lags=2, time="t", series="unique_id", every_ns=3600 * 10**9)
OPTIONS: dict[str, Any] = {"season": None, "warmup": 60, "batch": 32, "lags": 2, "horizon": 2, "alarm_rate": 0.02}


def panel(hours: int = HOURS) -> pl.DataFrame:
    """Series b ends, c has no values between 60 and 80, and a goes on."""
    data = frame_of(hours, ("a", "b", "c"))
    hour, name = (pl.col("t") - pl.col("t").min()).dt.total_hours(), pl.col("unique_id")
    lost = (name == "c") & hour.is_between(60, 79)
    data = data.filter(~((name == "b") & (hour >= ENDED)))
    return data.with_columns(y=pl.when(lost).then(None).otherwise(pl.col("y")))


def learned(
    spec: WindowSpec, data: pl.DataFrame, pieces: int | None = None, **recipe: Any
) -> tuple[Learner, list[Any]]:
    """A learner of all rows but a few, which it previews, and what it told, with what the preview did."""
    made = replace(Recipe.of("persistence", {}, spec, Schedule(48, 48)), alarm_rate=0.02, **recipe)
    learner, rows, at, found = learner_of(made), batch(data), 0, list[Any]()
    while at + learner.room < rows.num_rows:
        size = learner.room
        learner.advance(rows.slice(at, size))
        found += told(learner)
        at += size
        if pieces is not None and at > pieces:
            learner, pieces = restored(learner), None
    return learner, [*found, *told(learner.preview(rows.slice(at))[0])]


def batch(data: pl.DataFrame) -> pa.RecordBatch:
    return data.to_arrow().combine_chunks().to_batches()[0]


def told(learner: Learner) -> list[Any]:
    """(series, hours since the first of its last value and of the row at which it was noticed, ticks) of each."""
    start, hour = int(frame_of(1)["t"].cast(pl.Int64)[0]) * 1000, 3600 * 10**9
    return [
        (learner.windows.names[series], (since - start) // hour, (ds - start) // hour, ticks)
        for found in learner.silent()
        for series, since, ds, ticks in zip(
            found.series, found.since.tolist(), found.ds.tolist(), found.ticks, strict=True
        )
    ]


def restored(learner: Learner, without: str = "") -> Learner:
    """Another one, from the packed state."""
    state = checkpoint.unpack(checkpoint.pack(learner.parts()))
    again = learner_of(learner.recipe)
    parts = {name: part for name, part in again.parts().items() if name != without}
    state.restore(parts)
    again.rows = learner.rows
    return again


FOUND = [("c", 59, 62, 3), ("b", ENDED - 1, ENDED + 2, 3)]


@pytest.mark.sampled
@pytest.mark.parametrize("how", [{}, {"pieces": 140}, {"fleet": True}, {"fleet": True, "pieces": 140}, {"buckets": 3}])
def test_panels_fleets_and_buckets_tell_the_same(how: dict[str, Any]) -> None:
    given = dict(how)
    spec = replace(SPEC, fleet=bool(given.pop("fleet", False) or "buckets" in given))
    given |= {"read": 48} if "buckets" in given else {}
    learner, found = learned(spec, panel(), **given)
    assert found == FOUND
    assert learner.raised()["silent"] == learner.silences.raised == len(FOUND)


def test_a_run_on_one_series_tells_of_it_at_its_next_row() -> None:
    data = panel()
    for name, expected in (("c", [(59, 62, 3)]), ("a", []), ("b", [])):  # b has no next row: nobody knows
        own = data.filter(unique_id=name).drop("unique_id")
        assert [one[1:] for one in learned(replace(SPEC, series=None), own)[1]] == expected
    gap = data.filter((pl.col("unique_id") == "c") & pl.col("y").is_not_null()).drop("unique_id")
    assert [one[1:] for one in learned(replace(SPEC, series=None), gap)[1]] == [(59, 80, 21)]


def test_the_targets_of_a_model_are_silent_each_for_itself() -> None:
    spec = replace(SPEC, targets=("y", "x"), sentinels=(-999.0,))
    data = panel().with_columns(
        x=pl.when(pl.col("t") > pl.col("t").min().dt.offset_by("110h")).then(-999.0).otherwise("x")
    )
    assert learned(spec, data)[1] == [*FOUND, FOUND[1], ("a", 110, 113, 3), ("c", 110, 113, 3)]


def test_inputs_that_are_known_ahead_are_no_silence() -> None:
    data = panel().filter(unique_id="a").drop("unique_id")
    late = pl.int_range(pl.len()) >= HOURS - 6
    data = data.with_columns(y=pl.when(late).then(None).otherwise(pl.col("y")))
    spec = replace(SPEC, series=None, known=("k",), horizon=6)
    assert not learned(spec, data)[1] and learned(replace(spec, horizon=2), data)[1]


@pytest.mark.parametrize("known", [("k",), ()])
def test_a_dead_target_is_silent_where_inputs_are_known_and_no_interval_is(known: tuple[str, ...]) -> None:
    """It is noticed so many rows later as inputs are known ahead."""
    data = panel().filter(unique_id="a").drop("unique_id")
    data = data.with_columns(y=pl.when(pl.int_range(pl.len()) >= 90).then(None).otherwise(pl.col("y")))
    spec = replace(SPEC, series=None, every_ns=None, known=known, horizon=6)
    assert [one[1:3] for one in learned(spec, data)[1]] == [(89, 92)]
    assert not learned(spec, data.head(96 if known else 91))[1]


def test_a_row_of_a_wrong_clock_ends_no_alarms() -> None:
    """It is noted, also in buckets; the series that it is of learns nothing after it."""
    data = panel()
    far = data.filter(unique_id="a")[70].with_columns(pl.col("t").dt.offset_by("40y"), unique_id=pl.lit("d"))
    for how in ({}, {"buckets": 3, "read": 48}):
        learner, found = learned(replace(SPEC, fleet=bool(how)), pl.concat([data[:170], far, data[170:]]), **how)
        assert found == FOUND and "rows far ahead of all others: 1;" in " ".join(learner.notes)


def test_a_checkpoint_from_before_goes_on_and_begins_to_listen() -> None:
    data = panel()
    learner, _ = learned(SPEC, data.head(150))
    again = restored(learner, without="silences")
    rest = batch(data.slice(again.rows))
    found = list[Any]()
    for at in range(0, rest.num_rows - 48, 48):
        again.advance(rest.slice(at, 48))
        found += told(again)
    assert ("b", ENDED - 1) in [one[:2] for one in found]


@pytest.mark.parametrize("targets", ["y", ("y", "x")])
def test_a_data_frame_tells_of_it(targets: Any, tmp_path: Path) -> None:
    data = panel()
    options: dict[str, Any] = {"model": "persistence", "lags": 2, "warmup": 60, "alarm_rate": 0.02}
    forecaster = streamgp.Forecaster(targets, horizon=2, every="1h", **options)
    for at in range(0, len(data), 70):
        forecaster.learn(data.slice(at, 70))
    forecaster.save(tmp_path / "saved")
    found = forecaster.alarms.filter(alarm="silent")
    keys = ["unique_id", *(["target"] if len(targets) > 1 else [])]
    expected = [("c", "y"), ("b", "y"), ("b", "x")] if len(targets) > 1 else [("c",), ("b",)]
    assert found.select(keys).rows() == expected and found["ticks"].to_list() == [3] * len(found)
    assert (found["ds"] - found["since"]).dt.total_hours().to_list() == [3] * len(found)
    assert found["y"].is_null().all() and found["p"].is_null().all()

    later = panel(HOURS + 6).filter(pl.col("t") > data["t"].max()).filter(unique_id="a")  # and c ends
    again = streamgp.load(tmp_path / "saved").learn(later).alarms.filter(alarm="silent")
    assert again.select(keys).rows() == [("c", *key[1:]) for key in expected if key[0] == "b"]


@pytest.mark.slow
def test_files_messages_reports_and_counts_have_it(tmp_path: Path) -> None:
    """And a run that is stopped and goes on, too."""
    data, file, told = panel(), tmp_path / "alarms.parquet", tmp_path / "told.jsonl"
    (tmp_path / "keep.py").write_text(f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))")
    make_table(tmp_path / "table", data)
    whole = run(tmp_path / "table", tmp_path / "whole", alarms=file, **OPTIONS)
    raised = pl.read_parquet(file)
    silent = raised.filter(pl.col("linear-alarm") == "silent")
    assert silent.select("unique_id", "step").rows() == [("c", 3), ("b", 3)] and silent["linear"].is_null().all()
    assert whole["alarms"]["silent"] == 2
    page = report(ReportConfig.read({"checkpoint": tmp_path / "whole", "output": tmp_path / "r.html"}))
    assert "Alarms" in page.sections
    text = (tmp_path / "r.html").read_text()
    assert "silent since" in text and "silent 2," in text.lower()

    table = make_table(tmp_path / "t", data[:200])
    options = OPTIONS | {"alarms": tmp_path / "pieces.parquet", "on_alarm": f"python {tmp_path / 'keep.py'}"}
    run(table, tmp_path / "pieces", **options)
    append(table, data[200:])
    again = run(table, tmp_path / "pieces", **options)
    assert_same_state(tmp_path / "pieces", tmp_path / "whole")
    assert_frame_equal(pl.read_parquet(tmp_path / "pieces.parquet"), raised)
    assert again["alarms"] == whole["alarms"]
    events = [one for line in told.read_text().splitlines() for one in json.loads(line)["alarms"]]
    assert [(one["unique_id"], one["ticks"]) for one in events if one["alarm"] == "silent"] == [("c", 3), ("b", 3)]
