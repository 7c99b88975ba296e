"""Payloads of messages to rows: JSON, CSV, MessagePack, Avro, Protocol Buffers through JSON Lines, Arrow as it is."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp.errors import DataError, SchemaError, UsageError
from streamgp_data.avro import AvroSchema as AvroSchema
from streamgp_data.ingestion.units import given_units
from streamgp_data.messages import Message, client
from streamgp_data.protobuf import ProtobufSchema, row
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import (
    FAULT,
    LINE,
    NULLS,
    TEXT,
    fault,
    storable_text,
    unit_in,
    with_bookkeeping,
)
from streamgp_data.reading.files import FileSource
from streamgp_data.reading.matching import unwanted
from streamgp_data.reading.records import KEPT, RecordBlock
from streamgp_data.sources.jsonl import Config, Jsonl, natural, unique_keys
from streamgp_data.table import SEQ, Table
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.live.bodies import parse_arrow, units_of_numbers
from streamgp_pipelines.memory import FrameSource

SAMPLED = 1000
"""Rows that the columns of a new table follow from."""

EXPANDED = 1 << 28
"""Bytes that a message of Arrow may have when it is unpacked."""


Leave = Callable[[Collection[str], Sequence[str]], str | None]
"""Leaves out keys of a row that the table does not have, or says why the row is not taken."""


class Content(NamedTuple):
    """Rows of messages that are read alike.

    Attributes:
        schema: of Arrow; None of all others.
        rows: objects of JSON, one a line; of Arrow the table.
        owner: (N,) row -> place of its message.
        topics: (N,) row -> topic of its message, where it is asked for.
    """

    schema: pa.Schema | None
    rows: list[bytes] | pa.Table
    owner: NDArray[np.int64]
    topics: list[str]

    def row(self, at: int) -> Content:
        """One of the rows."""
        one = slice(at, at + 1)
        rows = self.rows[one] if isinstance(self.rows, list) else self.rows.slice(at, 1)
        return Content(self.schema, rows, self.owner[one], self.topics[one])


class Decoder:
    """Reads payloads.

    Args:
        config: format; columns and separator of CSV, schema of Avro and Protocol Buffers; longest message, column of
            the topic.
        name: of the source, for errors.

    Raises:
        UsageError: there is no such format, or what it needs is missing.
    """

    def __init__(self, config: IngestConfig, name: str) -> None:
        self._config, self._name = config, name
        form = config.format or "json"
        makers: dict[str, Callable[[], Callable[[bytes], Any]]] = {
            "json": lambda: _of_json,
            "csv": lambda: _csv(config),
            "msgpack": _msgpack,
            "avro": lambda: _avro(config.message_schema),
            "protobuf": lambda: _protobuf(config.message_schema, config.message, name),
            "arrow": lambda: lambda payload: parse_arrow(payload, EXPANDED),
        }
        if form not in makers:
            raise UsageError(f"--format {form}: messages are {', '.join(makers)}", hint="choose one of these")
        self._form, self._read = form, makers[form]()
        self._told = False  # of keys that are left out

    def split(self, messages: Sequence[Message]) -> tuple[list[Content], dict[int, str]]:
        """The rows of messages, and place -> why a message has none, as `cells.fault`."""
        payloads = [message.payload for message in messages]
        limit, topics = self._config.max_line, self._config.topic is not None
        long = len(payloads) > 0 and max(map(len, payloads)) > limit
        bad = {
            at: fault("too long", "", f"{len(payload):,} bytes, --max-line is {limit:,}; the first {KEPT:,} are kept")
            for at, payload in enumerate(payloads if long else ())
            if len(payload) > limit
        }
        if self._form == "json" and not bad and _a_line_each(payloads):
            names = [one.topic for one in messages] if topics else []
            return [Content(None, payloads, np.arange(len(payloads)), names)], {}
        found: dict[pa.Schema | None, list[tuple[int, Any]]] = {}
        for at, payload in enumerate(payloads):
            if at in bad:
                continue
            try:
                rows = self._read(payload)
                if not len(rows) or (isinstance(rows, pa.Table) and not rows.num_columns):
                    raise ValueError("it has no rows, or no columns")
                if not isinstance(rows, pa.Table):
                    rows = [json.dumps(one, default=_plain).encode() for one in rows]
            except DataError as error:
                bad[at] = fault("unparsable", "", error.message)
            except Exception as error:  # whatever a library says of bytes that it cannot read
                bad[at] = fault("unparsable", "", f"no {self._form}: {str(error)[:200] or type(error).__name__}")
            else:
                found.setdefault(rows.schema if isinstance(rows, pa.Table) else None, []).append((at, rows))
        return [_together(schema, parts, messages) for schema, parts in found.items()], bad

    def source(self, content: Content, table: Table | None) -> Messages:
        """The reader of these rows, and of later ones like them; columns as in the table, if there is one.

        Raises:
            DataError: there is no row that could say which columns a table has.
            SchemaError: a column may be one of the table renamed, or cannot be one.
        """
        options, config = (self._name, content, table, self._config.topic), self._config
        leave = partial(self._leave_out, table)
        if isinstance(content.rows, list):
            return JsonMessages(*options, leave, config.null, config.unit)
        return ArrowMessages(*options, leave)

    def _leave_out(self, table: Table | None, given: Collection[str], alien: Sequence[str]) -> str | None:
        """Leave out keys that the table does not have, told once; or why a row with them is not taken."""
        columns = [] if table is None else [name for name in table.schema.names if name not in (SEQ, *table.meta.keys)]
        if (wrong := unwanted(columns, given, alien)) is not None:
            return wrong
        if not self._told:
            self._told = True
            logging.getLogger("streamgp").warning(
                f"{self._name}: left out {', '.join(map(repr, alien[:10]))}, which the table has not; for these too, "
                "ingest into a new table"
            )
        return None

    def check_series(self, contents: Sequence[Content], series: str | None) -> None:
        """See that some row has the column of series.

        Raises:
            UsageError: there are rows, and none has it: the topics name the series, or the column has another name.
        """
        if series is None or series == self._config.topic:
            return
        known = False  # the fields of a row
        for content in contents:
            rows = content.rows
            for names in filter(None, map(_object, rows)) if isinstance(rows, list) else [rows.column_names]:
                if series in names:
                    return
                known = True
        if not known:
            return
        raise UsageError(
            f"{self._name}: no message has the field {series!r}, the table's column of series",
            hint=f"where the topics are the series, give --topic {series}, each time",
        )

    def unreadable(self, messages: Sequence[Message], bad: dict[int, str], kinds: pa.Schema) -> pa.RecordBatch:
        """Whole messages for the quarantine, a row each."""
        texts = [messages[at].payload[:KEPT].decode("utf-8", "backslashreplace") for at in bad]
        given: dict[str, list[Any]] = {LINE: list(bad), FAULT: list(bad.values()), TEXT: texts}
        schema = with_bookkeeping({field.name: field.type for field in kinds})
        columns: list[Any] = [pa.array(given.get(field.name, [None] * len(bad)), field.type) for field in schema]
        return pa.record_batch(columns, schema=schema)


class Messages(FileSource, Protocol):
    """A FileSource whose rows come later."""

    def parse(self, content: Content) -> pa.RecordBatch:
        """The rows with the columns that were planned; `_line` is the place of the message."""
        ...


class JsonMessages(Jsonl):
    """Objects of JSON; see `Decoder.source`. A number that says no unit, where the table has one, is a fault of its
    row, unless `unit`, "COLUMN=UNIT", says which it has."""

    for_table = True

    def __init__(
        self,
        name: str,
        content: Content,
        table: Table | None,
        topic: str | None,
        leave: Leave,
        null: Sequence[str],
        unit: Sequence[str] = (),
    ) -> None:
        self.uri, self._config, self._nulls, self._topic = name, Config(), (*NULLS, *null), topic
        self._leave = leave
        self.waiting, self.stopped, self.units, self.doubts = False, None, {}, {}
        self._unit_behind = {}
        named = {} if topic is None else {topic: ""}
        assert isinstance(content.rows, list)
        objects = [{**named, **one} for line in content.rows[:SAMPLED] if (one := _object(line))]
        if table is None:
            if not objects:
                raise DataError(f"{name}: no message has a row yet", hint="is the --format right?")
            self.understand(objects)
            return
        self._kinds = {field.name: field.type for field in table.schema if field.name != SEQ}
        self.names, time = list(self._kinds), table.meta.time
        self.sample = pa.table({key: pa.array([None] * len(objects), kind) for key, kind in self._kinds.items()})
        if time is not None:
            cells = natural([one.get(time) for one in objects])
            self._kinds = self._kinds | {time: cells.type}
            self.sample = self.sample.set_column(self.sample.schema.get_field_index(time), time, cells)
        self.schema = with_bookkeeping(self._kinds)
        own = units_of_numbers(table)
        given = {name: one for name, one in given_units(self, unit).items() if unit_in(name) is None}
        self.units = own | given
        self._held = {name: one for name, one in own.items() if name not in given and unit_in(name) is None}

    def parse(self, content: Content) -> pa.RecordBatch:
        """The rows with the columns that were planned; `_line` is the place of the message."""
        assert isinstance(content.rows, list)
        return _named(self._parse(RecordBlock(b"\n".join(content.rows), 1, Position())), content, self._topic)

    def _strange(self, one: Mapping[str, Any], alien: Sequence[str], line: int) -> str | None:
        return self._leave(one, alien)


class ArrowMessages(FrameSource):
    """Tables of one schema; see `Decoder.source`."""

    for_table = False

    def __init__(self, name: str, content: Content, table: Table | None, topic: str | None, leave: Leave) -> None:
        self._topic, self._table, self._leave = topic, table, leave
        super().__init__(self._whole(content))
        self.uri = name

    def parse(self, content: Content) -> pa.RecordBatch:
        """The rows with the columns that were planned; `_line` is the place of the message."""
        self.rows = self._whole(content)
        (chunk,) = self.read({})
        return _named(chunk.rows, content, self._topic)

    def _whole(self, content: Content) -> pa.Table:
        """All columns of the table, in a batch."""
        rows = content.rows
        assert isinstance(rows, pa.Table)
        if self._topic is not None:
            rows = rows.drop_columns([self._topic]) if self._topic in rows.column_names else rows
            rows = rows.append_column(self._topic, pa.array(content.topics, pa.string()))
        if self._table is not None:
            kinds = {field.name: field.type for field in self._table.schema if field.name != SEQ}
            if alien := [name for name in rows.column_names if name not in kinds]:
                if (wrong := self._leave(rows.column_names, alien)) is not None:
                    raise SchemaError(wrong, hint=f"it has: {', '.join(kinds)}")
                rows = rows.drop_columns(alien)
            for name, kind in kinds.items():
                if name not in rows.column_names:
                    rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
        return rows


def _named(rows: pa.RecordBatch, content: Content, topic: str | None) -> pa.RecordBatch:
    """Lines as places of messages, and the topic of each in its column."""
    places = rows.column(LINE).to_numpy() - 1
    added: dict[str, pa.Array[Any]] = {LINE: pa.array(content.owner[places], pa.int64())}
    if topic is not None:
        names = pa.array(content.topics, pa.string()).take(pa.array(places))
        added[topic] = names.cast(rows.schema.field(topic).type)
    columns = [added.get(field.name, rows.column(field.name)) for field in rows.schema]
    return pa.record_batch(columns, schema=rows.schema)


def _together(schema: pa.Schema | None, parts: list[tuple[int, Any]], messages: Sequence[Message]) -> Content:
    """The rows of messages that are read alike, as one."""
    owner = np.repeat([at for at, _ in parts], [len(rows) for _, rows in parts])
    topics = [messages[at].topic for at in owner]
    if schema is None:
        return Content(None, [row for _, rows in parts for row in rows], owner, topics)
    return Content(schema, pa.concat_tables([rows for _, rows in parts]), owner, topics)


def _a_line_each(payloads: list[bytes]) -> bool:
    """Whether each payload looks like one object on one line."""
    whole, breaks = b"\n".join(payloads), len(payloads) - 1
    return whole.startswith(b"{") and whole.count(b"\n") == whole.count(b"\n{") == breaks


def _object(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None where there is none, or half a character in it."""
    try:
        one = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(one, dict) or not one:
        return None
    half = b"\\u" in line and not all(storable_text(part) for part in (*one, *one.values()) if isinstance(part, str))
    return None if half else one


