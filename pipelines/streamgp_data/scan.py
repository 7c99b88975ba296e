"""Reading a table's files in `_seq` order, whatever compaction has done to them, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streamgp.errors import TableError
from streamgp_data.delta import SEQ, Span, filesystem, spans
from streamgp_data.parts import Verified, unreadable

WINDOW = 1 << 19


def scan(
    log: DeltaTable,
    path: str,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    batch_rows: int,
    verified: Verified,
) -> Iterator[pa.RecordBatch]:
    """Record batches with `_seq` start, start + 1, ..., stop - 1, none missing.

    A compaction may pack files together in any order, so files whose `_seq` overlap are read window by window;
    the others are streamed. No row of a file is given out before all of its bytes have been verified.

    Raises:
        Gone: a row is not there any more.
        TableError: a file is damaged.
        ServiceError: the store that the table is in does not answer.
    """
    store = filesystem(log, path)
    expected, files = start, spans(log)
    verified.forget_others(span.path for span in files)
    for group in _groups([span for span in files if span.last >= start and span.first < stop]):
        last = min(max(span.last for span in group) + 1, stop)
        names = ", ".join(span.path for span in group)
        try:
            for span in group:
                verified.check(store, span.path)
        except FileNotFoundError:
            raise _gone(path, expected, names) from None
        batches = _stream(store, group[0], columns, batch_rows) if len(group) == 1 else None
        try:
            for batch in batches or _windows(store, group, expected, last, columns, batch_rows):
                rows = _between(batch, expected, last)
                if not rows.num_rows:
                    continue
                _check(rows, expected, path)
                expected += rows.num_rows
                yield rows
        except _Unordered:
            for batch in _windows(store, group, expected, last, columns, batch_rows):
                _check(batch, expected, path)
                expected += batch.num_rows
                yield batch
        except FileNotFoundError:
            raise _gone(path, expected, names) from None
        except (pa.ArrowException, OSError) as error:  # a file whose name carries no digest
            raise unreadable(path, names, error) from None
    if expected < stop:
        raise _gone(path, expected)


class Gone(TableError):
    """A row is not there any more: in this version of the table."""


class _Unordered(Exception):
    """A file does not hold its rows in `_seq` order."""


def _groups(files: Sequence[Span]) -> Iterator[list[Span]]:
    """Files, in order, whose `_seq` ranges overlap are one group."""
    group: list[Span] = []
    last = -1
    for span in files:
        if group and span.first > last:
            yield group
            group = []
        group.append(span)
        last = max(last, span.last)
    if group:
        yield group


def _stream(store: object, span: Span, columns: Sequence[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
    following = span.first
    with pq.ParquetFile(span.path, filesystem=store, pre_buffer=False) as file:
        for batch in file.iter_batches(batch_rows, columns=None if columns is None else list(columns)):
            numbers = batch.column(SEQ).to_numpy()
            if not (numbers == np.arange(following, following + len(numbers))).all():
                raise _Unordered
            following += len(numbers)
            yield batch


def _windows(
    store: object, group: Sequence[Span], start: int, stop: int, columns: Sequence[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Sorted windows of WINDOW numbers: more reading, the same memory."""
    import pyarrow.dataset as ds  # it imports pandas, and only a compacted table comes here

    data = ds.dataset([span.path for span in group], format="parquet", filesystem=store)
    for low in range(start, stop, WINDOW):
        inside = (pc.field(SEQ) >= low) & (pc.field(SEQ) < min(low + WINDOW, stop))
        rows = data.to_table(columns=None if columns is None else list(columns), filter=inside).sort_by(SEQ)
        yield from rows.combine_chunks().to_batches(batch_rows)


def _between(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    numbers = batch.column(SEQ).to_numpy()
    low, high = numbers.searchsorted([start, stop])
    return batch.slice(low, high - low)


def _check(batch: pa.RecordBatch, expected: int, path: str) -> None:
    numbers = batch.column(SEQ).to_numpy()
    if numbers[0] != expected or numbers[-1] != expected + len(numbers) - 1:
        raise _gone(path, expected)


def _gone(path: str, expected: int, files: str = "") -> Gone:
    where = f", and with it {files}" if files else ""
    return Gone(
        f"table {path} changed under its reader: the row with {SEQ} {expected} is gone{where}",
        hint="was it vacuumed, overwritten or half copied? bring the file back, or ingest into a new table",
    )
