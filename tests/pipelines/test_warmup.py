"""The warm-up: how long it is by default, where it ends, and that a run keeps the number it began with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from streamgp.base import Step
from streamgp.errors import CheckpointError, UsageError
from streamgp.windows.ledger import Due
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.survey import Survey
from streamgp_pipelines.learning.warmup import Needs, default_warmup, needed
from streamgp_pipelines.training.online import OnlineRun
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, scores_of
from tests.words import naming


def default(table: Table, batch: int = 1, **options: Any) -> int:
    series = "unique_id" if table.meta.series else None
    spec = WindowSpec(targets=("y",), time="t", series=series, **options)
    survey = Survey(table, spec)
    survey.finish(needed(spec), None if series is None else Needs(spec, table.readable), batch)
    found = default_warmup(spec, survey, batch)
    held = 0 if survey.opening is None else survey.opening.num_rows
    assert held >= min(found, table.readable)  # what the fit is checked by
    return found


def one_series(path: Path, rows: int) -> Table:
    return make_table(path, frame_of(max(rows, 9))[:rows])


def test_of_one_series_it_is_three_seasons_and_a_window_or_five_hundred_windows(tmp_path: Path) -> None:
    table = one_series(tmp_path / "t", 3000)
    assert default(table, lags=24, horizon=12, season=48) == 3 * 48 + 24 + 12
    assert default(table, lags=24, horizon=1) == 500 + 24
    assert default(table, batch=256, lags=24, horizon=1) == 600  # a fifth comes before the end of a micro-batch
    assert default(table, batch=256, lags=24, horizon=12, season=48) == 256


def test_it_is_at_most_a_fifth_of_the_table_and_at_least_ten_windows(tmp_path: Path) -> None:
    table = one_series(tmp_path / "t", 400)
    assert default(table, lags=24, horizon=1) == 80
    assert default(table, lags=70, horizon=20) == 99
    assert default(table, lags=12, horizon=3, season=100) == 124
    assert default(one_series(tmp_path / "none", 0), lags=6, horizon=3) == 18


def test_of_several_series_rows_of_the_whole_stream_count(tmp_path: Path) -> None:
    mixed = frame_of(500, ("a", "b", "c", "d"))  # 2000 rows, one of each series an hour
    side_by_side = make_table(tmp_path / "mixed", mixed, cuts=[7, 8, 31, 900])
    stacked = make_table(tmp_path / "stacked", mixed.sort("unique_id", maintain_order=True))
    season = {"lags": 6, "horizon": 3, "season": 24}
    assert default(side_by_side, **season) == 4 * (3 * 24 + 9 - 1) + 1  # when the first series has them
    assert default(stacked, **season) == 3 * 24 + 9
    assert default(side_by_side, lags=6, horizon=3) == 400  # a fifth; 500 windows would be 4 · 8 + 500
    assert default(stacked, lags=6, horizon=2) == 400
    assert default(side_by_side, lags=1, horizon=1, season=1) == 400
    short = make_table(tmp_path / "short", mixed[:1600], cuts=[10, 20, 30, 60])  # needs found in different pieces
    assert default(short, lags=2, horizon=1, season=2) == max(4 * (6 + 3 - 1) + 1, 4 * 4 + 10)
    assert default(side_by_side, lags=200, horizon=1) == 4 * 200 + 10  # ten whole windows, though beyond a fifth


def test_a_panel_of_short_series_is_mostly_scored(tmp_path: Path) -> None:
    """Ten stacked series of 200 rows: the warm-up is not that of each of them."""
    data = frame_of(200, tuple("abcdefghij")).sort("unique_id", maintain_order=True)
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", warmup=None, season=None, batch=64)
    assert found["warmup"] == 400 and found["scored"] == 8 * (200 - 6) * 3 - 8 * (1 + 2)


@pytest.mark.sampled
@pytest.mark.parametrize("warmup", [1, 9, 63, 200, 64, 65, 130])
def test_it_ends_at_its_last_row(tmp_path: Path, warmup: int) -> None:
    data = frame_of(300)
    options = {"warmup": warmup, "season": None, "predictions": tmp_path / "p.parquet"}
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", **options)
    ends = warmup if warmup >= 9 else warmup + 64  # the first window is whole at row 9
    assert found["warmup"] == ends
    assert pl.read_parquet(tmp_path / "p.parquet")["cutoff"].min() == data["t"][ends]


def test_it_lasts_until_a_window_is_whole(tmp_path: Path) -> None:
    data = frame_of(500).with_columns(y=pl.when(pl.int_range(pl.len()) < 230).then(None).otherwise("y"))
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", season=None)
    assert found["warmup"] == 264 and found["scored"] > 0  # 200 + 64: the micro-batch with the first whole window
    assert found["mase"] is not None


def sizes_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each micro-batch that runs learn from here on."""
    sizes, learn = list[int](), Learner.learn

    def noted(self: Learner, rows: pa.RecordBatch, each: Callable[[Due], None]) -> Step | None:
        sizes.append(rows.num_rows)
        return learn(self, rows, each)

    monkeypatch.setattr(Learner, "learn", noted)
    return sizes


