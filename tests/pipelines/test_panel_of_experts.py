"""The default model on a panel: fifty series of very different size, with gaps; some begin late, some go quiet."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.pipelines.killed import Crash, code_of, start, train_apart
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, scores_of

SERIES, HOURS, WARM = 50, 170, 5000
SVDGP = {"basis": "32", "reservoir": "512", "rebuild": "2000", "evidence_rows": "64"}
OPTIONS: dict[str, Any] = {"model": "auto", "batch": 256, "warmup": WARM, "checkpoint_every": 1000}
OPTIONS |= {"set": {"svdgp": SVDGP}}
LATE, QUIET = range(40, 45), range(45, 50)
"""Series that begin at hour 60, and that end at hour 120."""


def panel() -> pl.DataFrame:
    """Rows of series s0 to s49; series i is of size 10^(i/10 − 2)."""
    names = [f"s{i}" for i in range(SERIES)]
    data = frame_of(HOURS, names)
    hour = (pl.col("t") - pl.col("t").min()).dt.total_hours()
    number = pl.col("unique_id").str.strip_prefix("s").cast(pl.Int64)
    data = data.with_columns(hour=hour, number=number).with_columns(
        y=(pl.col("y") - 5.0 * number) * 10 ** (number / 10 - 2)
    )
    data = data.filter(~(number.is_in(LATE) & (hour < 60)) & ~(number.is_in(QUIET) & (hour >= 120)))
    draw = np.random.default_rng(0).random((2, data.height))
    data = data.filter(pl.Series(draw[0] > 0.02))  # a row that never came
    empty = pl.Series(draw[1][: data.height] < 0.02)
    return data.with_columns(y=pl.when(empty).then(None).otherwise("y")).drop("hour", "number")


@pytest.mark.slow
def test_every_series_of_a_panel_is_forecast_in_its_own_size(tmp_path: Path) -> None:
    data = panel()
    found = run(make_table(tmp_path / "t", data), tmp_path / "c", predictions=tmp_path / "p.parquet", **OPTIONS)
    issued = pl.read_parquet(tmp_path / "p.parquet")
    assert issued.select(pl.all_horizontal(pl.selectors.float().is_finite().all())).item()
    before = data.select("unique_id", ds=pl.col("t") + pl.duration(hours=24), naive="y")
    errors = (
        issued.join(before, on=["unique_id", "ds"])
        .group_by("unique_id")
        .agg(
            (pl.col("ensemble") - pl.col("y")).abs().mean(),
            naive=(pl.col("naive") - pl.col("y")).abs().mean(),
            rows=pl.len(),
        )
    )
    assert len(errors) == SERIES and errors.select((pl.col("ensemble") < pl.col("naive")).mean()).item() > 0.8
    often = errors.filter(pl.col("rows") > 100)
    assert len(often) > 40 and often.select((pl.col("ensemble") / pl.col("naive")).max()).item() < 1.2
    assert 0.8 < found["coverage"]["95"] < 0.99
    last = issued.filter(pl.col("unique_id").is_in([f"s{i}" for i in QUIET]))["cutoff"].max()
    assert last < data["t"].max()  # what has gone quiet is not asked about


@pytest.mark.slow
def test_a_panel_forecasts_the_same_whatever_comes_after(tmp_path: Path) -> None:
    data = panel()
    moment = data["t"][6400]
    other = data.with_columns(y=pl.when(pl.col("t") < moment).then("y").otherwise(17.0 - 3 * pl.col("y")))
    frames = []
    for name, rows in (("one", data), ("two", other)):
        run(
            make_table(tmp_path / name, rows),
            tmp_path / f"c{name}",
            predictions=tmp_path / f"{name}.parquet",
            **OPTIONS,
        )
        issued = pl.read_parquet(tmp_path / f"{name}.parquet").filter(pl.col("cutoff") < moment)
        frames.append(issued.drop("y").sort("unique_id", "cutoff", "ds"))
    assert frames[0].height > 1000
    assert_frame_equal(*frames, check_exact=True)


@pytest.mark.slow
def test_a_panel_that_is_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", panel())
    expected = run(table, tmp_path / "whole", **OPTIONS)
    for count in (3, 9):
        crash = Crash("streamgp.models.ensemble.members", "Member.update", count)
        process = start(train_apart, table.path, str(tmp_path / "c"), OPTIONS, crash, None)
        assert code_of(process) == -signal.SIGKILL
    process = start(train_apart, table.path, str(tmp_path / "c"), OPTIONS, None, str(tmp_path / "summary.json"))
    assert code_of(process) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert scores_of(summary) == scores_of(json.loads(json.dumps(expected)))
    assert_same_state(tmp_path / "c", tmp_path / "whole")
