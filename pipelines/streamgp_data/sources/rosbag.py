"""Bags of ROS 1 (.bag) and ROS 2 (.db3); times are those of the recorder."""

from __future__ import annotations

import bz2
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from streamgp.errors import DataError
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

SUFFIXES = (".bag", ".db3")
SIGNS = {b"#ROSBAG": "a ROS bag"}
_LARGEST = 1 << 29
"""Bytes of a chunk after decompression."""
_PACKED, _LEAST = 200, 1 << 30
"""All chunks together may become _PACKED times as large as the file, and _LEAST bytes more."""


class Config(RecordingOptions):
    """As of every recording."""


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`.

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: an extra is not installed, or an option does not fit.
    """
    return Joined(uri, config, partial(Bag, uri=uri))


class Bag:
    """A Recording over one bag."""

    def __init__(self, path: str, uri: str) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = ""
        self._types = Types()
        with open(path, "rb") as file:
            head = file.read(16)
        if not head.startswith((b"#ROSBAG V2.0", b"SQLite format 3")):
            raise DataError(f"{uri}: neither a ROS 1 bag of version 2.0 nor a ROS 2 bag", hint="bring the whole file")
        self._first = head.startswith(b"#ROSBAG")
        self._raw = self._ros1(path) if self._first else self._ros2(path)

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The messages; of ROS 1 in the order of time, of ROS 2 in that of the file."""
        return gathered(self._messages(), wanted)

    def _messages(self) -> Iterator[TopicSample | Lost]:
        for count, (topic, kind, time, raw) in enumerate(self._raw, 1):
            self.place = f"message {count:,}"
            if topic not in self.left_out:
                yield decoded(topic, time, partial(self._types.decode, raw, kind, self._first), self)

    def _ros1(self, path: str) -> Iterator[tuple[str, str, int, bytes]]:
        module = needs("rosbags.rosbag1.reader", "mcap")
        lz4 = needs("lz4.frame", "mcap")
        known = module.decompressors
        size = [_PACKED * os.path.getsize(path) + _LEAST]
        kinds = {"bz2": bz2.BZ2Decompressor, "lz4": lz4.LZ4FrameDecompressor}
        bounded = {known[name]: _bounded(fresh, size) for name, fresh in kinds.items()}
        reader = module.Reader(path)
        reader.open()
        try:
            for at, chunk in reader.chunks.items():
                reader.chunks[at] = chunk._replace(decompressor=bounded.get(chunk.decompressor, chunk.decompressor))
            for connection in reader.connections:
                self._define(connection.topic, connection.msgtype, connection.msgdef.data)
            for connection, time, raw in reader.messages():
                yield connection.topic, connection.msgtype, time, raw
        finally:
            reader.close()

    def _ros2(self, path: str) -> Iterator[tuple[str, str, int, bytes]]:
        base = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        try:
            base.execute("PRAGMA trusted_schema = OFF")  # a view of the file may call no function
            tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            texts: dict[str, tuple[str, str]] = {}
            if "message_definitions" in tables:
                asked = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
                texts = {kind: (way, text) for kind, way, text in base.execute(asked)}
            topics = {}
            for key, name, kind, way in base.execute("SELECT id, name, type, serialization_format FROM topics"):
                topics[key] = (name, kind)
                if way != "cdr":
                    self.left_out[name] = f"messages are {way}"
                elif texts.get(kind, ("", ""))[1]:
                    self._define(name, kind, texts[kind][1], texts[kind][0] == "ros2idl")
            for key, time, raw in base.execute("SELECT topic_id, timestamp, data FROM messages"):
                yield (*topics[key], time, raw)
        finally:
            base.close()

    def _define(self, topic: str, kind: str, text: str, idl: bool = False) -> None:
        if (reason := self._types.define(kind, text, idl)) is not None:
            self.left_out[topic] = reason


def _bounded(fresh: Callable[[], Any], left: list[int]) -> Callable[[bytes], bytes]:
    """A decompressor of chunks that gives at most _LARGEST bytes of each, and of all that have it what is `left`."""

    def work(data: bytes) -> bytes:
        found: bytes = fresh().decompress(data, _LARGEST)
        if len(found) >= _LARGEST:
            raise ValueError(f"a chunk of more than {_LARGEST:,} bytes")
        left[0] -= len(found)
        if left[0] < 0:
            raise ValueError(f"its chunks decompress to more than {_PACKED} times the file")
        return found

    return work
