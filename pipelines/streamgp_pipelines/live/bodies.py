"""Rows of a request as a source that ingest understands: JSON objects, or an Arrow stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError, SchemaError
from streamgp.windows.zones import offset_of
from streamgp_data.ingestion.units import is_number
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import NULLS, check_names, storable_text, unit_in, with_bookkeeping
from streamgp_data.reading.columnar import storable
from streamgp_data.reading.records import RecordBlock
from streamgp_data.sources.jsonl import Config, Jsonl, natural, unique_keys
from streamgp_data.table import SEQ, Table
from streamgp_pipelines.memory import FrameSource

WHERE = "rows"
SAMPLED = 1000
DIGITS = 400
"""Of the longest whole number that is read as one; a float64 has 309."""


def parse_json(body: bytes, example: Any = None) -> list[dict[str, Any]]:
    """The rows of `[{...}, ...]` or `{"rows": [{...}, ...]}`.

    Args:
        body: of the request.
        example: of a body, for the hint.

    Raises:
        DataError: it is neither; the field is named.

    Example:
        >>> parse_json(b'{"rows": [{"y": 1.5}]}')
        [{'y': 1.5}]
    """
    such = f"such as {json.dumps(example or _EXAMPLE)[:400]}"
    try:
        found = json.loads(body, parse_constant=lambda _: None, parse_int=_whole, object_pairs_hook=unique_keys)
    except RecursionError:
        raise DataError("body: not JSON: nested too deeply", hint="a row has columns and values, one level") from None
    except ValueError as error:
        raise DataError(f"body: not JSON: {error}", hint=such) from None
    rows = found.get("rows") if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise DataError("rows: there is no list of rows", hint=such)
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"rows[{at}]: this is no object", hint="a row is an object of columns and values")
    halves = {key for key in set().union(*rows) if not storable_text(key)}
    if halves:
        at = next(at for at, row in enumerate(rows) if not halves.isdisjoint(row))
        raise DataError(f"rows[{at}]: a key has half a surrogate pair, which is no character", hint="correct the key")
    return rows


_EXAMPLE = {"rows": [{"ds": "2026-01-01", "y": 1.5}]}


def _whole(digits: str) -> int | str:
    """A whole number; text where no float64 is as large, which is then a fault of its row alone."""
    return int(digits) if len(digits) <= DIGITS else digits


def parse_arrow(body: bytes, limit: int) -> pa.Table:
    """The table of an Arrow IPC stream.

    Args:
        body: of the request.
        limit: bytes that it may have when text that is there once is written out for each row.

    Raises:
        DataError: it is none, or is larger.
    """
    try:
        with pa.ipc.open_stream(body) as stream:
            batches, size = [], 0
            for batch in stream:
                batch.validate(full=True)
                size += sum(_size(column) for column in batch.columns)
                if size > limit:
                    raise DataError("body: the rows are too large when unpacked", hint="send fewer rows at a time")
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        raise DataError(f"body: no Arrow IPC stream: {reason}", hint="write it with pyarrow.ipc.new_stream") from None


def _size(column: Any) -> int:
    """Bytes of a column when every row has its own text."""
    if pa.types.is_dictionary(column.type):
        values, text = column.dictionary, (pa.types.is_string, pa.types.is_large_string)
        if any(check(values.type) for check in text):
            return int(pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)
        return len(column) * (int(values.nbytes) // max(len(values), 1) + 1)
    if pa.types.is_string_view(column.type):
        views = np.frombuffer(column.buffers()[1] or b"", np.int32).reshape(-1, 4)  # each begins with its length
        return int(views[column.offset : column.offset + len(column), 0].sum(dtype=np.int64))
    return int(column.nbytes)


class JsonRows(Jsonl):
    """A FileSource over objects in memory, with the columns of a table; a missing key is a missing value, and a number
    without a unit is in the table's.

    Args:
        rows: objects.
        table: whose columns they have.

    Raises:
        SchemaError: a key is no column of the table.
    """

    for_table = True

    def __init__(self, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
        kinds = {field.name: field.type for field in table.schema if field.name != SEQ}
        _check_names(((key, f"rows[{at}].{key}") for at, row in enumerate(rows) for key in row), kinds)
        self.uri, self._config, self._nulls = WHERE, Config(), NULLS
        self.waiting, self.stopped, self.units, self.doubts = False, None, units_of_numbers(table), {}
        self._unit_behind = {}
        self.names, self._kinds = list(kinds), kinds
        self.sample = pa.table({name: pa.nulls(min(len(rows), SAMPLED), kind) for name, kind in kinds.items()})
        if table.meta.time is not None:
            cells = natural([row.get(table.meta.time) for row in rows])
            self._kinds = kinds | {table.meta.time: cells.type}
            place = self.sample.schema.get_field_index(table.meta.time)
            self.sample = self.sample.set_column(place, table.meta.time, cells.slice(0, SAMPLED))
        self.schema = with_bookkeeping(self._kinds)
        self._data = b"\n".join(json.dumps(row).encode() for row in rows)

    def read(self, after: Offset) -> Iterator[Chunk]:
        """The rows, as one chunk."""
        yield Chunk(self._parse(RecordBlock(self._data, 1, Position())), {})


def units_of_numbers(table: Table) -> dict[str, str]:
    """Column of numbers of a table -> the unit that its name says, or else that the table has."""
    numbers = [field for field in table.schema if field.name != SEQ and is_number(field.type)]
    units = {one.name: unit_in(one.name) or (one.metadata or {}).get(b"unit", b"").decode() for one in numbers}
    return {name: unit for name, unit in units.items() if unit and name not in table.meta.keys}


def arrow_rows(rows: pa.Table, table: Table) -> FrameSource:
    """A FileSource over an Arrow table; a column that it lacks is a missing value.

    Raises:
        SchemaError: a column is none of the table, or cannot be one.
    """
    kinds = {field.name: field.type for field in table.schema if field.name != SEQ}
    _check_names(((name, f"{WHERE}.{name}") for name in rows.column_names), kinds)
    check_columns(rows)
    for name, kind in kinds.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    found = FrameSource(rows)
    found.uri = WHERE
    return found


def check_columns(rows: pa.Table) -> None:
    """See that a table could hold these columns.

    Raises:
        DataError: two have one name, or one is of a kind that no table has.
        UsageError: there is no such time zone.
    """
    check_names(rows.column_names, WHERE)
    for field in rows.schema:
        storable(field.type, field.name, f"{WHERE}.{field.name}")
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            offset_of(field.type.tz)


def _check_names(given: Iterable[tuple[str, str]], kinds: Mapping[str, pa.DataType]) -> None:
    """See that columns are those of the table; `given` has each one, and where it stands."""
    for name, where in given:
        if name not in kinds:
            near = get_close_matches(name, kinds, n=1)
            did = f"did you mean {near[0]!r}? " if near else ""
            raise SchemaError(f"{where}: the table has no such column", hint=f"{did}it has: {', '.join(kinds)}")
