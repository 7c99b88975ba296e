"""The samples of a recording in a temporary file, signal by signal in the order of time."""

from __future__ import annotations

import tempfile
import weakref
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgp.errors import DataError
from streamgp_data.recordings.recording import NEVER, SignalBlock, Times, Values

LEAST = 1 << 30
"""Bytes that samples may take in any case."""
RATIO = 2000
"""Times the size of the file that they may take beyond: no honest compression of samples gives more."""


@dataclass
class Signal:
    """count samples from `first` to `last` (ns); moved: how many came after a later one. pieces: where they are."""

    count: int = 0
    first: int = 0
    last: int = 0
    moved: int = 0
    pieces: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """First and last time, place of the times, place of the values, samples."""


class Samples:
    """Samples on disk: memory holds a few numbers a block. Add blocks, then `sort`, then read.

    Args:
        size: bytes of the recording.
        uri: its name, for messages.

    Example:
        >>> samples = Samples(100, "run.h5")
        >>> samples.add(SignalBlock(np.array([5, 9]), {"y": np.array([1.0, 2.0])}))
        0
        >>> samples.add(SignalBlock(np.array([1]), {"y": np.array([0.0])}))
        0
        >>> samples.sort()
        >>> samples.signals["y"].moved
        1
        >>> [part.tolist() for part in samples.between("y", 2, 8)]
        [[1, 5, 9], [0.0, 1.0, 2.0]]
    """

    def __init__(self, size: int, uri: str) -> None:
        self.signals: dict[str, Signal] = {}
        self._uri = uri
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as this object
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._limit = LEAST + RATIO * size
        self._map: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, block: SignalBlock) -> int:
        """Append a block; how many of its samples have no usable time, and are left out.

        Raises:
            DataError: the samples are out of all proportion to the file.
        """
        times = np.ascontiguousarray(block.times, np.int64)
        good = (times > -NEVER) & (times < NEVER)  # beyond is damage, and differences overflow
        lost = int(len(times) - good.sum())
        order: Any = slice(None)
        if lost:
            order = np.flatnonzero(good)
            times = times[order]
        if not len(times):
            return lost
        back = int((times[1:] < times[:-1]).sum())
        if back:
            turn = np.argsort(times, kind="stable")
            times, order = times[turn], turn if isinstance(order, slice) else order[turn]
        place = self._write(times)
        for name, values in block.values.items():
            signal = self.signals.setdefault(name, Signal())
            at = self._write(np.ascontiguousarray(values, np.float64)[order])
            if not signal.count:
                signal.first, signal.last = int(times[0]), int(times[0])
            signal.moved += back + int(times[0] < signal.last)
            signal.first, signal.last = min(signal.first, int(times[0])), max(signal.last, int(times[-1]))
            signal.count += len(times)
            signal.pieces.append((int(times[0]), int(times[-1]), place, at, len(times)))
        return lost

    def sort(self) -> None:
        """Bring the blocks of every signal in the order of time; those that overlap are merged in memory."""
        done: dict[tuple[int, ...], tuple[Times, NDArray[np.int64], int]] = {}
        self._read()
        for signal in self.signals.values():
            pieces = signal.pieces
            if all(one[1] <= two[0] for one, two in pairwise(pieces)):
                continue
            key = tuple(piece[2] for piece in pieces)
            values = np.concatenate([self._values(piece) for piece in pieces])
            if key not in done:
                times = np.concatenate([self._times(piece) for piece in pieces])
                order = np.argsort(times, kind="stable")
                done = {key: (times[order], order, self._write(times[order]))}  # signals of one topic come together
            times, order, place = done[key]
            signal.pieces = [(int(times[0]), int(times[-1]), place, self._write(values[order]), len(times))]
        self._read()

    def between(self, name: str, low: int, high: int) -> tuple[Times, Values]:
        """The samples from `low` to `high` (ns), and at least the one before and the one after."""
        pieces = self.signals[name].pieces
        first = int(np.searchsorted([piece[1] for piece in pieces], low))
        behind = int(np.searchsorted([piece[0] for piece in pieces], high, side="right"))
        chosen = pieces[max(0, first - 1) : behind + 1]
        times = np.concatenate([self._times(piece) for piece in chosen])
        start = max(0, int(np.searchsorted(times, low)) - 1)
        stop = int(np.searchsorted(times, high, side="right")) + 1
        return times[start:stop], np.concatenate([self._values(piece) for piece in chosen])[start:stop]

    def rows(self, name: str, start: int, stop: int) -> Times:
        """The times of the samples `start` to `stop` of a signal."""
        found, at = [], 0
        for piece in self.signals[name].pieces:
            found.append(self._times(piece)[max(0, start - at) : max(0, stop - at)])
            at += piece[4]
        return np.concatenate(found)

    def constant(self, name: str) -> float | None:
        """The value that every sample of a signal has; None where there are others, or one sample alone."""
        pieces = self.signals[name].pieces
        first = float(self._values(pieces[0])[0])
        same = self.signals[name].count > 1 and all(bool((self._values(piece) == first).all()) for piece in pieces)
        return first if same else None

    def _times(self, piece: tuple[int, int, int, int, int]) -> Times:
        return self._map[piece[2] : piece[2] + piece[4]]

    def _values(self, piece: tuple[int, int, int, int, int]) -> Values:
        return self._map[piece[3] : piece[3] + piece[4]].view(np.float64)

    def _write(self, numbers: NDArray[Any]) -> int:
        """The place of 8-byte numbers in the file."""
        place = self._end
        self._end += len(numbers)
        if 8 * self._end > self._limit:
            raise DataError(
                f"{self._uri}: its samples take more than {self._limit:,} bytes, out of all proportion to the file",
                hint="it is damaged, or made to fill a disk; --signals reads a part of it",
            )
        self._file.write(numbers.tobytes())
        return place

    def _read(self) -> None:
        self._file.flush()
        self._map = np.memmap(self._file, np.int64, "r") if self._end else np.zeros(0, np.int64)
