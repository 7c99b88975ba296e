"""JSON Lines: one object a line; a missing key is a missing value, an unknown key is a fault.

A block whose every line is plain is parsed by Arrow straight into typed columns; any other block line by line.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json as pj
from pydantic import BaseModel, ConfigDict

from streamgp.base import Chunk, Offset
from streamgp.errors import DataError, SchemaError
from streamgp.streaming.sources import _cells
from streamgp.streaming.sources._bytes import Position, open_bytes
from streamgp.streaming.sources._cells import NULLS, fault
from streamgp.streaming.sources._columnar import retype
from streamgp.streaming.sources._dialect import SAMPLE
from streamgp.streaming.sources._records import Block, Records, Stopped, count

SUFFIXES = (".jsonl", ".ndjson")


class Config(BaseModel):
    """How to read JSON Lines.

    Attributes:
        null: what text else than "", NA, N/A, NaN, null and None stands for a missing number.
        final: take a last line that has no newline yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    null: tuple[str, ...] = ()
    final: bool = False


def build(config: Config, uri: str) -> Jsonl:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is empty, or its first line is no JSON object.
        SchemaError: a value is an object or a list.
    """
    return Jsonl(config, uri)


class Jsonl:
    """A Source over one JSON Lines file.

    Attributes:
        schema: the columns: text, float64 or bool, as the first thousand lines suggest, and the bookkeeping columns.
        sample: the values of the first lines.
        waiting: after a read: a digest of the last line that has no newline yet, or None.
    """

    def __init__(self, config: Config, uri: str) -> None:
        self.uri = uri
        self._config = config
        self._nulls = (*NULLS, *config.null)
        self.waiting: int | None = None
        self.stopped: Stopped | None = None
        stream, self.compressed = open_bytes(uri)
        self._records = Records(stream, uri, quote=False, separator=",")
        try:
            raw = self._records.first(SAMPLE)
        finally:
            self._records.close()
        objects = _first_objects(raw, uri)
        self.names = list(dict.fromkeys(key for one in objects for key in one))
        self.units = _cells.units_in(self.names)
        columns = {name: [one.get(name) for one in objects] for name in self.names}
        kinds = {name: _kind(values, name, uri, self._nulls) for name, values in columns.items()}
        self.sample = pa.table({name: _natural(values, kinds[name]) for name, values in columns.items()})
        self._kinds = kinds
        self.schema = _cells.with_bookkeeping(kinds)

    def expect(self, schema: pa.Schema) -> None:
        """Read the columns as these types from now on; the names must include every one found."""
        self._kinds = {name: schema.field(name).type for name in self.names}
        self.schema = _cells.with_bookkeeping(self._kinds)

    def read(self, after: Offset) -> Iterator[Chunk]:
        """Typed rows behind `after`, faulty ones among them with their fault.

        Raises:
            DataError: what was consumed before has changed, or the stream is damaged.
        """
        records = self._records
        if self.uri != "-":
            records = Records(open_bytes(self.uri)[0], self.uri, quote=False, separator=",")
        try:
            records.skip(Position.of(after), self.stopped)
            for block in records.blocks(self._config.final or self.compressed or self.uri == "-"):
                plain = self._plain(block)
                yield Chunk(self._careful(block) if plain is None else plain, block.after.offset())
            self.waiting, self.stopped = records.tail, records.stopped
        finally:
            records.close()

    def _plain(self, block: Block) -> pa.RecordBatch | None:
        """The fast way, or None where the block needs the careful one."""
        rows = count(block.data, 10) + (not block.data.endswith(b"\n"))
        wanted = pa.schema(list(self._kinds.items()))
        try:
            table = pj.read_json(
                io.BytesIO(block.data),
                read_options=pj.ReadOptions(block_size=max(1 << 20, len(block.data))),
                parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
            )
        except (pa.ArrowException, ValueError):
            return None
        if table.num_rows != rows:
            return None
        columns = [retype(table.column(name).combine_chunks(), kind)[0] for name, kind in self._kinds.items()]
        lines = pa.array(np.arange(block.line, block.line + rows))
        nothing = pa.nulls(rows, pa.string())
        return pa.record_batch([*columns, lines, nothing, nothing], schema=self.schema)

    def _careful(self, block: Block) -> pa.RecordBatch:
        texts: list[str | None] = []
        lines: list[int] = []
        faults: list[str | None] = []
        objects: list[dict[str, Any]] = []
        for i, raw in enumerate(block.data.split(b"\n")):
            if raw.strip():
                one, wrong = self._object(raw)
                objects.append(one)
                faults.append(wrong)
                texts.append(raw.decode("utf-8", "replace"))
                lines.append(block.line + i)
        columns: list[pa.Array[Any]] = []
        for name, kind in self._kinds.items():
            cells = pl.Series([_text(one.get(name)) for one in objects], dtype=pl.String)
            found, bad = _cells.convert(cells, kind, ".", self._nulls)
            _cells.cell_faults(faults, name, cells, bad, kind)
            columns.append(_cells.to_arrow(found, kind))
        kept = [text if wrong else None for text, wrong in zip(texts, faults, strict=True)]
        told = [pa.array(lines, pa.int64()), pa.array(faults, pa.string()), pa.array(kept, pa.string())]
        return pa.record_batch([*columns, *told], schema=self.schema)

    def _object(self, raw: bytes) -> tuple[dict[str, Any], str | None]:
        try:
            one = json.loads(raw)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            return {}, fault("ragged", "", f"not JSON: {error}")
        if not isinstance(one, dict):
            return {}, fault("ragged", "", "not a JSON object")
        alien = [key for key in one if key not in self._kinds]
        return one, fault("ragged", alien[0], "the first lines have no such key") if alien else None


def _first_objects(raw: bytes, uri: str) -> list[dict[str, Any]]:
    lines = [line for line in raw.split(b"\n") if line.strip()]
    if not lines:
        raise DataError(f"{uri}: the file is empty", hint="it should have one JSON object a line")
    if len(raw) >= SAMPLE and len(lines) > 1:
        lines = lines[:-1]
    objects = []
    for i, line in enumerate(lines[:1000]):
        try:
            one = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError):
            one = None
        if isinstance(one, dict):
            objects.append(one)
        elif i == 0:
            hint = "it should have one JSON object a line, not one list or document"
            raise DataError(f"{uri}, line 1: this is no JSON object: {line[:60]!r}", hint=hint)
    return objects


def _kind(values: Sequence[Any], name: str, uri: str, nulls: Sequence[str]) -> pa.DataType:
    """Numbers if at least half of the values are; true/false; else text. No values: numbers."""
    if any(isinstance(value, dict | list) for value in values):
        hint = "write it as numbers or text, one key each"
        raise SchemaError(f"{uri}: the values of {name!r} are objects or lists, which a table cannot hold", hint=hint)
    said = [value for value in values if value is not None]
    if said and all(isinstance(value, bool) for value in said):
        return pa.bool_()
    _, bad = _cells.convert(pl.Series([_text(value) for value in said], dtype=pl.String), pa.float64(), ".", nulls)
    return pa.float64() if 2 * int(bad.sum()) <= len(said) else pa.string()


def _natural(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """The values as they stand: whole numbers stay whole, for epochs and steps."""
    if kind == pa.float64() and all(value is None or type(value) is int for value in values):
        return pa.array(values, pa.int64())
    if kind == pa.float64() and all(value is None or type(value) in (int, float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else json.dumps(value)
