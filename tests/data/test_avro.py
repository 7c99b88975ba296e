"""Avro: what fastavro writes is read, of any schema; what does harm is not."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp_data.avro import DEEPEST, AvroSchema
from tests.data.avros import BOMB, CHAIN, LIST, MAP, PRICE, number
from tests.properties import examples

PLAIN = ["boolean", "int", "long", "float", "double", "string", "bytes", "null"]
TREE = {
    "type": "record",
    "name": "a.Tree",
    "fields": [
        {"name": "on", "type": {"type": "enum", "name": "State", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "again", "type": ["null", "State", "Id"]},
        {"name": "left", "type": ["null", "Tree"]},
        {"name": "others", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": ["Tree", *PLAIN]}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    ],
}
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.binary())
PRICES = st.decimals(-(10**9), 10**9, places=2)
TREES: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {
            "on": st.sampled_from("AB"),
            "id": st.binary(min_size=3, max_size=3),
            "again": st.one_of(st.none(), st.just("A")),
            "left": st.one_of(st.none(), TREES),
            "others": st.lists(TREES, max_size=1),
            "named": st.dictionaries(st.text(), st.one_of(TREES, VALUES), max_size=2),
            "nothing": st.lists(st.none(), max_size=3),
            "price": PRICES,
        }
    )
)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@given(TREES)
@examples(8)
def test_what_is_written_is_read_and_is_no_longer_than_it_is(value: dict[str, Any]) -> None:
    schema, payload = AvroSchema(json.dumps(TREE).encode()), written(TREE, value)
    wanted = fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(TREE), None)
    assert repr(schema.read(payload)) == repr(wanted)  # which has NaN
    for other in (payload + b"\0", payload[:-1]):
        with pytest.raises((ValueError, EOFError)):
            schema.read(other)


@pytest.mark.parametrize("schema", [CHAIN, LIST, MAP], ids=["chain", "list", "map"])
@pytest.mark.parametrize("levels", [1, DEEPEST // 2 - 3, DEEPEST + 500, 100_000])
def test_levels_are_counted(schema: Any, levels: int) -> None:
    begin = number(1) + b"t" + b"\2"
    if schema is CHAIN:
        payload = begin + b"\2" * levels + b"\0"
    else:
        payload = begin + (b"\2" if schema is LIST else b"\2\2a") * levels + b"\0" * (levels + 1)
    read = AvroSchema(json.dumps(schema).encode()).read
    if levels < DEEPEST:
        assert list(read(payload)) == ["ds", "more"]
        return
    with pytest.raises(ValueError, match=str(DEEPEST)):
        read(payload)


@pytest.mark.parametrize(
    ("schema", "worst"),
    [
        (BOMB, number(2**40) + b"\0"),
        (BOMB, number(-(2**40)) + number(0) + b"\0"),
        (BOMB, (number(4) + b"") * 1000 + b"\0"),
        (PRICE, number(10**6) + b"\x7f" * 10**6),
        (PRICE, number(-5) + b"\x7f" * 10),
        (BOMB, b"\xff" * 9 + b"\x7f\0"),
        (BOMB, b"\xff" * 3),
    ],
)
def test_numbers_that_a_message_cannot_bear_out_are_refused(schema: Any, worst: bytes) -> None:
    with pytest.raises(ValueError, match=r"items|decimal|within|beyond"):
        AvroSchema(json.dumps(schema).encode()).read(number(1) + b"t" + b"\2" + worst)


def test_a_decimal_is_its_number() -> None:
    payload = written(PRICE, {"ds": "t", "more": Decimal("12.50")})
    assert AvroSchema(json.dumps(PRICE).encode()).read(payload)["more"] == Decimal("12.50")


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b'{"type": "no"}', b"1", b"null"])
def test_what_is_no_schema_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AvroSchema(data)


def test_a_record_that_always_holds_itself_is_refused() -> None:
    inner = {"type": "record", "name": "M", "fields": [{"name": "r", "type": "R"}]}
    endless = {"type": "record", "name": "R", "fields": [{"name": "m", "type": inner}]}
    with pytest.raises(ValueError, match="holds itself"):
        AvroSchema(json.dumps(endless).encode())
