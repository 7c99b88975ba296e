"""Rows behind a watermark, against a loop over rows; resumed anywhere, cut anyhow."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgp.base import Chunk, Offset
from streamgp.streaming.event_time import in_order
from tests.properties import examples

Rows = list[tuple[int, str]]  # time, series


def oracle(rows: Rows, lateness: int) -> tuple[list[int], list[int]]:
    """`_seq` of the rows that go out, in their order, and of those that wait."""
    out: list[int] = []
    waiting: list[int] = []
    newest = -(10**9)

    def order(seq: int) -> tuple[int, str, int]:
        return *rows[seq], seq

    for seq, (time, _) in enumerate(rows):
        waiting.append(seq)
        newest = max(newest, time)
        due = [one for one in waiting if rows[one][0] + lateness < newest]
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


ROWS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab")), max_size=40)


@given(rows=ROWS, lateness=st.integers(0, 12), cuts=st.lists(st.integers(0, 40), max_size=6), data=st.data())
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


@pytest.mark.parametrize("lateness", [0, 5])
def test_a_row_of_the_far_future_holds_nobody_back(lateness: int) -> None:
    rows = [(1, "a"), (2**63 - 1, "b"), (2, "a"), (3, "a")]
    chunks, held = read(rows, [], lateness, {})
    assert (seqs(chunks), held) == ([0, 2, 3], [1])
