"""Records of Avro without a header, read by a schema; what would end or fill the process is looked for before."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from streamgp_data.messages import client

DEEPEST = 100
"""Levels of a message, as many as Protocol Buffers allow: fastavro sets no limit, and goes down on the stack of C."""
_SMALL = 512
"""Levels that the stack bears. Each takes a byte, but for records in records, of which a turn has each one once."""
_LARGE, _NESTED = "large", "nested"
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_Walk = Callable[[bytes, int, int], int]
"""Payload, place, level -> the place after a value."""


class AvroSchema:
    """The type of a record.

    Args:
        data: the schema, as JSON.

    Raises:
        ValueError: it is none, or has a record that always holds itself.
        UsageError: the package fastavro is not installed.

    Example:
        >>> fields = b'[{"name": "y", "type": ["null", "boolean"]}]'
        >>> schema = AvroSchema(b'{"type": "record", "name": "R", "fields": ' + fields + b"}")
        >>> schema.read(bytes([2, 1]))
        {'y': True}
    """

    def __init__(self, data: bytes) -> None:
        avro = client("fastavro", "avro")
        self._read = avro.schemaless_reader
        try:
            self._schema = avro.parse_schema(json.loads(data))
        except Exception as error:  # of JSON, of fastavro, and whatever that meets in what is no schema
            raise ValueError(str(error) or type(error).__name__) from None
        self._careful = _Careful(self._schema)

    def read(self, payload: bytes) -> Any:
        """The record of a message.

        Raises:
            ValueError: bytes are left after it, it is nested too deeply, or it says that it has more than it has.
            Exception: whatever fastavro says of other bytes that are no record.
        """
        self._careful.check(payload)
        stream = io.BytesIO(payload)
        found = self._read(stream, self._schema, None)
        if stream.read(1):
            raise ValueError("bytes are left after the record")
        return found


class _Careful:
    """Goes through a message without making anything of it, where a schema allows messages that do harm: types that
    hold themselves, lists of items that take no bytes, decimals of any length. Other messages are not looked at."""

    def __init__(self, schema: Any) -> None:
        self._why = set[str]()
        self._records = 0
        self._named: dict[str, _Walk] = {}
        self._least: dict[str, float] = {}
        self._walk, _ = self._of(schema)

    def check(self, payload: bytes) -> None:
        """See that a message is nested no deeper than DEEPEST levels, and ends where its numbers say.

        Raises:
            ValueError: it is, or does not.
        """
        if _LARGE in self._why or (_NESTED in self._why and len(payload) * self._records > _SMALL):
            self._walk(payload, 0, 0)

    def _of(self, schema: Any) -> tuple[_Walk, float]:
        """The walk of a type, and the bytes that a value takes at least: infinitely many of one that holds itself.

        Raises:
            ValueError: a record always holds itself.
        """
        if isinstance(schema, list):
            parts = [self._of(one) for one in schema]
            return _union([walk for walk, _ in parts]), 1 + min((least for _, least in parts), default=0)
        if isinstance(schema, str):
            return self._reference(schema) if schema in self._least else self._of({"type": schema})
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            item, least = self._of(schema["items"])
            if not least:
                self._why.add(_LARGE)
            return _blocks(item), 1
        if kind == "map":
            return _blocks(_behind_text(self._of(schema["values"])[0])), 1
        if kind in ("bytes", "string"):
            return self._text(schema), 1
        if kind in ("int", "long", "enum"):
            return self._known(schema, _whole, 1)
        if kind in _SIZES or kind == "fixed":
            size = _SIZES.get(kind, schema.get("size", 0))
            return self._known(schema, _fixed(size), size)
        return self._of(kind)  # a type in a table of its own

    def _reference(self, name: str) -> tuple[_Walk, float]:
        least = self._least[name]
        if least == inf:
            self._why.add(_NESTED)
        return lambda payload, at, level: self._named[name](payload, at, level), least

    def _record(self, schema: Mapping[str, Any]) -> tuple[_Walk, float]:
        name = schema["name"]
        self._records += 1
        self._least[name] = inf
        parts = [self._of(field["type"]) for field in schema["fields"]]
        if (least := sum(size for _, size in parts)) == inf:
            raise ValueError(f"the record {name} always holds itself: no message of it ends")
        return self._known(schema, _record([walk for walk, _ in parts]), least)

    def _text(self, schema: Mapping[str, Any]) -> _Walk:
        if schema.get("logicalType") != "decimal":
            return _text
        self._why.add(_LARGE)
        most = int(schema["precision"]) + 8  # bytes; a digit takes less than half of one

        def walk(payload: bytes, at: int, level: int) -> int:
            size, at = _number(payload, at)
            if size > most:
                raise ValueError(f"a decimal of {size:,} bytes, which its precision does not allow")
            return _skip(payload, at, size)

        return walk

    def _known(self, schema: Mapping[str, Any], walk: _Walk, least: float) -> tuple[_Walk, float]:
        if "name" in schema:
            self._named[schema["name"]], self._least[schema["name"]] = walk, least
        return walk, least


def _number(payload: bytes, at: int) -> tuple[int, int]:
    """A whole number of 64 bits, and the place after it."""
    found, shift = 0, 0
    while True:
        if at >= len(payload) or shift > 63:
            raise ValueError("the message ends within a number, or has one beyond 64 bits")
        byte = payload[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            if found >= 1 << 64:
                raise ValueError("a number beyond 64 bits")
            return (found >> 1) ^ -(found & 1), at


def _skip(payload: bytes, at: int, size: int) -> int:
    if not 0 <= size <= len(payload) - at:
        raise ValueError("the message ends within a value")
    return at + size


def _whole(payload: bytes, at: int, level: int) -> int:
    return _number(payload, at)[1]


def _text(payload: bytes, at: int, level: int) -> int:
    size, at = _number(payload, at)
    return _skip(payload, at, size)


def _fixed(size: int) -> _Walk:
    return lambda payload, at, level: _skip(payload, at, size)


def _behind_text(value: _Walk) -> _Walk:
    return lambda payload, at, level: value(payload, _text(payload, at, level), level)


def _union(parts: Sequence[_Walk]) -> _Walk:
    def walk(payload: bytes, at: int, level: int) -> int:
        branch, at = _number(payload, at)
        if not 0 <= branch < len(parts):
            raise ValueError(f"a union has no branch {branch}")
        return parts[branch](payload, at, level)

    return walk


def _record(parts: Sequence[_Walk]) -> _Walk:
    def walk(payload: bytes, at: int, level: int) -> int:
        _check_level(level)
        for part in parts:
            at = part(payload, at, level + 1)
        return at

    return walk


def _blocks(item: _Walk) -> _Walk:
    """Items of a list or of a map, in blocks: how many, where negative how many bytes too, and they."""

    def walk(payload: bytes, at: int, level: int) -> int:
        _check_level(level)
        total = 0
        while True:
            count, at = _number(payload, at)
            if not count:
                return at
            if count < 0:
                count, (_, at) = -count, _number(payload, at)
            total += count
            if total > len(payload):
                raise ValueError(f"a list that says it has {total:,} items, in a message of {len(payload):,} bytes")
            for _ in range(count):
                at = item(payload, at, level + 1)

    return walk


def _check_level(level: int) -> None:
    if level >= DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST} levels")
