"""Rows behind a watermark, against a loop over rows; resumed anywhere, cut anyhow."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from streamgp.base import Chunk, Offset
from streamgp_data.event_time import QUIET, in_order
from tests.properties import examples

Rows = list[tuple[int, str]]  # time, series


def oracle(rows: Rows, lateness: int) -> tuple[list[int], list[int]]:
    """`_seq` of the rows that go out, in their order, and of those that wait: the rules, one row at a time."""
    out: list[int] = []
    waiting: list[int] = []
    behind: set[int] = set()
    came: dict[int, int] = {}  # the newest time of all when a row came
    newest = -(10**9)

    def order(seq: int) -> tuple[int, str, int]:
        return *rows[seq], seq

    for seq, (time, name) in enumerate(rows):
        if time + lateness < newest or any(rows[one][1] == name for one in behind.intersection(waiting)):
            behind.add(seq)
        newest = came[seq] = max(newest, time)
        waiting.append(seq)
        due = {one for one in waiting if one not in behind and rows[one][0] + lateness < newest}
        for one in waiting:
            if one not in behind:
                continue
            own = [other for other in waiting if rows[other][1] == rows[one][1]]
            latest = max(own, key=lambda other: (rows[other][0], -other))
            due |= {one for other in own if other in due and rows[other][0] >= rows[one][0]}
            if rows[latest][0] > rows[one][0] + lateness or came[latest] + QUIET * lateness < newest:
                due.add(one)
        out += sorted(due, key=order)
        waiting = [one for one in waiting if one not in due]
    return out, sorted(waiting, key=order)


def arrived(rows: Rows, cuts: list[int], start: int = 0) -> Iterator[Chunk]:
    """Rows from one on as chunks that end at the cuts; one of them is empty."""
    ends = sorted({min(max(cut, start), len(rows)) for cut in cuts} | {len(rows)})
    for begin, end in zip([start, *ends], ends, strict=False):
        part = rows[begin:end]
        batch = pa.record_batch(
            {
                "_seq": pa.array(range(begin, end), pa.int64()),
                "t": pa.array([time for time, _ in part], pa.int64()),
                "id": pa.array([name for _, name in part], pa.string()),
            }
        )
        yield Chunk(batch, {"_seq": end, "table": "x"})


def read(rows: Rows, cuts: list[int], lateness: int, after: Offset) -> tuple[list[Chunk], list[int]]:
    held: list[pa.RecordBatch | None] = []
    found = in_order(arrived(rows, cuts, int(after.get("_seq", 0))), after, "t", "id", lateness, held.append)
    chunks = list(found)
    return chunks, [] if held[0] is None else held[0].column("_seq").to_pylist()


def seqs(chunks: list[Chunk]) -> list[int]:
    return [seq for chunk in chunks for seq in chunk.rows.column("_seq").to_pylist()]


ROWS = st.lists(st.tuples(st.integers(0, 80), st.sampled_from("abc")), max_size=40)


@given(rows=ROWS, lateness=st.integers(0, 8), cuts=st.lists(st.integers(0, 40), max_size=6), data=st.data())
@examples(200)
def test_it_is_the_loop_over_rows(rows: Rows, lateness: int, cuts: list[int], data: st.DataObject) -> None:
    out, waiting = oracle(rows, lateness)
    chunks, held = read(rows, cuts, lateness, {})
    assert (seqs(chunks), held) == (out, waiting)
    for number, chunk in enumerate(chunks):
        again = data.draw(st.lists(st.integers(0, 40), max_size=4))
        rest, left = read(rows, again, lateness, chunk.after)
        assert seqs(chunks[: number + 1]) + seqs(rest) == out
        assert left == waiting


@given(times=st.lists(st.integers(0, 30), max_size=40), delay=st.lists(st.integers(0, 9), min_size=40, max_size=40))
@examples(100)
def test_what_was_shuffled_within_the_lateness_comes_out_sorted(times: list[int], delay: list[int]) -> None:
    whole = sorted((time, name) for time in times for name in "ab")
    rows = [
        row
        for _, row in sorted((time + late, (time, name)) for (time, name), late in zip(whole, delay * 2, strict=False))
    ]
    chunks, held = read(rows, [7, 20], 9, {})
    assert [rows[seq] for seq in [*seqs(chunks), *held]] == whole


def test_without_a_hold_the_rows_that_wait_are_the_last_chunk() -> None:
    chunks = list(in_order(arrived([(1, "a"), (9, "a"), (8, "b")], []), {}, "t", "id", 5))
    assert [chunk.rows.column("t").to_pylist() for chunk in chunks] == [[1], [8, 9]]


@given(
    behind=st.lists(st.integers(21, 500), min_size=2, max_size=4),
    delay=st.lists(st.integers(0, 9), min_size=75, max_size=75),
    cut=st.integers(0, 60),
)
@examples(100)
def test_series_whose_clocks_are_behind_come_out_sorted_each(behind: list[int], delay: list[int], cut: int) -> None:
    """Rows are shuffled by up to 9; the clock of a series is that of the first, or behind it by more than 2 · 9 + 2."""
    times = [
        (when, when - late, name) for late, name in zip([0, *behind], "abcde", strict=False) for when in range(0, 30, 2)
    ]
    arrivals = [(when, (when, "a")) for when in range(-30, 0, 2)]  # the others come when its clock is known
    arrivals += [(when + late, (time, name)) for (when, time, name), late in zip(times, delay, strict=False)]
    rows = [row for _, row in sorted(arrivals, key=lambda one: one[0])]
    chunks, held = read(rows, [cut], 9, {})
    out = [rows[seq] for seq in [*seqs(chunks), *held]]
    for name in "abcde":
        own = [time for time, other in out if other == name]
        assert own == sorted(own)
    assert sorted(out) == sorted(rows)


def test_a_device_that_was_away_sends_its_rows_in_any_order() -> None:
    live = [(time, "a") for time in range(1000)]
    away = [(time, "b") for time in (40, 42, 39, 41, 45, 44, 47, 50)]
    chunks, _ = read([*live[:900], *away, *live[900:]], [903], 5, {})
    found = [([*live[:900], *away, *live[900:]])[seq] for seq in seqs(chunks)]
    assert [time for time, name in found if name == "b"] == [39, 40, 41, 42, 44, 45, 47, 50]
    assert [time for time, name in found if name == "a"] == list(range(994))


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_a_little_behind_loses_no_row_after_its_first_late_one(seed: int) -> None:
    """Rows are shuffled by up to the lateness, 5: one that is 6 or more behind the newest time makes its series
    go by its own rows."""
    rng = np.random.default_rng(seed)
    arrivals = [(when, (when, "a")) for when in range(500)]
    arrivals += [(when + int(rng.integers(0, 6)), (when - 3, "b")) for when in range(500)]
    rows = [row for _, row in sorted(arrivals, key=lambda one: one[0])]
    chunks, _ = read(rows, [], 5, {})
    own = [rows[seq][0] for seq in seqs(chunks) if rows[seq][1] == "b"]
    assert (np.diff(own)[20:] > 0).all() and int((np.diff(own) < 0).sum()) <= 2


def test_a_row_of_the_far_future_holds_no_other_series_back() -> None:
    rows = [(1, "a"), (2**63 - 1, "b"), (2, "a"), (3, "a"), (9, "a")]
    chunks, held = read(rows, [], 5, {})
    assert (seqs(chunks), held) == ([0, 2, 3], [4, 1])


def test_a_quiet_series_is_waited_for_no_longer_than_stated() -> None:
    rows = [(100, "a"), (50, "b"), *((time, "a") for time in range(101, 160))]
    chunks, _ = read(rows, [], 5, {})
    assert rows.index((151, "a")) < len(rows)  # 100 + QUIET * 5 + 1
    at = seqs(chunks).index(1)
    assert [rows[seq] for seq in seqs(chunks)[at : at + 2]] == [(50, "b"), (145, "a")]