def _of_json(payload: bytes) -> list[Any]:
    """An object, a list of them, or one a line."""
    text = payload.decode("utf-8-sig")
    try:
        found = json.loads(text, parse_constant=lambda _: None, object_pairs_hook=unique_keys)
    except json.JSONDecodeError:
        lines = [line for line in text.splitlines() if line.strip()]
        found = [json.loads(line, parse_constant=lambda _: None, object_pairs_hook=unique_keys) for line in lines]
    return _objects(found)


def _objects(found: Any) -> list[Any]:
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) for one in rows):
        raise ValueError('a row is an object of columns and values, such as {"ds": "2026-01-01T00:30", "y": 1.5}')
    return rows


def _csv(config: IngestConfig) -> Callable[[bytes], list[Any]]:
    """Lines of CSV; the first one has the names, unless --columns has them."""

    def read(payload: bytes) -> list[Any]:
        lines = io.StringIO(payload.decode("utf-8-sig"), newline="")
        rows = csv.reader(lines, delimiter=config.separator or ",", strict=True)
        names, *cells = [*([list(config.columns)] if config.columns else []), *(row for row in rows if row)]
        if wrong := [row for row in cells if len(row) != len(names)]:
            raise ValueError(f"a line has {len(wrong[0])} cells, there are {len(names)} columns")
        return [dict(zip(names, row, strict=True)) for row in cells]

    return read


