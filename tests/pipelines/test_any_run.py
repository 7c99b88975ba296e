"""Whatever a run looks at, it may be cut into other chunks and interrupted anywhere, and it never looks ahead."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from streamgp_pipelines.training.online import OnlineRun
from tests.pipelines.worlds import assert_same_state, frame_of, make_table, run, scores_of
from tests.properties import examples


class Stop(Exception):
    """Ends a run where a test wants it to."""


@dataclass(frozen=True)
class Case:
    """A table and what is asked of it."""

    rows: int
    seed: int
    series: tuple[str, ...]
    clock: str
    holes: bool
    late: bool
    options: dict[str, Any]

    def data(self) -> pl.DataFrame:
        """The rows, with missing values, missing rows and late rows where the case wants them."""
        draw = np.random.default_rng(self.seed)
        data = frame_of(self.rows, self.series, self.seed)
        if self.holes:
            missing = draw.uniform(size=(2, data.height)) < 0.01
            for name, mask in zip(("y", "x"), missing, strict=True):
                data = data.with_columns(pl.when(pl.Series(mask)).then(None).otherwise(pl.col(name)).alias(name))
            data = data.filter(pl.Series(draw.uniform(size=data.height) > 0.01))
        if self.late:
            order = np.arange(data.height) + 40 * (draw.uniform(size=data.height) < 0.02)
            data = data[np.argsort(order, kind="stable")]
        if self.clock == "none":
            return data.drop("t")
        if self.clock == "steps":
            return data.with_columns(pl.col("t").dt.epoch("s") // 3600)
        return data

    def table(self, path: Path, data: pl.DataFrame, cuts: list[int]) -> Any:
        every = {"hourly": 3600 * 10**9, "steps": 1}.get(self.clock)
        return make_table(path, data, cuts, every)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lags = draw(st.sampled_from([0, 1, 5]))
    clock = draw(st.sampled_from(["hourly", "irregular", "steps", "none"]))
    options: dict[str, Any] = {
        "lags": lags,
        "horizon": draw(st.sampled_from([1, 2, 5])) if lags else 1,
        "season": draw(st.sampled_from([1, 3, 24])) if lags else 1,
        "target": draw(st.sampled_from(["y", "y,x"])),
        "gaps": draw(st.sampled_from(["reset", "fill"])),
        "batch": draw(st.sampled_from([7, 32, 100])),
        "warmup": draw(st.sampled_from([0, 50, 130])),
        "checkpoint_every": draw(st.sampled_from([1, 60, 10_000])),
        "score_from": draw(st.sampled_from([None, "150"])),
        "set": draw(st.sampled_from([{}, {"predictive": "student_t"}, {"target": "level", "memory": "300"}])),
        "calendar": clock in ("hourly", "irregular") and draw(st.booleans()),
    }
    looked_at = draw(st.sampled_from([{}, {"inputs": "x"}, {"known": "k"}, {"inputs": "x", "known": "k"}]))
    if options["target"] == "y,x":
        looked_at = {name: value for name, value in looked_at.items() if name == "known"}
    if not lags and not looked_at:
        looked_at = {"inputs": "k"}
    series = draw(st.sampled_from([(), ("a", "b", "c")]))
    rows = draw(st.integers(260, 330)) // (2 if series else 1)
    seed, holes, late = draw(st.integers(0, 999)), draw(st.booleans()), draw(st.booleans())
    return Case(rows, seed, series, clock, holes, late, options | looked_at)


def interrupted(case: Case, table: Any, home: Path, draw: random.Random) -> dict[str, Any]:
    """The run, stopped after some micro-batches again and again until it gets through."""
    between, most = OnlineRun.between, max(6, 140 // case.options["batch"])
    while True:
        left = [draw.randint(0, most)]

        def stopping(run: OnlineRun, *args: Any, left: list[int] = left) -> None:
            if not left[0]:
                raise Stop
            left[0] -= 1
            between(run, *args)

        with suppress(Stop), patch.object(OnlineRun, "between", stopping):
            return run(table, home, predictions=home / "p.parquet", **case.options)
        if draw.random() < 0.2:  # without a checkpoint since, a run would never get through
            case.options["checkpoint_every"] = 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(cases())
@examples(4, phases=[Phase.generate])  # a case is slow to shrink
def test_any_run(case: Case) -> None:
    """Chunks and interruptions change nothing; rows behind a row change no forecast issued there."""
    draw = random.Random(case.seed)
    data = case.data()
    cuts = sorted(draw.sample(range(1, data.height), draw.randint(0, 9)))
    with TemporaryDirectory() as folder:
        home = Path(folder)
        whole = run(case.table(home / "t", data, []), home / "c", predictions=home / "c.parquet", **case.options)
        broken = interrupted(case, case.table(home / "u", data, cuts), home / "d", draw)
        one, two = pl.read_parquet(home / "c.parquet"), pl.read_parquet(home / "d" / "p.parquet")
        assert scores_of(whole) == scores_of(broken)
        assert_same_state(home / "c", home / "d")
        assert_frame_equal(one, two, check_exact=True)
        keys = ["unique_id", "ds", "cutoff", *(["target"] if "target" in one.columns else [])]
        assert one.height == whole["scored"] == one.unique(keys).height and whole["rows"] == data.height

        row = draw.randint(data.height // 2, data.height - 1)
        index = pl.int_range(pl.len())
        reach = case.options["horizon"] * max(len(case.series), 1) * 3 if "known" in case.options else 0
        changed = data.with_columns(
            pl.when(index < row).then(pl.col(name)).otherwise(-5 * pl.col(name) + index % 3) for name in ("y", "x")
        ).with_columns(k=pl.when(index < row + reach).then(pl.col("k")).otherwise(7.0))
        run(case.table(home / "v", changed, []), home / "e", predictions=home / "e.parquet", **case.options)
        three = pl.read_parquet(home / "e.parquet")
        # With known inputs a forecast waits for them, and rows of other series count meanwhile.
        until = row - reach if case.series else row
        issued = [asked_before(frame, data, until, case) for frame in (one, three)]
        common = issued[0].join(issued[1], on=keys, how="inner", suffix="!")
        assert common.height == issued[0].height == issued[1].height
        for name in issued[0].columns:
            if name not in keys:
                assert common[name].equals(common[f"{name}!"]), name


def asked_before(frame: pl.DataFrame, data: pl.DataFrame, row: int, case: Case) -> pl.DataFrame:
    """Forecasts issued at the first `row` rows, truths left out; without lags a row is asked about at itself."""
    times = data["t"] if "t" in data.columns else None
    if times is None and not case.series:
        return frame.filter(pl.col("cutoff") < row).drop("y")
    seen = data[:row].with_columns(
        unique_id=pl.col("unique_id") if case.series else pl.lit("y" if case.options["target"] == "y" else "y+x")
    )
    if times is None:
        seen = seen.with_columns(t=pl.int_range(pl.len()).over("unique_id"))
    return frame.join(seen.select("unique_id", cutoff="t"), on=["unique_id", "cutoff"], how="semi").drop("y")
