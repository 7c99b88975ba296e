"""What a summary counts: every forecast of a run is scored, or skipped for a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.worlds import append, frame_of, make_table, run


def counted(home: Path, data: pl.DataFrame, **options: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """The summary of a run, and what it skipped; the parts add up to all."""
    found = run(make_table(home / "t", data), home / "c", **options)
    whole = found["forecasts"]
    assert whole["all"] == whole["scored"] + sum(whole["skipped"].values())
    assert whole["scored"] == found["scored"] and min(whole["skipped"].values()) >= 0
    return {name: count for name, count in whole["skipped"].items() if count}, found


def test_a_stream_without_faults(tmp_path: Path) -> None:
    skipped, found = counted(tmp_path, frame_of(500))
    assert skipped == {"warm_up": 3 * 200, "not_yet_due": 1 + 2 + 3}
    assert found["warmup"] == 200 and found["forecasts"]["all"] == 3 * 500


def test_scores_that_start_later(tmp_path: Path) -> None:
    skipped, _ = counted(tmp_path, frame_of(500), score_from="301")
    assert skipped == {"warm_up": 600, "before_score_from": 3 * 101, "not_yet_due": 6}


def test_scores_that_start_at_a_time(tmp_path: Path) -> None:
    data = frame_of(500)
    skipped, _ = counted(tmp_path, data, score_from=data["t"][301].isoformat())
    assert skipped == {"warm_up": 600, "before_score_from": 3 * 101, "not_yet_due": 6}


def test_rows_that_come_late(tmp_path: Path) -> None:
    data = frame_of(500)
    skipped, found = counted(tmp_path, pl.concat([data[:300], data[250:270], data[300:]]))
    assert skipped == {"warm_up": 600, "late_row": 3 * 20, "not_yet_due": 6} and found["late"] == 20


def test_a_value_that_is_missing(tmp_path: Path) -> None:
    """It spoils the windows that hold it or have it one season before, and is no truth of the three rows before it."""
    data = frame_of(500).with_columns(y=pl.when(pl.int_range(pl.len()) == 350).then(None).otherwise("y"))
    skipped, _ = counted(tmp_path, data, gaps="reset")
    lags = set(range(350, 356))
    season_ahead = {350 + 24 - step for step in (1, 2, 3)}
    season_back = set(range(374, 380))
    broken = lags | season_ahead | season_back
    assert skipped == {"warm_up": 600, "window_not_whole": 3 * len(broken), "truth_missing": 3, "not_yet_due": 6}
    (tmp_path / "fill").mkdir()
    filled, _ = counted(tmp_path / "fill", data)
    assert filled == {"warm_up": 600, "truth_missing": 3, "not_yet_due": 6}


def test_rows_that_are_missing(tmp_path: Path) -> None:
    data = frame_of(500)
    skipped, _ = counted(tmp_path, pl.concat([data[:350], data[353:]]), season=None, gaps="reset")
    assert skipped == {"warm_up": 600, "window_not_whole": 3 * 5, "truth_missing": 3 + 2 + 1, "not_yet_due": 6}


def test_known_inputs_that_are_waited_for(tmp_path: Path) -> None:
    skipped, _ = counted(tmp_path, frame_of(500), known="k")
    assert skipped == {"warm_up": 600, "not_yet_due": 9}


def test_a_warm_up_that_is_not_over(tmp_path: Path) -> None:
    skipped, found = counted(tmp_path, frame_of(150), known="k")
    assert skipped == {"warm_up": 3 * 147, "not_yet_due": 9} and found["warmup"] == 150


def test_several_series_and_targets(tmp_path: Path) -> None:
    skipped, found = counted(tmp_path, frame_of(200, ("a", "b")), target="y,x")
    assert skipped == {"warm_up": 6 * 200, "not_yet_due": 2 * 2 * 6}
    assert set(found["mase_scale"]["targets"]) == {"y", "x"}


def test_regression(tmp_path: Path) -> None:
    skipped, found = counted(tmp_path, frame_of(300), lags=0, inputs="x", horizon=1, season=1)
    assert skipped == {"warm_up": 200} and found["mase_scale"] is None


@pytest.mark.parametrize("known", [None, "k"])
def test_rows_that_are_held_out(tmp_path: Path, known: str | None) -> None:
    data = frame_of(500).with_columns(y=pl.when(pl.int_range(pl.len()) == 470).then(None).otherwise("y"))
    batch: dict[str, Any] = {
        "online": None,
        "warmup": None,
        "checkpoint_every": None,
        "test_tail": 0.2,
        "season": None,
        "gaps": "reset",
    }
    skipped, found = counted(tmp_path, data, known=known, **batch)
    assert found["forecasts"]["all"] == 300 and skipped["truth_missing"] == 3
    assert found["warmup"] == 0
    beyond = 0 if known is None else 2 + 1  # the last rows lack known values of the next three
    assert skipped["window_not_whole"] == 3 * 6 + beyond


def test_a_run_in_pieces_counts_the_same(tmp_path: Path) -> None:
    data = frame_of(500).with_columns(y=pl.when(pl.int_range(pl.len()) % 97 == 0).then(None).otherwise("y"))
    table = make_table(tmp_path / "grows", data[:150])
    for start, stop in ((150, 333), (333, 500)):
        run(table, tmp_path / "d", known="k")
        append(table, data[start:stop])
    pieces = run(table, tmp_path / "d", known="k")
    _, whole = counted(tmp_path, data, known="k")
    assert pieces["forecasts"] == whole["forecasts"]


def test_mase_says_what_it_divides_by(tmp_path: Path) -> None:
    data = frame_of(500)
    _, found = counted(tmp_path, data)
    y = data["y"][:200].to_numpy()
    scale = found["mase_scale"]
    assert scale["steps_back"] == 24 and scale["rows"] == 200 - 24
    assert scale["value"] == pytest.approx(abs(y[24:] - y[:-24]).mean())
    assert found["mase"] == pytest.approx(found["mae"] / scale["value"])
    (tmp_path / "one").mkdir()
    _, stepwise = counted(tmp_path / "one", data, season=None)
    assert stepwise["mase_scale"]["steps_back"] == 1 and stepwise["mase_scale"]["rows"] == 199
