"""Micro-batches: a source's rows cut by number, whatever chunks they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from streamgp.base import Chunk, Offset, Source
from streamgp.errors import CheckpointError

SKIP = "skip"
"""Key of the rows to leave out after a source's own offset; no source may use it as a partition."""


def micro_batches(source: Source, after: Offset, size: int | Callable[[], int]) -> Iterator[Chunk]:
    """Chunks of exactly `size` rows, the last as short as it comes; never an empty one.

    A source can resume only where one of its own chunks ended. A micro-batch that ends elsewhere has the offset of
    the last such place and, under "skip", the number of rows between.

    Args:
        source: rows, in chunks of any size.
        after: `{}`, or the `after` of a chunk that this function yielded for the same source.
        size: rows a micro-batch, at least 1; or what says how many the next one has.

    Raises:
        CheckpointError: the source no longer holds the rows up to `after`.

    Example:
        >>> class Three:
        ...     schema = pa.schema({"x": pa.int64()})
        ...     def read(self, after):
        ...         for i in range(int(after.get("n", 0)), 3):
        ...             yield Chunk(pa.record_batch({"x": [2 * i, 2 * i + 1]}), {"n": i + 1})
        >>> for rows, offset in micro_batches(Three(), {}, 4):
        ...     print(rows["x"].to_pylist(), offset)
        [0, 1, 2, 3] {'n': 2}
        [4, 5] {'n': 3}
    """
    place: Offset = {key: value for key, value in after.items() if key != SKIP}  # where the present chunk begins
    skip = int(after.get(SKIP, 0))
    held: list[pa.RecordBatch] = []
    following = size if callable(size) else lambda: size
    count, wanted = 0, following()
    for rows, behind in source.read(place):
        used = min(skip, rows.num_rows)  # rows of the present chunk that went out
        skip -= used
        while count + rows.num_rows - used >= wanted:
            taken = wanted - count
            used += taken
            offset = behind if used == rows.num_rows else {**place, SKIP: used}
            yield Chunk(together([*held, rows.slice(used - taken, taken)]), offset)
            held, count, wanted = [], 0, following()
        if used < rows.num_rows:
            held.append(rows.slice(used))
            count += rows.num_rows - used
        place = behind
    if skip:
        raise CheckpointError(f"the source ends {skip} rows before the place to resume at", hint="start with --fresh")
    if count:
        yield Chunk(together(held), place)


def together(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of at least one; a copy, unless there is only one.

    Example:
        >>> together([pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})])["x"].to_pylist()
        [1, 2, 3]
    """
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
