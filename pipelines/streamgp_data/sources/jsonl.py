"""JSON Lines: one object a line; a missing key is a missing value, and a key that comes late is left out, unless it may
be another one renamed.

A block whose every line is plain is parsed by Arrow straight into typed columns; any other block line by line.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json as pj
from pydantic import BaseModel, ConfigDict

from streamgp.errors import DataError, SchemaError
from streamgp_data.reading.bytes import open_bytes
from streamgp_data.reading.cells import (
    NULLS,
    cell_faults,
    check_names,
    convert,
    exact_kind,
    fault,
    lossy,
    name_numbers,
    nothing,
    storable_text,
    to_arrow,
    units_in,
    unreadable,
    with_bookkeeping,
    without_plain,
)
from streamgp_data.reading.columnar import retype
from streamgp_data.reading.convention import are_numbers, in_ascii
from streamgp_data.reading.dialect import SAMPLE, looks_like_numbers
from streamgp_data.reading.lines import TextLines
from streamgp_data.reading.matching import unwanted
from streamgp_data.reading.records import LONGEST, RecordBlock, Records, Stopped, blank, count, too_long
from streamgp_data.reading.signs import reject_other_formats

SUFFIXES = (".jsonl", ".ndjson")
_SAMPLED = 1000
MOST = 10
"""Keys that the note names, at most."""


class Config(BaseModel):
    """How to read JSON Lines.

    Attributes:
        null: what text else than "", NA, N/A, NaN, null and None stands for a missing number.
        final: take a last line that has no newline.
        max_line: bytes of the longest line that is taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    null: tuple[str, ...] = ()
    final: bool = False
    max_line: int = LONGEST


