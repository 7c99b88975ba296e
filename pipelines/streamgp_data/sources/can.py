"""Logs of a CAN bus: candump (.log), Vector ASCII (.asc) and BLF; a database (DBC) makes signals of their frames."""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from streamgp.errors import DataError, UsageError
from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.recording import (
    Lost,
    RecordingOptions,
    SignalBlock,
    TopicSample,
    Wanted,
    gathered,
    needs,
    tidy,
)

SUFFIXES = (".log", ".asc", ".blf")
_LONGEST = 1 << 16
"""Characters of a line."""
_LARGEST = 1 << 21
"""Bytes of a compressed container of a BLF: zlib makes at most 1,032 times as many of them."""
_HEADER = re.compile(
    r"//|date\b|base\b|(no )?internal events|(begin|end) triggerblock|[\d.]+ start of measurement", re.I
)


class Config(RecordingOptions):
    """dbc: file that says what is in the frames: .dbc, .kcd, .arxml, .sym. final: the last line is whole."""

    dbc: Path | None = None
    final: bool = False


def build(config: Config, uri: str) -> Joined:
    """The log at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is damaged, or no frame is in the database.
        UsageError: there is no database, an extra is not installed, or an option does not fit.
    """
    if config.dbc is None and not config.look:
        raise UsageError(f"{uri}: the frames of a CAN bus need a database of their signals", hint="--dbc FILE.dbc")
    also = () if config.dbc is None else (config.dbc,)
    return Joined(uri, config, partial(CanLog, config=config, uri=uri), also)


