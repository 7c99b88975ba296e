"""`--lateness`: rows that come out of order are learned in the order of their times, and none is lost."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import StreamgpWarning, TableError, UsageError
from streamgp_data import columns
from streamgp_data.table import Table
from streamgp_data.versions import Policy
from streamgp_pipelines import load
from streamgp_pipelines.forecaster import Forecaster
from streamgp_pipelines.learning.tail import Tail
from tests.pipelines.ingesting import take
from tests.pipelines.worlds import HOUR_NS, append, frame_of, make_table, run, scores_of, tensors_of
from tests.properties import examples
from tests.words import naming

LATE = 5 * HOUR_NS


def shuffled(data: pl.DataFrame, hours: int, seed: int = 3) -> pl.DataFrame:
    """Each row delayed by up to so many hours, so that rows come out of order."""
    delay = np.random.default_rng(seed).integers(0, hours * 3_600_000_000, len(data))
    arrival = data["t"].dt.epoch("us").to_numpy() + delay
    return data[np.argsort(arrival, kind="stable").tolist()]


def assert_learned_the_same(one: Path, two: Path) -> None:
    """All numbers of two checkpoints are the same, bit for bit; `_seq` is the place at which a row arrived."""
    left, right = tensors_of(one), tensors_of(two)
    tails = [Tail(), Tail()]
    for tail, tensors in zip(tails, (left, right), strict=True):
        tail.restore({"arrow": tensors.pop("tail/arrow")}, {})
    first, second = (tail.rows.drop_columns(["_seq"]) for tail in tails if tail.rows is not None)
    assert first == second
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name].nan_to_num(), right[name].nan_to_num())] == []


def run_in_parts(home: Path, data: pl.DataFrame, cuts: list[int], **options: Any) -> dict[str, Any]:
    """The rows come in parts, and a run follows each."""
    cuts = [0, *cuts, len(data)]
    table = make_table(home / "t", data[: cuts[1]], lateness_ns=LATE)
    run(table, home / "c", **options)
    for begin, end in pairwise(cuts[1:]):
        append(table, data[begin:end])
        found = run(table, home / "c", **options)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(("series", "options"), [((), {}), (("a", "b"), {"known": "k"})])
def test_a_stream_shuffled_within_the_lateness_is_the_sorted_one(
    tmp_path: Path, series: tuple[str, ...], options: dict[str, Any]
) -> None:
    whole, rows = frame_of(343, series), 340 * max(len(series), 1)
    data, ahead = whole[:rows], whole[rows:].to_arrow()
    mixed = shuffled(data, 5)
    assert not mixed["t"].is_sorted()
    ordered = run(make_table(tmp_path / "s" / "t", data, lateness_ns=LATE), tmp_path / "s" / "c", **options)
    once = run(make_table(tmp_path / "m" / "t", mixed, lateness_ns=LATE), tmp_path / "m" / "c", **options)
    parts = run_in_parts(tmp_path / "p", mixed, [230, 231, 300], **options)
    assert scores_of(once) == scores_of(ordered) == scores_of(parts)
    assert_learned_the_same(tmp_path / "s" / "c", tmp_path / "m" / "c")
    assert_learned_the_same(tmp_path / "s" / "c", tmp_path / "p" / "c")
    found = [load(tmp_path / part / "c") for part in "smp"]
    frames = [one.forecast(future=ahead if options else None).frame for one in found]
    assert frames[0].equals(frames[1]) and frames[0].equals(frames[2])
    assert frames[0]["cutoff"].max() == data["t"].max()  # it begins at the newest row


def test_a_fleet_too(tmp_path: Path) -> None:
    data, options = frame_of(300, ("a", "b", "c")), {"fleet": True, "season": None, "warmup": 100}
    ordered = run(make_table(tmp_path / "s", data, lateness_ns=LATE), tmp_path / "sc", **options)
    once = run(make_table(tmp_path / "m", shuffled(data, 5), lateness_ns=LATE), tmp_path / "mc", **options)
    assert scores_of(once) == scores_of(ordered)


def test_a_fleet_on_clocks_that_are_behind_each_other(tmp_path: Path) -> None:
    """Series whose clocks are a day and a month behind: each is learned as if it had come in order. Micro-batches hold
    other rows of the other series, so that sums over the series are the same but for their last digits."""
    options: dict[str, Any] = {"fleet": True, "season": None, "warmup": 100}
    parts = []
    for name, days in (("a", 0), ("b", 1), ("c", 31)):
        own = shuffled(frame_of(300, (name,), seed=days), 5, seed=days)
        parts.append(own.with_columns(pl.col("t").dt.offset_by(f"-{days}d"), place=pl.int_range(pl.len())))
    mixed = pl.concat(parts).sort("place", maintain_order=True).drop("place")
    ordered = run(make_table(tmp_path / "s", mixed.sort("t"), lateness_ns=LATE), tmp_path / "sc", **options)
    found = run(make_table(tmp_path / "m", mixed, lateness_ns=LATE), tmp_path / "mc", **options)
    assert found["late"] == 0 and found["forecasts"] == ordered["forecasts"]
    steps = [[step["rmse"] for step in one["steps"]] for one in (found, ordered)]
    np.testing.assert_allclose(*steps, rtol=1e-13)


def test_without_rows_out_of_order_it_changes_nothing_but_when_they_are_learned(tmp_path: Path) -> None:
    data = frame_of(450)
    plain = run(make_table(tmp_path / "a", data), tmp_path / "ac")
    held = run(make_table(tmp_path / "b", data, lateness_ns=LATE), tmp_path / "bc")
    assert scores_of(plain) == scores_of(held)


def test_a_forecast_sees_rows_that_came_after_the_checkpoint(tmp_path: Path) -> None:
    mixed = shuffled(frame_of(460), 5)
    table = make_table(tmp_path / "t", mixed[:440], lateness_ns=LATE)
    run(table, tmp_path / "c")
    append(table, mixed[440:])
    found = load(tmp_path / "c")
    found.observe(table)
    newest = found.forecast().frame
    assert newest["cutoff"].max() == mixed["t"].max() and newest["linear"].is_not_nan().all()


def test_rows_that_come_later_still_are_kept_and_counted(tmp_path: Path) -> None:
    data = pl.DataFrame({"ds": [f"2024-01-{day:02}" for day in (1, 2, 5, 4, 9, 3, 8)], "y": range(7)})
    data.write_csv(tmp_path / "a.csv")
    found = take(tmp_path / "t", tmp_path / "a.csv", every="1d", lateness="2d")
    assert (found["rows"], found["late"], found["quarantined"]) == (7, 1, {})  # the third of January
    table = Table.open(tmp_path / "t")
    parts = [chunk.rows.column("y").to_pylist() for chunk in table.read({}, ("y",))]
    assert [y for part in parts for y in part] == [0.0, 1.0, 3.0, 2.0, 5.0, 6.0, 4.0]
    take(tmp_path / "t", tmp_path / "a.csv")
    assert Table.open(tmp_path / "t").rows == 7
    stored = pl.read_delta(str(tmp_path / "t")).sort("_seq")
    assert stored.filter("_late")["ds"].dt.day().to_list() == [3] and stored["_late"].null_count() == 0
    assert "_late" not in table.schema.names


@given(
    days=st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), min_size=1, max_size=30),
    lateness=st.integers(1, 4),
)
@examples(10)
def test_late_is_what_is_behind_its_series_by_more_than_the_lateness(
    days: list[tuple[int, str]], lateness: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("t")
    data = pl.DataFrame(days, schema=["n", "unique_id"], orient="row")
    data.with_columns(y=pl.int_range(pl.len())).write_csv(home / "a.csv")
    found = take(home / "t", home / "a.csv", time="n", lateness=str(lateness), duplicates="last")
    wanted, newest, seen = list[bool](), dict[str, int](), set[tuple[int, str]]()
    for row in days:
        behind = row[0] < newest.get(row[1], -99) - lateness
        wanted.append(behind and row not in seen)  # another version of a row is no late row
        newest[row[1]] = max(newest.get(row[1], -99), row[0])
        seen.add(row)
    stored = pl.read_delta(str(home / "t")).sort("_seq")
    assert stored["_late"].to_list() == wanted and found["late"] == sum(wanted)


def test_a_table_that_was_made_before_the_flag_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = pl.DataFrame({"ds": [f"2024-01-{day:02}" for day in (1, 2, 9, 3, 8)], "y": range(5)})
    days[:2].write_csv(tmp_path / "a.csv")
    with monkeypatch.context() as patch:
        patch.setattr(columns, "hidden", lambda _: ())
        take(tmp_path / "t", tmp_path / "a.csv", every="1d", lateness="2d")
    days.write_csv(tmp_path / "a.csv")
    assert take(tmp_path / "t", tmp_path / "a.csv")["late"] == 1
    assert pl.read_delta(str(tmp_path / "t")).columns == ["_seq", "ds", "y"]


@pytest.mark.sampled
@pytest.mark.parametrize("series", [(), ("a", "b")])
def test_a_forecaster_learns_frames_as_the_command_line_its_table(tmp_path: Path, series: tuple[str, ...]) -> None:
    mixed = shuffled(frame_of(300, series), 5)
    table = make_table(tmp_path / "t", mixed, lateness_ns=LATE)
    found = run(table, tmp_path / "c", known=())
    options = {"lags": 6, "season": 24, "warmup": 200, "batch": 64, "levels": (80, 95), "model": "linear"}
    kept: dict[str, Any] = {"time": "t", "series": "unique_id" if series else None, "every": "1h", "lateness": "5h"}
    frames = [mixed[start : start + 90] for start in range(0, len(mixed), 90)]
    same = Forecaster("y", 3, **kept, **options).learn(mixed)  # type: ignore[arg-type]
    assert same.scores["rmse"] == found["rmse"] and same.rows == len(mixed)
    assert same.forecast().equals(load(tmp_path / "c").forecast().frame)
    parts = Forecaster("y", 3, **kept, **options)  # type: ignore[arg-type]
    for number, frame in enumerate(frames):
        again = frame[-2:]  # rows that wait come twice
        parts.learn(pl.concat([frame, again]))
        if number == 1:
            parts = Forecaster.load(parts.save(tmp_path / "g"))
    assert parts.rows == len(mixed)
    assert parts.scores == same.scores and parts.forecast().equals(same.forecast())
    assert parts.warnings == same.warnings == []


def coming_again(data: pl.DataFrame) -> pl.DataFrame:
    """Of some rows one or two more come up to 60 places later, with the same or with other values."""
    rng, places, parts = np.random.default_rng(5), [np.arange(len(data)) * 1.0], [data]
    for change in (0.0, 5.0, 0.0, -7.0):
        which = np.sort(rng.choice(len(data), len(data) // 12, replace=False))
        parts.append(data[which.tolist()].with_columns(pl.col("y") + change))
        places.append(which + rng.uniform(0.1, 60.0, len(which)))
    return pl.concat(parts)[np.argsort(np.concatenate(places), kind="stable").tolist()]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("policy", "late"), [("last", {}), *((policy, {"lateness": "5h"}) for policy in get_args(Policy))]
)
def test_a_forecaster_reads_rows_that_come_twice_as_the_command_line(
    tmp_path: Path, policy: Policy, late: dict[str, str]
) -> None:
    data = frame_of(300, ("a", "b") if policy != "last" else ())
    mixed = coming_again(shuffled(data, 5) if late else data)
    kept: dict[str, Any] = {"time": "t", "every": "1h", "duplicates": policy, **late}
    options: dict[str, Any] = {"lags": 6, "season": 24, "warmup": 200, "batch": 64, "model": "linear"}
    same = Forecaster("y", 3, **kept, **options, levels=(80, 95))
    for number, frame in enumerate((mixed[:290], mixed[290:380], mixed[380:])):
        frame.write_parquet(tmp_path / f"{number}.parquet")
        summary = take(tmp_path / "t", tmp_path / f"{number}.parquet", **kept)
        found = run(Table.open(tmp_path / "t"), tmp_path / "c", known=())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows that were not read
            same.learn(frame)
        assert (same.scores["rmse"], same.scores["crps"]) == (found["rmse"], found["crps"])
        assert same.forecast().equals(load(tmp_path / "c").forecast().frame)
        same = Forecaster.load(same.save(tmp_path / "g")) if number else same
    assert same.rows == Table.open(tmp_path / "t").readable == len(data)
    assert summary["versions"] or policy == "first"


def test_a_target_that_comes_later_is_learned_when_it_comes() -> None:
    """In a second version of its row: with the lateness of that delay the same as where it is not late."""
    data, late = frame_of(160), 5
    nothing = data.with_columns(y=pl.lit(None, pl.Float64))
    given: dict[str, Any] = {"time": "t", "every": "1h", "season": "none", "lags": 4, "warmup": 60, "batch": 40}
    given |= {"model": "linear"}
    whole = Forecaster("y", 2, **given, lateness="5h").learn(data)
    same = Forecaster("y", 2, **given, lateness="5h", duplicates="last")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the newest targets are not known
        for row in range(40, len(data) + 41, 40):
            same.learn(pl.concat([data[max(row - 40 - late, 0) : row - late], nothing[row - late : row]]))
        assert same.forecast().equals(whole.forecast()) and same.scores["rmse"] == whole.scores["rmse"]


@pytest.mark.parametrize(
    ("policy", "late", "named"),
    [("first", None, "duplicates lateness"), ("last", None, "lateness"), ("last", "1h", "lateness")],
)
def test_targets_that_are_not_read_are_named_with_a_remedy(policy: Policy, late: str | None, named: str) -> None:
    data = frame_of(100)
    found = Forecaster("y", time="t", every="1h", lags=4, model="linear", duplicates=policy, lateness=late)
    found.learn(data.with_columns(y=pl.when(pl.int_range(pl.len()) < 50).then("y")))
    with pytest.warns(StreamgpWarning, match=naming(named)):
        found.learn(data[50:])


def test_lateness_in_steps(tmp_path: Path) -> None:
    pl.DataFrame({"n": [1, 3, 2, 6], "y": range(4)}).write_csv(tmp_path / "a.csv")
    found = take(tmp_path / "t", tmp_path / "a.csv", time="n", lateness="2")
    assert found["late"] == 0 and Table.open(tmp_path / "t").meta.lateness == 2


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"ds": ["2024-01-01", "2024-01-02"], "y": [0.0, 1.0]}).write_csv(tmp_path / "a.csv")
    take(tmp_path / "t", tmp_path / "a.csv")
    with pytest.raises(TableError, match=naming("--lateness 1h none")):
        take(tmp_path / "t", tmp_path / "a.csv", lateness="1h")
    with pytest.raises(UsageError, match=naming("--lateness")):
        take(tmp_path / "u", tmp_path / "a.csv", lateness="soon")
    with pytest.raises(UsageError, match=naming("--lateness time")):
        take(tmp_path / "u", tmp_path / "a.csv", lateness="1h", time="row")
