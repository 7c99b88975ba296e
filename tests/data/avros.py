"""Schemas of Avro that allow messages which do harm, and numbers as Avro and Protocol Buffers write them."""

from __future__ import annotations

from typing import Any


def schema(more: Any) -> dict[str, Any]:
    """A record of a time, and of something else where there is any."""
    more = ["null", more]
    return {"type": "record", "name": "R", "fields": [{"name": "ds", "type": "string"}, {"name": "more", "type": more}]}


CHAIN = schema({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})
LIST = schema({"type": "record", "name": "N", "fields": [{"name": "next", "type": {"type": "array", "items": "N"}}]})
MAP = schema({"type": "record", "name": "N", "fields": [{"name": "next", "type": {"type": "map", "values": "N"}}]})
BOMB = schema({"type": "array", "items": {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}})
PRICE = schema({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})


def flat(value: int) -> bytes:
    """A whole number, not negative, seven bits a byte."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def number(value: int) -> bytes:
    """A whole number as Avro writes it."""
    return flat(2 * value if value >= 0 else -2 * value - 1)