def test_micro_batches_behind_it_begin_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in sixteen of those before, up to the default: a few hundred rows are not most of a season old."""
    sizes = sizes_of(monkeypatch)
    run(one_series(tmp_path / "t", 480), tmp_path / "c", warmup=None, batch=None)
    assert sizes[:8] == [24, 24, 24, 24, 6, 6, 6, 7]  # the warm-up, and a sixteenth of the rows before
    assert sizes[-1] == 24 and sizes[4:] == sorted(sizes[4:])
    sizes.clear()
    run(one_series(tmp_path / "u", 480), tmp_path / "d", warmup=None, batch=48)
    assert set(sizes) == {48}  # as asked for
    sizes.clear()
    run(one_series(tmp_path / "v", 300), tmp_path / "e", warmup=12, batch=None)
    assert set(sizes[1:]) == {24}  # a model fitted to a single window


def test_micro_batches_that_grow_end_as_those_of_a_run_that_stops(tmp_path: Path) -> None:
    table, options = one_series(tmp_path / "t", 240), {"warmup": None, "batch": None}
    straight = run(table, tmp_path / "a", **options)
    for rows in (151, None):
        stopped = run(table, tmp_path / "b", **options, max_rows=rows)
    assert scores_of(stopped) == scores_of(straight)
    assert_same_state(tmp_path / "a", tmp_path / "b")


def test_none_at_all_is_the_first_micro_batch(tmp_path: Path) -> None:
    assert run(one_series(tmp_path / "t", 300), tmp_path / "c", warmup=0)["warmup"] == 64


def test_a_table_that_grows_goes_on_with_the_number_it_began_with(tmp_path: Path) -> None:
    data = frame_of(900)
    table = make_table(tmp_path / "t", data[:400])
    options = {"warmup": None, "season": None}
    assert run(table, tmp_path / "c", **options)["warmup"] == 80
    append(table, data[400:])
    grown = run(table, tmp_path / "c", **options)
    whole = run(make_table(tmp_path / "u", data), tmp_path / "d", **options | {"warmup": 80})
    assert grown["warmup"] == 80 and scores_of(grown) == scores_of(whole)
    assert run(table, tmp_path / "c", **options | {"warmup": 80})["warmup"] == 80
    with pytest.raises(CheckpointError, match=naming("warmup 80 180")):
        run(table, tmp_path / "c", **options | {"warmup": 180})


def test_an_empty_table_fixes_nothing(tmp_path: Path) -> None:
    table, options = one_series(tmp_path / "t", 0), {"warmup": None, "season": None}
    run(table, tmp_path / "c", **options)
    append(table, frame_of(500))
    assert run(table, tmp_path / "c", **options)["warmup"] == 100


def test_a_kill_before_the_first_checkpoint_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame_of(900)
    table = make_table(tmp_path / "t", data[:400])
    options = {"warmup": None, "season": None, "checkpoint_every": 10_000}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OnlineRun, "between", _interrupt)
        run(table, tmp_path / "c", **options)
    assert checkpoint.read(tmp_path / "c").rows == 0
    append(table, data[400:])
    assert run(table, tmp_path / "c", **options)["warmup"] == 80
    run(make_table(tmp_path / "u", data), tmp_path / "d", **options | {"warmup": 80})
    assert_same_state(tmp_path / "c", tmp_path / "d")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_more_rows_than_a_model_fits_are_refused_before_the_first(tmp_path: Path) -> None:
    make_table(tmp_path / "table", frame_of(400).with_columns(y=pl.when(pl.col("x") < 2).then("y")))
    given: dict[str, Any] = {"model": "exact", "lags": 4, "horizon": 2, "warmup": 250, "batch": 64}
    with pytest.raises(UsageError) as refused:
        run(tmp_path / "table", tmp_path / "run", set={"rows": 190}, **given)
    assert "--warmup" in refused.value.hint and not (tmp_path / "run").exists()
