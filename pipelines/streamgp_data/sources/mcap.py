"""MCAP: messages of ROS 1 and 2, of Protocol Buffers and of JSON; times are those of the log."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

from streamgp_data.protobuf import ProtobufSchema, tree
from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.recording import (
    Lost,
    RecordingOptions,
    SignalBlock,
    TopicSample,
    Wanted,
    decoded,
    gathered,
    needs,
)
from streamgp_data.recordings.ros import Types

SUFFIXES = (".mcap",)
SIGNS = {b"\x89MCAP": "an MCAP recording"}
_LARGEST = 1 << 29
"""Bytes of a record, and of a chunk after decompression."""
_PACKED, _LEAST = 200, 1 << 30
"""All chunks together may become _PACKED times as large as the file, and _LEAST bytes more."""


class Config(RecordingOptions):
    """As of every recording."""


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: an extra is not installed, or an option does not fit.
    """
    return Joined(uri, config, Mcap)


class Mcap:
    """A Recording over one MCAP file, read front to back: its index is not needed."""

    def __init__(self, path: str) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = ""
        self._path = path
        self._types = Types()
        self._schemas: dict[int, Any] = {}
        self._channels: dict[int, Any] = {}
        self._protobuf: dict[int, tuple[ProtobufSchema, Any]] = {}

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The messages, in the order of the file."""
        return gathered(self._messages(), wanted)

    def _messages(self) -> Iterator[TopicSample | Lost]:
        records, count = needs("mcap.records", "mcap"), 0
        for record in self._records():
            if isinstance(record, records.Schema):
                self._schemas[record.id] = record
            elif isinstance(record, records.Channel):
                self._add(record)
            elif isinstance(record, records.Message):
                count += 1
                self.place = f"{self.place.split(', message')[0]}, message {count:,}"
                if self._channels[record.channel_id].topic not in self.left_out:
                    yield self._message(record)

    def _records(self) -> Iterator[Any]:
        stream, chunk = needs("mcap.stream_reader", "mcap"), needs("mcap.records", "mcap").Chunk
        left = _PACKED * os.path.getsize(self._path) + _LEAST
        with open(self._path, "rb") as file:
            reader = stream.StreamReader(file, emit_chunks=True, validate_crcs=True, record_size_limit=_LARGEST)
            for record in reader.records:
                self.place = f"byte {file.tell():,}"
                if isinstance(record, chunk):
                    left -= record.uncompressed_size
                    if left < 0:
                        raise ValueError(f"its chunks decompress to more than {_PACKED} times the file")
                    yield from stream.breakup_chunk(_plain(record), validate_crc=True)
                else:
                    yield record

    def _add(self, channel: Any) -> None:
        """Take note of a channel, and of why its messages cannot be read."""
        schema = self._schemas.get(channel.schema_id)
        way = channel.message_encoding
        self._channels[channel.id] = channel
        if way == "json":
            return
        if way == "protobuf" and schema is not None and schema.encoding == "protobuf":
            try:
                types = ProtobufSchema(schema.data)
                self._protobuf[channel.id] = types, types.message(schema.name)
            except ValueError as error:
                self.left_out[channel.topic] = f"its schema: {error}"
            return
        if way not in ("cdr", "ros1") or schema is None or schema.encoding not in ("ros2msg", "ros2idl", "ros1msg"):
            self.left_out[channel.topic] = f"messages are {way or 'of unknown encoding'}"
            return
        text = schema.data.decode(errors="replace")
        if (reason := self._types.define(schema.name, text, schema.encoding == "ros2idl")) is not None:
            self.left_out[channel.topic] = reason

    def _message(self, message: Any) -> TopicSample | Lost:
        channel = self._channels[message.channel_id]
        return decoded(channel.topic, message.log_time, lambda: self._fields(channel, message.data), self)

    def _fields(self, channel: Any, data: bytes) -> Any:
        if channel.message_encoding == "json":
            return json.loads(data)
        if channel.message_encoding == "protobuf":
            types, kind = self._protobuf[channel.id]
            return tree(types.parse(kind, data))
        return self._types.decode(data, self._schemas[channel.schema_id].name, channel.message_encoding == "ros1")


def _plain(chunk: Any) -> Any:
    """A chunk without compression; at most as large as it says.

    Raises:
        ValueError: it is larger, or of an unknown compression.
    """
    size = chunk.uncompressed_size
    if size > _LARGEST:
        raise ValueError(f"a chunk of {size:,} bytes, more than {_LARGEST:,}")
    if chunk.compression == "zstd":
        import zstandard

        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(chunk.data)).read(size + 1)
    elif chunk.compression == "lz4":
        data = needs("lz4.frame", "mcap").LZ4FrameDecompressor().decompress(chunk.data, size + 1)
    elif chunk.compression:
        raise ValueError(f"compression {chunk.compression!r}")
    else:
        data = chunk.data
    if len(data) != size:
        raise ValueError(f"a chunk that says it has {size:,} bytes has not")
    chunk.compression, chunk.data = "", data
    return chunk
