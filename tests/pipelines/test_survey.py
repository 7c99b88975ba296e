"""A table is read once before its first row is learned, and once to be learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from streamgp.windows.windows import WindowSpec
from streamgp_data import scan
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.survey import Survey, surveyed
from streamgp_pipelines.learning.warmup import Needs, needed
from streamgp_pipelines.training.batch import BatchRun
from streamgp_pipelines.training.train import train
from tests.pipelines.worlds import config_of, frame_of, make_table, run

CUTS = [100, 350, 900]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each file of a table was opened."""
    found: Counter[str] = Counter()

    class Counted(pq.ParquetFile):
        def __init__(self, source: Any, **options: Any) -> None:
            found[str(source)] += 1
            super().__init__(source, **options)

    monkeypatch.setattr(scan.pq, "ParquetFile", Counted)
    yield found


def series(names: tuple[str, ...] = ()) -> pl.DataFrame:
    frame = frame_of(1200 // max(len(names), 1), *([names] if names else []))
    return frame.with_columns(pl.col("y") + 20.0)


RUNS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "one series": ((), {"season": "auto", "warmup": None, "lags": None, "transform": "auto"}),
    "panel": (("a", "b", "c"), {"season": "auto", "warmup": None, "batch": None, "lags": None, "transform": "auto"}),
    "fleet": (("a", "b", "c"), {"fleet": True, "warmup": None, "batch": None}),
    "no season": ((), {"warmup": 200}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", RUNS)
def test_no_file_is_read_more_than_twice_until_all_is_learned(tmp_path: Path, name: str, opened: Counter[str]) -> None:
    names, options = RUNS[name]
    table = make_table(tmp_path / "t", series(names), cuts=CUTS)
    found = run(table, tmp_path / "c", **options)
    assert found["rows"] == table.rows and len(opened) == len(CUTS) + 1
    assert set(opened.values()) == {2}
    opened.clear()
    run(table, tmp_path / "c", **options)  # it goes on, and nothing is left to learn
    assert max(opened.values()) <= 2


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"test_tail": 0.2}, {"test_column": "test", "lags": 0, "known": "y2"}])
def test_batch_training_reads_twice_until_it_scores(
    tmp_path: Path, options: dict[str, Any], opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = series().with_columns(y2=pl.col("y").shift(1).fill_null(0.0), test=pl.int_range(pl.len()) % 5 == 0)
    table = make_table(tmp_path / "t", frame, cuts=CUTS)
    counts, score = [], BatchRun._score

    def counted(self: BatchRun) -> Any:
        counts.append(set(opened.values()))
        return score(self)

    monkeypatch.setattr(BatchRun, "_score", counted)
    given = {"table": table.path, "checkpoint": tmp_path / "c", "target": "y", "model": "svdgp", "set": {"basis": 8}}
    train(TrainConfig.read({**given, "transform": "auto", "epochs": 1, "lags": 6, **options}), NoTracker)
    assert counts == [{2}]


@pytest.mark.parametrize("pieces", [[], [3, 50, 51, 400]])
def test_a_survey_is_the_same_however_the_table_is_cut(tmp_path: Path, pieces: list[int]) -> None:
    frame = series(("a", "b", "c")).with_columns(x=pl.lit(None, pl.Float64), test=pl.int_range(pl.len()) % 3 == 0)
    frame = frame[: frame.height - 1]
    table = make_table(tmp_path / "t", frame, cuts=pieces)
    spec = WindowSpec(targets=("y",), inputs=("x",), known=("x",), lags=0, time="t", series="unique_id")
    found = Survey.of(table, spec, "test", rowwise=True)
    counts = dict(frame.group_by("unique_id").len().iter_rows())
    assert found.series == counts and found.count == 3 and found.empty == ["x"]
    assert found.held.tolist() == frame["test"].to_list()
    assert np.array_equal(found.targets[:, 0], frame["y"].to_numpy(), equal_nan=True)
    names = np.array(list(dict.fromkeys(frame["unique_id"])))
    assert names[found.codes].tolist() == frame["unique_id"].to_list()
    assert found.opening is not None and found.opening.num_rows == frame.height


def test_more_than_the_first_rows_are_held_where_the_warm_up_has_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamgp_pipelines.learning import survey as surveys

    monkeypatch.setattr(surveys, "ROWS", 40)
    frame = series(("a", "b"))
    table = make_table(tmp_path / "t", frame, cuts=list(range(20, 500, 20)))
    spec = WindowSpec(targets=("y",), lags=4, time="t", series="unique_id")
    found = Survey(table, spec)
    found.look()
    assert found.opening is not None and found.opening.num_rows == 40
    found.finish(needed(spec), Needs(spec, table.readable), batch=16)
    assert found.opening.num_rows >= 240 and found.opening.column("y").to_pylist()[:300] == frame["y"].to_list()[:300]
    short = Survey(table, spec)
    short.finish(100)
    assert short.opening is not None and 100 <= short.opening.num_rows < 200


def test_what_is_left_to_the_data_is_filled_in(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", series(("a", "b")))
    config, spec, _ = surveyed(config_of(table, tmp_path / "c", season="auto", batch=None, lags=None), table)
    assert isinstance(config.season, tuple) and spec.seasons and config.batch >= 48
    none = make_table(tmp_path / "e", series()[:0])
    assert Survey.of(none, WindowSpec(targets=("y",), time="t")).opening is None
    assert surveyed(config_of(none, tmp_path / "d"), none)[2].count == 1