def build(config: Config, uri: str) -> Jsonl:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is empty, or its first line is no JSON object.
        SchemaError: a value is an object or a list.
    """
    return Jsonl(config, uri)


class Jsonl(TextLines):
    """A Source over one JSON Lines file.

    Attributes:
        schema: the columns: text, float64 or bool, as the first thousand lines suggest, and the bookkeeping columns.
        sample: the values of the first lines.
        waiting: whether there is a last line without newline; known after a read, and where it is the only one.
        doubts: columns that may be misunderstood, and what to do about it.
        strange: keys that were left out -> the first line that has each one.
    """

    def __init__(self, config: Config, uri: str) -> None:
        self.uri = uri
        self._config, self._final = config, config.final
        self._nulls = (*NULLS, *config.null)
        self.waiting = False
        self.stopped: Stopped | None = None
        self.strange: dict[str, int] = {}
        stream, self.compressed = open_bytes(uri)
        self._records = Records(stream, uri, longest=config.max_line)
        try:
            raw = self._records.first(SAMPLE, lines=1)
            whole = self._records.ended and config.final
        finally:
            self._records.close()
        objects = _first_objects(raw, uri, whole, config.max_line)
        self.waiting = not objects
        self.understand(objects)

    _held: Mapping[str, str] = MappingProxyType({})
    """Column -> unit of a table, of which no number is taken that does not say its own."""

    def understand(self, objects: Sequence[dict[str, Any]]) -> None:
        """Decide the columns by the first objects.

        Raises:
            DataError: a name cannot be one of a column.
            SchemaError: the values of one are objects or lists.
        """
        self.names = list(dict.fromkeys(key for one in objects for key in one))
        self.units = units_in(self.names)
        check_names(self.names, f"{self.uri}, line 1")
        columns = {name: [one.get(name) for one in objects] for name in self.names}
        self._unit_behind = {}
        kinds = {name: self._kind(values, name) for name, values in columns.items()}
        self.units |= self._unit_behind
        self.sample = pa.table({name: _natural(values, kinds[name]) for name, values in columns.items()})
        self._kinds = kinds
        self.schema = with_bookkeeping(kinds)
        self.doubts = self._doubts(columns)

    def _open(self) -> Records:
        if self.uri == "-":
            return self._records
        return Records(open_bytes(self.uri)[0], self.uri, longest=self._config.max_line)

    def _parse(self, block: RecordBlock) -> pa.RecordBatch:
        if block.long:
            text = block.data.decode("utf-8", "backslashreplace")
            return unreadable(self.schema, block.line, too_long(block, self._config.max_line), text)
        if blank(block.data):
            return nothing(self.schema)
        plain = self._plain(block)
        return self._careful(block) if plain is None else plain

    def _plain(self, block: RecordBlock) -> pa.RecordBatch | None:
        """The fast way, or None where the block needs the careful one."""
        if not _is_text(block.data) or name_numbers(self._nulls):  # Arrow takes any bytes
            return None
        rows = count(block.data, 10) + (not block.data.endswith(b"\n"))
        wanted = pa.schema([(name, _WIDE.get(kind, kind)) for name, kind in self._kinds.items()])
        try:
            table = pj.read_json(
                io.BytesIO(block.data),
                read_options=pj.ReadOptions(block_size=max(1 << 20, len(block.data))),
                parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
            )
        except (pa.ArrowException, ValueError):
            return None
        if table.num_rows != rows or any(_is_large(column) for column in table.columns):
            return None
        if any(table.column(name).null_count < rows for name in self._held):
            return None
        read = [retype(table.column(name).combine_chunks(), kind) for name, kind in self._kinds.items()]
        if any(bad is not None for _, bad in read):
            return None
        columns = [found for found, _ in read]
        lines = pa.array(np.arange(block.line, block.line + rows))
        nothing = pa.nulls(rows, pa.string())
        return pa.record_batch([*columns, lines, nothing, nothing], schema=self.schema)

    def _careful(self, block: RecordBlock) -> pa.RecordBatch:
        texts: list[str | None] = []
        lines: list[int] = []
        faults: list[str | None] = []
        objects: list[dict[str, Any]] = []
        for i, raw in enumerate(block.data.split(b"\n")):
            if raw.strip():
                one, wrong = self._object(raw, block.line + i)
                objects.append(one)
                faults.append(wrong)
                texts.append(raw.decode("utf-8", "backslashreplace"))
                lines.append(block.line + i)
        columns: list[pa.Array[Any]] = []
        for name, kind in self._kinds.items():
            cells = pl.Series([_text(one.get(name)) for one in objects], dtype=pl.String)
            if name in self._held:
                cells = without_plain(faults, name, cells, self._held[name])
            found, bad = self._numbers(name, cells, kind)
            cell_faults(faults, name, cells, bad, kind)
            columns.append(to_arrow(found, kind))
        kept = [text if wrong else None for text, wrong in zip(texts, faults, strict=True)]
        extra = [pa.array(lines, pa.int64()), pa.array(faults, pa.string()), pa.array(kept, pa.string())]
        return pa.record_batch([*columns, *extra], schema=self.schema)

    def _object(self, raw: bytes, line: int) -> tuple[dict[str, Any], str | None]:
        """The object of a line; or an empty one, and what is wrong with the line."""
        try:
            one = _loaded(raw, unique=True)
        except _Wrong as error:
            return {}, fault("ragged", "", str(error))
        alien = [key for key in one if key not in self._kinds]
        if alien and (wrong := self._strange(one, alien, line)) is not None:
            return {}, fault("ragged", alien[0], wrong)
        deep = [key for key in self._kinds if isinstance(one.get(key), dict | list)]
        return ({}, fault("unparsable", deep[0], "an object or a list")) if deep else (one, None)

    def _strange(self, one: Mapping[str, Any], alien: Sequence[str], line: int) -> str | None:
        """What is wrong with a line with these unknown keys; None where they are left out."""
        wrong = unwanted([name for name in self.names if name not in self.keys], one, alien)
        if wrong is None:
            for key in alien[: MOST - len(self.strange)]:
                self.strange.setdefault(key, line)
        return wrong

    def left_out(self) -> list[str]:
        """What to say of the keys that were left out."""
        if not self.strange:
            return []
        named = ", ".join(f"{key!r} (first in line {line:,})" for key, line in self.strange.items())
        return [
            f"{self.uri}: left out {named}, which its first {_SAMPLED:,} lines have not; to keep it, have the first "
            "line name it too, if only with null, and ingest into a new table"
        ]

    def _kind(self, values: Sequence[Any], name: str) -> pa.DataType:
        """Numbers if at least half of the values are, as they are or followed by a unit; true/false; else text. No
        values: numbers."""
        said = [value for value in values if value is not None]
        if said and 2 * sum(isinstance(value, dict | list) for value in said) >= len(said):
            hint = "write it as numbers or text, one key each"
            raise SchemaError(
                f"{self.uri}: the values of {name!r} are objects or lists, which a table cannot hold", hint=hint
            )
        said = [value for value in said if not isinstance(value, dict | list)]
        if said and all(isinstance(value, bool) for value in said):
            return pa.bool_()
        if (exact := exact_kind([_text(value) or "" for value in said])) is not None:
            return exact
        texts = pl.Series([_text(value) for value in said], dtype=pl.String)
        _, bad = convert(texts, pa.float64(), ".", self._nulls)
        number = are_numbers(texts, bad) or self._say_a_unit(name, in_ascii(texts))
        return pa.float64() if number else pa.string()

    def _doubts(self, columns: dict[str, list[Any]]) -> dict[str, str]:
        """Columns of text that look like numbers, and what to do about it."""
        found = {}
        for name, values in columns.items():
            said = (
                [value for value in values if isinstance(value, str)] if pa.types.is_string(self._kinds[name]) else []
            )
            if (like := looks_like_numbers(said)) is not None:
                found[name] = (
                    f"{self.uri}: column {name!r} is text, though its values look like numbers, such as {like!r}: "
                    "write them as JSON numbers if they are, and ingest them into a new table"
                )
        return found


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Wrong(ValueError):
    """What keeps a line from being an object of names and values."""


def _loaded(raw: bytes, unique: bool = False) -> dict[str, Any]:
    """The object of one line. Numbers beyond 64 bits stay as they are written.

    Args:
        raw: the line.
        unique: whether a key may not come twice; else the last value counts.

    Raises:
        _Wrong: it is no JSON object, has text that no encoding of Unicode knows, or a key comes twice.
    """
    pairs = unique_keys if unique else dict
    try:
        one = json.loads(raw.decode("utf-8-sig"), parse_int=_integer, parse_float=_real, object_pairs_hook=pairs)
    except _Wrong:
        raise
    except RecursionError:
        raise _Wrong("not JSON: nested too deeply") from None
    except ValueError as error:  # json.JSONDecodeError, UnicodeDecodeError
        raise _Wrong(f"not JSON: {error}") from None
    if not isinstance(one, dict):
        raise _Wrong("not a JSON object")
    if b"\\u" in raw and not all(storable_text(part) for part in (*one, *one.values()) if isinstance(part, str)):
        raise _Wrong("half a surrogate pair is no character")
    return one


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON (`object_pairs_hook`).

    Raises:
        ValueError: a key comes twice; which of the values was meant, nobody knows.
    """
    one = dict(pairs)
    if len(one) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Wrong(f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice")
    return one


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < 19 else digits


def _real(text: str) -> float | str:
    return number if isfinite(number := float(text)) else text


_WIDE: dict[pa.DataType, pa.DataType] = {pa.float32(): pa.float64()}


def _is_large(column: pa.ChunkedArray[Any]) -> bool:
    """Whether a number was written as infinity, or is so large that digits may be lost."""
    if not pa.types.is_floating(column.type):
        return False
    return lossy(pl.Series(pl.from_arrow(column)))


def _first_objects(raw: bytes, uri: str, whole: bool, longest: int) -> list[dict[str, Any]]:
    """The objects of the first thousand lines; none where the first line has not ended.

    Raises:
        DataError: it is another format, it is empty, or most of its first lines are no objects.
    """
    reject_other_formats(raw, uri, "JSON Lines")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:4]:
        hint = "JSON Lines are UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE"
        raise DataError(f"{uri}: this is UTF-16 or UTF-32 text", hint=hint)
    if not raw.strip():
        raise DataError(f"{uri}: the file is empty", hint="it should have one JSON object a line")
    if b"\n" not in raw[: longest + 1] and len(raw) > longest:
        hint = "is this JSON Lines, one object a line? if so, give a larger --max-line"
        raise DataError(f"{uri}, line 1: it is longer than --max-line, {longest:,} bytes", hint=hint)
    lines = (raw if whole else raw[: raw.rfind(b"\n") + 1]).split(b"\n", _SAMPLED)[:_SAMPLED]
    objects, wrong, begins_well = list[dict[str, Any]](), list[tuple[bytes, str]](), False
    for line in lines:
        if not line.strip():
            continue
        try:
            one = _loaded(line)
        except _Wrong as error:
            wrong.append((line, str(error)))
        else:
            begins_well = begins_well or not wrong
            if not objects or not any("\0" in key for key in one):
                objects.append(one)
    if not objects and not wrong and not raw.lstrip().startswith((b"{", codecs.BOM_UTF8)):
        raise _no_object(raw.split(b"\n")[0], uri, "it begins otherwise")
    if wrong and not begins_well and len(objects) <= len(wrong):
        raise _no_object(wrong[0][0], uri, wrong[0][1])
    return objects


def _no_object(line: bytes, uri: str, why: str) -> DataError:
    hint = "it should have one JSON object a line, not one list or document"
    return DataError(f"{uri}, line 1: this is no JSON object: {line[:60]!r} ({why})", hint=hint)


def _natural(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """The values as they stand: whole numbers stay whole, for epochs and steps."""
    numbers = kind in (pa.float64(), pa.int64()) and all(value is None or _is_number(value) for value in values)
    if numbers and all(value is None or (type(value) is int and -(2**63) <= value < 2**63) for value in values):
        return pa.array(values, pa.int64())
    if numbers and kind == pa.float64():
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array([_text(value) for value in values], pa.string())


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float64 has."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1023)


def natural(values: Sequence[Any]) -> pa.Array[Any]:
    """Values of one key as they stand: whole numbers, numbers, or text.

    Example:
        >>> natural([1700000000, None]).type, natural(["2026-01-01", 3]).to_pylist()
        (DataType(int64), ['2026-01-01', '3'])
    """
    return _natural(values, pa.float64() if not any(isinstance(value, str) for value in values) else pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value if value is None or storable_text(value) else value.encode("utf-8", "replace").decode()
    return str(value).lower() if isinstance(value, bool) else json.dumps(value)