def _msgpack() -> Callable[[bytes], list[Any]]:
    msgpack = client("msgpack", "msgpack")

    def instants(found: dict[Any, Any]) -> dict[Any, Any]:
        """To the nearest microsecond: the client cuts."""
        times = {name: value for name, value in found.items() if isinstance(value, msgpack.Timestamp)}
        return found | {
            name: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=(t.to_unix_nano() + 500) // 1000)
            for name, t in times.items()
        }

    return lambda payload: _objects(msgpack.unpackb(payload, timestamp=0, object_hook=instants))


def _avro(file: Path | None) -> Callable[[bytes], list[Any]]:
    """Records without a header, of the schema in a file.

    Raises:
        UsageError: no file is given, or it has no schema.
    """
    if file is None:
        raise UsageError("--format avro: a message does not say its schema", hint="name its file: --schema FILE")
    try:
        schema = AvroSchema(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: no Avro schema: {error}", hint="it is a file of JSON, usually .avsc") from None
    return lambda payload: _objects(schema.read(payload))


def _protobuf(file: Path | None, message: str | None, name: str) -> Callable[[bytes], list[Any]]:
    """One message of the type, a column for each field that has one value.

    Raises:
        UsageError: no file is given, it has no such type, or no type is named and it has several.
    """
    if file is None:
        hint = "protoc --include_imports --descriptor_set_out=FILE X.proto writes one: --schema FILE --message NAME"
        raise UsageError("--format protobuf: a message does not say its schema", hint=hint)
    try:
        schema = ProtobufSchema(file.read_bytes())
        if message is None and len(schema.names) > 1:
            raise ValueError(f"it has several messages: {', '.join(schema.names)[:300]}")
        kind = schema.message(message or schema.names[0])
    except (OSError, ValueError) as error:
        hint = "protoc --include_imports --descriptor_set_out=FILE X.proto; then --message NAME with its package"
        raise UsageError(f"{file}: {error}", hint=hint) from None
    columns, left_out = schema.columns(kind)
    if left_out:
        fields = ", ".join(f"{field} ({why})" for field, why in left_out.items())
        logging.getLogger("streamgp").warning(f"{name}: fields that a table has no column for are left out: {fields}")
    return lambda payload: [row(schema.parse(kind, payload), columns)]


def _plain(value: Any) -> Any:
    """A value that JSON does not have, as text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 400:
        return int(value) if value == value.to_integral_value() else float(value)
    raise ValueError(f"a table has no column of {type(value).__name__}")