class CanLog:
    """A Recording over one log. A signal is called bus.message.signal; without a database, bus.frame stands for every
    frame, and its values are the length in bytes."""

    def __init__(self, path: str, config: Config, uri: str) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = ""
        self._path, self._uri, self._final = path, uri, config.final
        self._can = needs("can", "can")
        self._messages = None if config.dbc is None else _messages(config.dbc)
        self._named: set[str] = set()

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The signals of the frames, in the order of the log."""
        return gathered(self._decoded(), wanted)

    def _decoded(self) -> Iterator[TopicSample | Lost]:
        with open(self._path, "rb") as file:
            blf = file.read(4) == b"LOGG"
        out = Counter[str]()
        try:
            for frame in self._binary(out) if blf else self._text(out):
                if isinstance(frame, Lost):
                    yield frame
                elif frame.is_error_frame or frame.is_remote_frame:
                    out["error and remote frames"] += 1
                elif (found := self._signals(frame)) is not None:
                    yield found
                else:
                    out["frames that are not in the database"] += 1
        finally:
            self.left_out |= {what: f"{count:,}" for what, count in out.items() if count}

    def _signals(self, frame: Any) -> TopicSample | Lost | None:
        """What a frame says; None where the database has no such message."""
        time, key = round(frame.timestamp * 1e6) * 1000, frame.arbitration_id
        bus = f"can{frame.channel}" if isinstance(frame.channel, int) else tidy(str(frame.channel or "can"))
        if self._messages is None:
            name = f"{bus}.{key:0{8 if frame.is_extended_id else 3}X}"
            self.units[name] = "bytes"
            return TopicSample(name, time, {name: float(len(frame.data))})
        message = self._messages.get((key, frame.is_extended_id))
        if message is None:
            return None
        name = f"{bus}.{tidy(message.name)}"
        try:
            decoded = message.decode(bytes(frame.data), decode_choices=False)
            signals = {f"{name}.{tidy(one)}": float(value) for one, value in decoded.items()}
        except Exception as error:  # too short for its signals, or a multiplexer that the database has not
            return Lost("unparsable", name, f"{self.place}: {error}"[:300], frame.data.hex())
        if name not in self._named:
            self._named.add(name)
            self.units |= {f"{name}.{tidy(one.name)}": one.unit for one in message.signals if one.unit}
        return TopicSample(f"{name} {len(signals)}", time, signals)

    def _text(self, out: Counter[str]) -> Iterator[Any]:
        """Frames of a text log, line by line: a line that cannot be read is lost, and no other."""
        with open(self._path, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            base, at = "", 0
            while line := file.readline(_LONGEST):
                at += 1
                text = line.strip()
                self.place = f"line {at:,}"
                header = _HEADER.match(text)
                if header:
                    base = text if text.lower().startswith("base") else base or "base hex timestamps absolute"
                    if "timestamps relative" in text.lower():
                        hint = "export the log with absolute timestamps"
                        raise DataError(f"{self._uri}, line {at}: times count from the line before", hint=hint)
                if not text or header:
                    continue
                lines = _Lines([base, "no internal events logged", text] if base else [text])
                reader = self._can.ASCReader(lines) if base else self._can.CanutilsLogReader(lines)
                try:
                    frame = next(iter(reader), None)
                except Exception as error:
                    yield Lost("unparsable", "", f"{self.place}: {type(error).__name__} {error}"[:300], text[:1000])
                    continue
                if not line.endswith("\n") and not self._final:
                    detail = f"{self.place}: it has no newline and may be cut; if it is whole, --final takes it"
                    yield Lost("unparsable", "", detail, text[:1000])
                elif frame is not None:
                    yield frame
                elif text[0].isdigit():
                    out["events that are no frames"] += 1
                else:
                    yield Lost("unparsable", "", f"{self.place}: no frame", text[:1000])

    def _binary(self, out: Counter[str]) -> Iterator[Any]:
        _check_containers(self._path)
        count = 0
        with open(self._path, "rb") as file, _checked(self._can.BLFReader)(file) as reader:
            for count, frame in enumerate(reader, 1):
                self.place = f"frame {count:,}"
                yield frame
            size, found = reader.file_size, os.path.getsize(self._path)
            if size != found or len(reader._tail) >= 16:
                raise ValueError(f"the file has {found:,} bytes, and says that it has {size:,}")
            out["objects that are no frames"] = max(0, reader.object_count - count)


def _checked(library: Any) -> Any:
    """The reader of a library, which would read an object of no size for ever."""

    class Checked(library):  # type: ignore[misc]
        def _parse_data(self, data: bytes) -> Iterator[Any]:
            at = data.find(b"LOBJ", 0, 8)
            while 0 <= at <= len(data) - 16:
                size = struct.unpack_from("<8xL", data, at)[0]
                if size < 16:
                    raise ValueError(f"an object of {size} bytes")
                at = data.find(b"LOBJ", at + size, at + size + 8)
            yield from super()._parse_data(data)

    return Checked


class _Lines:
    """Lines as a file, for a reader."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def read(self) -> str:
        return next(self._lines, "")

    def write(self, text: str) -> None:
        """Readers take what can be read and written as an open file."""

    def close(self) -> None:
        """Nothing is open."""


def _messages(path: Path) -> dict[tuple[int, bool], Any]:
    """(id, whether it is extended) -> message.

    Raises:
        DataError: it is no database.
    """
    cantools = needs("cantools", "can")
    try:
        base = cantools.database.load_file(path, strict=False)
        return {(message.frame_id, message.is_extended_frame): message for message in base.messages}
    except Exception as error:  # each of its parsers has its own
        what = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{path}: no database of CAN messages: {what}", hint="a .dbc, .kcd, .arxml or .sym") from None


def _check_containers(path: str) -> None:
    """See that no compressed container of a BLF is so large that it may fill the memory.

    Raises:
        ValueError: one is.
    """
    with open(path, "rb") as file:
        file.seek(struct.unpack("<4xL", file.read(8))[0])
        while len(head := file.read(16)) == 16:
            size = struct.unpack("<8xL4x", head)[0]
            if size > _LARGEST:
                raise ValueError(f"an object of {size:,} bytes, more than {_LARGEST:,}")
            file.seek(max(0, size - 16) + size % 4, os.SEEK_CUR)
