"""Micro-batches: the same rows however they are chunked, and from any offset on."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.base import Chunk, Offset
from streamgp.errors import CheckpointError
from streamgp.testing import check_source
from streamgp_data.batches import micro_batches
from tests.properties import examples
from tests.words import naming


class Cut:
    """Rows 0 to count − 1 in chunks of given sizes, the last size repeated."""

    def __init__(self, count: int, sizes: list[int]) -> None:
        self.count, self.sizes = count, sizes

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("x", pa.int64())])

    def read(self, after: Offset) -> Iterator[Chunk]:
        at, place = int(after.get("row", 0)), 0
        while at < self.count:
            size = self.sizes[min(place, len(self.sizes) - 1)]
            rows = list(range(at, min(at + size, self.count)))
            at, place = at + len(rows), place + 1
            yield Chunk(pa.record_batch({"x": pa.array(rows, pa.int64())}), {"row": at})


def values(chunk: Chunk) -> list[int]:
    return list(chunk.rows["x"].to_pylist())


sizes = st.lists(st.integers(0, 9), max_size=8).map(lambda many: [*many, 3])


@examples(100)
@given(st.integers(0, 60), sizes, sizes, st.integers(1, 13))
def test_cut_by_rows_and_resumed_anywhere(count: int, chunks: list[int], others: list[int], size: int) -> None:
    parts = list(micro_batches(Cut(count, chunks), {}, size))
    wanted = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
    assert [values(part) for part in parts] == wanted
    for at, part in enumerate(parts):  # the source may come in other chunks after a restart
        rest = list(micro_batches(Cut(count, others), part.after, size))
        assert [values(chunk) for chunk in rest] == wanted[at + 1 :]


def test_each_micro_batch_is_as_long_as_is_asked_when_it_begins() -> None:
    assert [values(part) for part in micro_batches(Cut(5, [2]), {}, iter([1, 3, 9]).__next__)] == [[0], [1, 2, 3], [4]]


def test_micro_batches_are_a_source_themselves() -> None:
    class Batches:
        schema = Cut(0, [1]).schema

        def read(self, after: Offset) -> Iterator[Chunk]:
            return micro_batches(Cut(50, [7, 1, 20]), after, 6)

    check_source(Batches)


def test_a_source_that_shrank_is_noticed() -> None:
    offset = next(iter(micro_batches(Cut(50, [50]), {}, 40))).after
    with pytest.raises(CheckpointError, match=naming("10")):
        list(micro_batches(Cut(30, [30]), offset, 40))
