"""The law of a source, and sources that die on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import torch

from streamgp.base import Chunk, Offset, Source

CRASH_SCRIPTS: tuple[tuple[int, ...], ...] = ((0,), (1,), (63,), (64,), (65,), (200, 0, 0, 30), (64, 128, 64), (500,))
"""Rows after which each successive read of a source dies; see `CrashingSource`."""


def check_source(make: Callable[[], Source]) -> None:
    """The law of `base.Source`: from the `after` of any chunk on come exactly the rows after it, in order.

    Args:
        make: opens the same rows again, at least one.

    Raises:
        AssertionError: it is broken.

    Example:
        >>> check_source(lambda: CrashingSource(Lines(10, 3), ()))
    """
    source = make()
    schema, chunks = source.schema, list(source.read({}))
    assert chunks and sum(chunk.rows.num_rows for chunk in chunks), "a source under test must have rows"
    for chunk in chunks:
        assert chunk.rows.schema.equals(schema), "a chunk's schema is not the source's"
        offset = json.loads(json.dumps(dict(chunk.after)))
        assert offset == dict(chunk.after), "an offset does not survive JSON"
        assert all(isinstance(value, int | str) for value in offset.values()), "an offset holds integers and text"
    assert _rows(make().read({}), schema).equals(_rows(chunks, schema)), "a second reading differs"
    for at, chunk in enumerate(chunks):
        rest = _rows(make().read(chunk.after), schema)
        assert rest.equals(_rows(chunks[at + 1 :], schema)), f"resuming after chunk {at} differs"


class Crash(Exception):
    """What a CrashingSource dies of."""


class CrashingSource:
    """A source that dies as a script says: its i-th reading gives out at most script[i] rows and then raises Crash.

    Readings beyond the script run to the end. Chunks are never cut.

    Args:
        source: the rows.
        script: rows that each reading survives.

    Example:
        >>> source, seen = CrashingSource(Lines(10, 2), (5, 0)), {}
        >>> for _ in range(3):
        ...     try:
        ...         for chunk in source.read(seen):
        ...             seen = chunk.after
        ...     except Crash:
        ...         print("crashed at", seen)
        crashed at {'line': 4}
        crashed at {'line': 4}
        >>> seen
        {'line': 10}
    """

    def __init__(self, source: Source, script: Sequence[int]) -> None:
        self._source, self._script, self._readings = source, tuple(script), 0

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    def read(self, after: Offset) -> Iterator[Chunk]:
        """As the source, until the script says otherwise."""
        left = self._script[self._readings] if self._readings < len(self._script) else None
        self._readings += 1
        for chunk in self._source.read(after):
            if left is not None:
                left -= chunk.rows.num_rows
                if left < 0:
                    raise Crash(f"reading {self._readings} dies here")
            yield chunk


class Lines:
    """A source of `count` rows in chunks of `size`: `line` counts them, `y` is a wave with a known look."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size

    @property
    def schema(self) -> pa.Schema:
        return pa.record_batch({"line": pa.array([0]), "y": pa.array([0.0])}).schema

    def read(self, after: Offset) -> Iterator[Chunk]:
        """From the line in `after` on."""
        for start in range(int(after.get("line", 0)), self._count, self._size):
            line = torch.arange(start, min(start + self._size, self._count))
            y = torch.sin(line / 3.0) + (line * 7919 % 101) / 101.0
            rows = pa.record_batch({"line": line.numpy(), "y": y.double().numpy()})
            yield Chunk(rows, {"line": start + len(line)})


def _rows(chunks: Iterable[Chunk], schema: pa.Schema) -> Any:
    """All rows as one frame, whose `equals` takes NaN for NaN."""
    return pa.Table.from_batches([chunk.rows for chunk in chunks], schema).to_pandas()
