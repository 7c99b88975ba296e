"""ULog of PX4: times count from the start of the autopilot; pyulog reads the file as a whole."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from contextlib import redirect_stdout

import numpy as np

from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.recording import NEVER, Lost, RecordingOptions, SignalBlock, Wanted, needs, tidy

SUFFIXES = (".ulg", ".ulog")
SIGNS = {b"ULog": "a ULog recording"}


class Config(RecordingOptions):
    """As of every recording."""


def build(config: Config, uri: str) -> Joined:
    """The log at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: pyulog is not installed, or an option does not fit.
    """
    return Joined(uri, config, ULog)


class ULog:
    """A Recording over one log. Signals are called topic.field, of a second sensor topic.1.field."""

    def __init__(self, path: str) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = "its messages"
        self._path = path
        self._pyulog = needs("pyulog", "ulog")

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The topics, one after the other.

        Raises:
            ValueError: a part of the file could not be read, or it is cut.
        """
        with _Once(io.FileIO(self._path)) as file, redirect_stdout(io.StringIO()):  # it prints
            log = self._pyulog.ULog(file)
        for topic in log.data_list:
            name = topic.name if not topic.multi_id else f"{topic.name}.{topic.multi_id}"
            times = np.minimum(topic.data["timestamp"], NEVER // 1000).astype(np.int64) * 1000
            fields = {tidy(f"{name}.{key.replace('[', '.').replace(']', '')}"): key for key in topic.data}
            chosen = {column: key for column, key in fields.items() if key != "timestamp" and wanted(column)}
            yield SignalBlock(times, {column: topic.data[key].astype(np.float64) for column, key in chosen.items()})
        for dropout in log.dropouts:
            yield Lost("dropout", "", f"{dropout.duration} ms of the log were not written, at {dropout.timestamp} us")
        if log.file_corruption:
            raise ValueError("a part of the file could not be read")
        _check_end(self._path)


class _Once(io.BufferedReader):
    """A file that is read at most a few times: pyulog can go back for ever in a damaged one."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        self._left = 1000 + 8 * os.fstat(file.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("a part of the file could not be read")
        return super().read(size)


def _check_end(path: str) -> None:
    """See that the last message is whole.

    Raises:
        ValueError: it is cut.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        place = file.seek(16)
        while len(head := file.read(3)) == 3:
            place = file.seek(struct.unpack("<HB", head)[0], os.SEEK_CUR)
    if place != size or head:
        raise ValueError(f"the last message ends at byte {place:,}, the file at {size:,}")
