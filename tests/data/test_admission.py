"""Duplicates against a dictionary: the first row of a (series, time) is taken, all others are not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp_data.admission import Admission
from streamgp_data.table import Table, TableMeta
from tests.properties import examples

KEYS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 30)), max_size=120)


def oracle(keys: list[tuple[str, int]]) -> tuple[list[bool], list[bool]]:
    """Row by row: duplicate, and late."""
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = {}
    duplicate, late = [], []
    for series, time in keys:
        again = (series, time) in seen
        duplicate.append(again)
        late.append(not again and time <= last.get(series, -1))
        seen.add((series, time))
        last[series] = max(last.get(series, -1), time)
    return duplicate, late


def judged(table: Table, keys: list[tuple[str, int]], cuts: list[int], reopen: bool) -> tuple[list[bool], list[bool]]:
    admission = Admission(table)
    duplicate: list[bool] = []
    late: list[bool] = []
    bounds = [0, *sorted({min(cut, len(keys)) for cut in cuts}), len(keys)]
    for n, (low, high) in enumerate(pairwise(bounds)):
        part = keys[low:high]
        rows = pa.table(
            {"t": pa.array([time for _, time in part], pa.int64()), "s": pa.array([s for s, _ in part], pa.string())}
        )
        verdict = admission.judge(rows)
        duplicate += verdict.duplicate.tolist()
        late += verdict.late.tolist()
        table.append(rows.filter(pa.array(~verdict.duplicate, pa.bool_())), "test", n)
        if reopen:
            admission = Admission(Table.open(table.path))
    return duplicate, late


@examples(25)
@given(keys=KEYS, cuts=st.lists(st.integers(0, 120), max_size=5), reopen=st.booleans())
def test_against_a_dictionary(
    keys: list[tuple[str, int]], cuts: list[int], reopen: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = pa.schema([pa.field("t", pa.int64()), ("s", pa.string())])
    table = Table.create(tmp_path_factory.mktemp("a") / "t", schema, TableMeta(time="t", series="s", clock=False))
    assert judged(table, keys, cuts, reopen) == oracle(keys)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.int64()])
def test_one_series_of_every_kind_of_time(kind: pa.DataType, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = rng.integers(0, 10**15, 600) if kind != pa.int64() else rng.integers(0, 400, 600)
    times = np.concatenate([times, times[::3]])
    table = Table.create(tmp_path / "t", pa.schema({"t": kind}), TableMeta(time="t", clock=kind != pa.int64()))
    admission = Admission(table)
    found: list[bool] = []
    for n, part in enumerate(np.array_split(times, 9)):
        rows = pa.table({"t": pa.array(part, pa.int64()).cast(kind)})
        verdict = admission.judge(rows)
        found += verdict.duplicate.tolist()
        table.append(rows.filter(pa.array(~verdict.duplicate)), "test", n)
    assert found == oracle([("", int(time)) for time in times])[0]


def test_rows_without_a_clock_are_never_duplicates(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema({"y": pa.int64()}), TableMeta())
    verdict = Admission(table).judge(pa.table({"y": [1, 1, 1]}))
    assert not verdict.duplicate.any()
    assert not verdict.late.any()


def test_only_files_that_touch_the_times_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t", pa.schema({"t": pa.int64()}), TableMeta(time="t", clock=False))
    for n in range(6):
        table.append(pa.table({"t": np.arange(100 * n, 100 * n + 100)}), "test", n)
    asked: list[int] = []
    dataset = ds.dataset

    def spy(paths: list[str], **kwargs: Any) -> Any:
        asked.append(len(paths))
        return dataset(paths, **kwargs)

    monkeypatch.setattr(ds, "dataset", spy)
    verdict = Admission(table).judge(pa.table({"t": [600, 250, 260, 601]}))
    assert (verdict.duplicate.tolist(), asked) == ([False, True, True, False], [1])
