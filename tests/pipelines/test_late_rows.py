"""`--late use`: a late row is a past value of later forecasts and a truth of open ones; no window counts twice."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from streamgp.errors import UsageError
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_pipelines import compare
from streamgp_pipelines.comparing.peers.statistical import Config, Statistical
from streamgp_pipelines.config import CompareConfig, TuneConfig
from streamgp_pipelines.forecaster import Forecaster
from streamgp_pipelines.tuning.tune import Tuning
from tests.pipelines.worlds import (
    HOUR_NS,
    Diary,
    append,
    assert_same_state,
    frame_of,
    make_table,
    run,
    scores_of,
    tensors_of,
)

USE: dict[str, Any] = {"late": "use"}
HOUR = pl.duration(hours=1)


def delayed(data: pl.DataFrame, moves: dict[int, int]) -> pl.DataFrame:
    """The row at each place comes so many rows later."""
    place = np.arange(len(data), dtype=float)
    for row, later in moves.items():
        place[row] += later + 0.5
    return data[np.argsort(place, kind="stable").tolist()]


def late_world(count: int = 500) -> pl.DataFrame:
    moves = {row: 1 + row % 9 for row in range(211, count - 20, 17)} | {300: 5, 301: 5, 302: 5, 330: 200}
    return delayed(frame_of(count), moves)


def pairs_of(home: Path) -> pl.DataFrame:
    return pl.read_parquet(home / "p.parquet")


def test_without_late_rows_it_is_the_same_run(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(400))
    assert scores_of(run(table, tmp_path / "a")) == scores_of(run(table, tmp_path / "b", **USE))
    skip, use = tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b")
    assert skip.keys() == use.keys()
    assert all(torch.equal(skip[name].nan_to_num(), use[name].nan_to_num()) for name in skip)


def test_a_run_in_parts_gives_the_same_numbers(tmp_path: Path) -> None:
    data, cuts = late_world(), [0, 230, 303, 305, 306, 500]
    diary = Diary(tmp_path)
    once = run(make_table(tmp_path / "t", data), tmp_path / "a", diary, **USE)
    table = make_table(tmp_path / "u", data[:0])
    for begin, end in pairwise(cuts):
        append(table, data[begin:end])
        parts = run(table, tmp_path / "b", **USE)
    assert once["late_used"] == 18 and once["late"] == 1  # one came too late
    assert {"late_rows": 1.0, "late_rows_used": 18.0}.items() <= diary.points[-1][1].items()
    assert once["forecasts"]["all"] == once["scored"] + sum(once["forecasts"]["skipped"].values())
    skipped = {name: count for name, count in once["forecasts"]["skipped"].items() if count}
    assert skipped.pop("truth_missing") > 0  # of forecasts that were complete when the row came
    assert skipped == {"warm_up": 600, "late_row": 3, "late_row_used": 3 * 18, "not_yet_due": 6}
    assert scores_of(once) == scores_of(parts)
    assert_same_state(tmp_path / "a", tmp_path / "b")


def test_scores_do_not_depend_on_micro_batches(tmp_path: Path) -> None:
    """Of a model that learns nothing from them."""
    table, options = make_table(tmp_path / "t", late_world()), {**USE, "model": "seasonal_naive"}
    one, two = (run(table, tmp_path / f"c{batch}", batch=batch, **options) for batch in (64, 7))
    assert one["forecasts"] == two["forecasts"] and one["late_used"] == two["late_used"] > 0
    np.testing.assert_allclose(*([step["rmse"] for step in found["steps"]] for found in (one, two)), rtol=1e-12)


def test_a_late_row_that_no_window_has_needed_changes_nothing(tmp_path: Path) -> None:
    """The first window is whole at row 29: 6 lags behind a season of 24."""
    data = frame_of(450)
    mixed = delayed(data, {3: 4, 12: 9, 13: 9})
    ordered = run(make_table(tmp_path / "s", data), tmp_path / "a", **USE)
    late = run(make_table(tmp_path / "t", mixed), tmp_path / "b", **USE)
    assert late["late_used"] == 3
    assert scores_of(late) | {"late_used": 0} == scores_of(ordered)
    one, two = tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b")
    assert all(torch.equal(one[name].nan_to_num(), two[name].nan_to_num()) for name in one)


def test_what_was_issued_stays_and_only_open_forecasts_get_the_truth(tmp_path: Path) -> None:
    """Row 300 comes behind row 301: of the forecasts of it, those of row 298 and before are complete by then."""
    data = frame_of(450)
    mixed, late = delayed(data, {300: 1}), data["t"][300]
    for name, options in (("skip", {}), ("use", USE)):
        home = tmp_path / name
        run(make_table(home / "t", mixed), home / "c", predictions=home / "p.parquet", **options)
    skip, use = (pairs_of(tmp_path / name) for name in ("skip", "use"))
    assert skip.filter(pl.col("ds") == late).is_empty()
    scored = use.filter(pl.col("ds") == late)
    assert scored["cutoff"].to_list() == [data["t"][299]]
    assert scored["y"].to_list() == [pytest.approx(data["y"][300])]
    assert use.filter(pl.col("cutoff") == late).is_empty()  # nothing is asked at it
    assert (use["cutoff"] < use["ds"]).all() and use.unique(["ds", "cutoff"]).height == use.height
    before = pl.col("cutoff") <= data["t"][301]
    issued = [one.filter(before & (pl.col("ds") != late)) for one in (skip, use)]
    assert issued[0].equals(issued[1])
    at_once = [one.filter(pl.col("cutoff") == data["t"][302])["linear"].to_list() for one in (skip, use)]
    assert at_once[0] != at_once[1]  # the next forecast has it among its lags


def test_a_fleet_learns_each_series_as_if_alone(tmp_path: Path) -> None:
    data = pl.concat([late_world(340).with_columns(unique_id=pl.lit(name)) for name in "ab"])
    data = data.with_columns(pl.when(pl.col("unique_id") == "b").then(-pl.col("y")).otherwise(pl.col("y")).alias("y"))
    mixed = data.with_row_index("place").sort(pl.col("place") % 340, maintain_order=True).drop("place")
    for name, rows in (("both", mixed), ("one", data[:340])):
        home = tmp_path / name
        run(make_table(home / "t", rows), home / "c", predictions=home / "p.parquet", fleet=True, **USE)
    both, one = (pairs_of(tmp_path / name).filter(pl.col("unique_id") == "a") for name in ("both", "one"))
    keys = ["cutoff", "ds"]
    assert both.height == one.height > 0
    assert both.sort(keys)["linear"].to_list() == pytest.approx(one.sort(keys)["linear"].to_list(), rel=1e-12)


@pytest.mark.filterwarnings("ignore:.*place was taken")
def test_frames_are_learned_as_the_table_is(tmp_path: Path) -> None:
    data = late_world()
    whole = run(make_table(tmp_path / "t", data), tmp_path / "c", season=None, **USE)
    options: dict[str, Any] = {"lags": 6, "warmup": 200, "batch": 64, "model": "linear", "season": "none", **USE}
    forecaster = Forecaster("y", horizon=3, time="t", every="1h", **options)
    for begin, end in pairwise([0, 250, 303, 304, 500]):
        forecaster.learn(data[begin:end])
    counted = ("rmse", "late", "late_used")
    assert [forecaster.scores[name] for name in counted] == [whole[name] for name in counted]
    assert forecaster.scores["late_used"] > 0
    assert any("place" in warning for warning in forecaster.warnings)


def test_regression_learns_rows_in_any_order(tmp_path: Path) -> None:
    data = frame_of(400).sample(fraction=1.0, shuffle=True, seed=1)
    options = {"lags": 0, "horizon": 1, "season": None, "inputs": "x,k"}
    table = make_table(tmp_path / "t", data, every_ns=None)
    assert run(table, tmp_path / "a", **options)["late"] > 300
    found = run(table, tmp_path / "b", **options, **USE)
    assert found["late"] == 0 and found["scored"] == 200


def test_rows_without_an_interval_have_no_places(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", late_world(), every_ns=None)
    with pytest.raises(UsageError, match="no place") as error:
        run(table, tmp_path / "c", **USE)
    assert "--every" in str(error.value.hint)


def test_models_are_compared_on_late_rows_too(tmp_path: Path) -> None:
    make_table(tmp_path / "t", late_world(400))
    options: dict[str, Any] = {"lags": 6, "horizon": 3, "warmup": 200, "batch": 64, "device": "cpu", "season": "none"}
    used = {}
    for late in ("skip", "use"):
        compare(tmp_path / "t", "y", "linear", comparison=tmp_path / late, late=late, **options)
        used[late] = pl.read_parquet(tmp_path / late / "linear" / "predictions.parquet")
    home = tmp_path / "own"
    run(tmp_path / "t", home / "c", season=None, predictions=home / "p.parquet", **USE)
    keys = ["cutoff", "ds"]
    found, own = used["use"].sort(keys), pairs_of(home).sort(keys)
    assert found.select(*keys, "y", "linear").equals(own.select(*keys, "y", "linear"))
    assert found.height != used["skip"].height


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_peer_sees_what_had_come(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """At each origin the newest values that were read by then, each in the place of its time."""
    data = delayed(frame_of(90), {row: 1 + row % 6 for row in range(11, 80, 5)} | {40: 30})
    spec = WindowSpec(("y",), lags=3, horizon=2, time="t", every_ns=HOUR_NS, late="use", season=4)
    windows, seen = Windows(spec), dict[int, Any]()
    peer = Statistical(Config(every=1, history=12), "autoets", spec.shape, (0.5,))

    def look(self: Statistical, code: int, target: int, origin: int, y: Any) -> Any:
        seen[origin] = y
        return np.zeros((3, 2))

    monkeypatch.setattr(Statistical, "_forecast", look)
    rows = data.select("t", "y").to_arrow().combine_chunks().to_batches()[0]
    for start in range(0, rows.num_rows, size):
        asks, answers = windows.push(rows.slice(start, size))
        peer.follow(answers)
        peer.issue(asks)
    assert windows.late_used == 14 and windows.late == 1 and len(seen) > 60
    step = ((data["t"] - data["t"].min()).dt.total_hours()).to_numpy()
    for origin, y in seen.items():
        come = np.full(12, np.nan)
        for at in range(int(np.flatnonzero(step == origin)[0]) + 1):
            place = step[at] - origin + 11
            if place >= 0 and step[at] != 40:
                come[place] = data["y"][at]
        assert y.tolist() == peer._filled(come).tolist()


def test_tuning_looks_at_the_windows_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(tmp_path / "t", late_world(400))
    monkeypatch.setattr(Tuning, "_standardised", lambda _, x, y: (x.past, y))
    given: dict[str, Any] = {"table": tmp_path / "t", "target": "y", "lags": 6, "horizon": 3, "gaps": "reset"}
    given |= {"rows": 1000, "output": tmp_path / "o.json"}
    found: dict[str, Any] = {}
    for late in ("skip", "use"):
        tuning = Tuning(TuneConfig.read(given | {"late": late}))
        found[late] = tuning.lesson(lambda _: None)
    sorted_table = make_table(tmp_path / "s", late_world(400).sort("t"))
    whole: Any = Tuning(TuneConfig.read(given | {"table": sorted_table.path})).lesson(lambda _: None)
    windows = {name: {tuple(one) for one in torch.cat([x.flatten(1), y], 1).tolist()} for name, (x, y) in found.items()}
    those = {tuple(one) for one in torch.cat([whole[0].flatten(1), whole[1]], 1).tolist()}
    assert windows["skip"] < windows["use"] < those


@pytest.mark.parametrize(("option", "word"), [({"simulate": 12}, "simulate"), ({"online": False}, "online")])
def test_what_it_does_not_go_with_is_refused(tmp_path: Path, option: dict[str, Any], word: str) -> None:
    table = make_table(tmp_path / "t", frame_of(60))
    given = {**USE, **option, "warmup": None, "checkpoint_every": None, "season": None, "horizon": 1}
    with pytest.raises(UsageError, match=word):
        run(table, tmp_path / "c", **given)


@pytest.mark.parametrize("config", [CompareConfig, TuneConfig])
def test_it_is_of_streams(config: Any) -> None:
    with pytest.raises(UsageError, match="test-tail"):
        config.read({"table": "t", "late": "use", "test_tail": 0.2})


def test_rows_that_come_later_than_the_lateness(tmp_path: Path) -> None:
    """The table flags them, and the run takes them."""
    data = delayed(frame_of(450), dict.fromkeys(range(220, 420, 20), 9))
    table = make_table(tmp_path / "t", data, lateness_ns=5 * HOUR_NS)
    found = {late: run(table, tmp_path / late, late=late) for late in ("skip", "use")}
    assert (found["skip"]["late"], found["use"]["late_used"], found["use"]["late"]) == (10, 10, 0)
    assert any("--late use" in warning for warning in found["skip"]["warnings"])
