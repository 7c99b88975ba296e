"""Protocol Buffers by a descriptor set: the values of the library, and no set that breaks a reader."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from google.protobuf import descriptor_pb2, json_format

from streamgp.errors import UsageError
from streamgp_data.protobuf import ProtobufSchema, row, tree
from streamgp_data.reading.cells import LINE
from tests.data.protobufs import descriptor_set, meter
from tests.data.sources.recordings import opened, read
from tests.live.feeds import Memory, take
from tests.pipelines.ingesting import quarantine, rows


@pytest.mark.parametrize("imports", [True, False])
def test_values_are_those_of_the_library(imports: bool) -> None:
    schema = ProtobufSchema(descriptor_set(imports))
    kind = schema.message("plant.Meter")
    columns, left_out = schema.columns(kind)
    assert left_out == {"phases": "repeated", "raw": "bytes", "place.within": "a message within itself"}
    made = meter()(y=1.5, count=2**53 + 1, state=1, phases=[1.0, 2.0], raw=b"x")
    made.ds.FromDatetime(datetime(2026, 1, 1, 0, 0, 0, 250_000))
    made.kw.value, made.place.floor = 0.0, -3
    found = row(schema.parse(kind, made.SerializeToString()), columns)
    told = json_format.MessageToDict(made, preserving_proto_field_name=True)
    assert found == {
        "ds": told["ds"], "y": told["y"], "count": int(told["count"]), "state": told["state"], "kw": told["kw"],
        "place.floor": told["place"]["floor"],
    }  # fmt: skip
    empty = row(schema.parse(kind, b""), columns)  # what has no presence is 0, what has one is missing
    assert empty == {"ds": None, "y": 0.0, "count": None, "state": "OFF", "kw": None, "place.floor": None}
    assert tree(made)["phases"] == [1.0, 2.0] and tree(made)["state"] == 1


def test_a_set_that_is_none_lacks_a_file_or_a_type_is_refused() -> None:
    chain = descriptor_pb2.FileDescriptorSet()
    for at in range(3000):
        chain.file.add(name=f"{at}.proto", dependency=[f"{at + 1}.proto"])
    for data in (b"", b"no set", descriptor_set()[:200], chain.SerializeToString()):
        with pytest.raises(ValueError):
            ProtobufSchema(data)
    with pytest.raises(ValueError, match=r"plant\.Meter"):
        ProtobufSchema(descriptor_set()).message("plant.Motor")


def test_damaged_sets_and_messages_are_refused_and_end_nothing() -> None:
    draw, data = random.Random(0), descriptor_set()
    kind = (schema := ProtobufSchema(data)).message("plant.Meter")
    columns, _ = schema.columns(kind)
    message = meter()(y=1.5, count=7).SerializeToString()
    for _ in range(2000):
        raw = bytearray(draw.choice([data, message]))
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        cut = bytes(raw[: draw.randint(0, len(raw))])
        with suppress(ValueError):
            damaged = ProtobufSchema(cut)
            for name in damaged.names:
                damaged.columns(damaged.message(name))
        with suppress(ValueError):
            row(schema.parse(kind, cut), columns)


def payloads(count: int) -> list[bytes]:
    made = []
    for at in range(count):
        one = meter()(y=at / 2, count=at)
        one.ds.FromDatetime(datetime(2026, 1, 1) + timedelta(minutes=at))
        made.append(one.SerializeToString())
    return made


def test_messages_of_a_broker_are_rows(tmp_path: Path) -> None:
    (tmp_path / "plant.bin").write_bytes(descriptor_set())
    given = {"format": "protobuf", "message_schema": str(tmp_path / "plant.bin"), "message": "plant.Meter"}
    found = take(tmp_path / "t", Memory([*payloads(50), b"\xff\xff"]), **given)
    assert (found["added"], found["quarantined"]) == (50, {"unparsable": 1})
    assert rows(tmp_path / "t")["y"].to_list() == [at / 2 for at in range(50)]
    assert rows(tmp_path / "t")["ds"][1] == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert quarantine(tmp_path / "t").height == 1
    for wrong in ({"message": "plant.Motor"}, {"message_schema": None}, {"message": None}):
        with pytest.raises(UsageError):
            take(tmp_path / "u", Memory(payloads(1)), **{**given, **wrong})


def test_mcap_with_protobuf_equals_the_same_log_in_json(tmp_path: Path) -> None:
    from mcap.writer import Writer

    def write(path: Path, way: str) -> None:
        with path.open("wb") as file:
            writer = Writer(file)
            writer.start()
            data = descriptor_set() if way == "protobuf" else b"{}"
            schema = writer.register_schema("plant.Meter", "protobuf" if way == "protobuf" else "jsonschema", data)
            channel = writer.register_channel("/meter", way, schema)
            for at in range(100):
                made = meter()(y=at / 2, count=at, phases=[at, at + 1.0])
                made.place.floor = at
                said = {"y": at / 2, "count": at, "phases": [at, at + 1.0], "place": {"floor": at}, "state": 0}
                raw = made.SerializeToString() if way == "protobuf" else json.dumps(said).encode()
                writer.add_message(channel, at * 10**9, raw, at * 10**9)
            writer.finish()

    frames = []
    for way in ("protobuf", "json"):
        write(tmp_path / f"{way}.mcap", way)
        frames.append(read(opened(tmp_path / f"{way}.mcap")))
    one, other = (frame.select(sorted(name for name in frame.columns if name != LINE)) for frame in frames)
    assert one.height == 100 and one.equals(other), (one.columns, other.columns)
    assert pl.Series([at / 2 for at in range(100)]).equals(one["meter.y"].cast(pl.Float64).rename(""))
