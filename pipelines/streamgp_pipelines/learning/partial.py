"""Micro-batches of a fleet: those of B rows of each series.

Rows wait until the micro-batch of their series is full; all series whose micro-batch is full are asked, answered,
scored and learned together. So the numbers of a series are those of a run on it alone, in whatever order the others
come; a silent series costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Json
from streamgp.windows.calendar import Ints
from streamgp_data.batches import together
from streamgp_pipelines.learning.recipe import Schedule
from streamgp_pipelines.learning.tail import Tail

AT_ONCE = 2**14
"""Forecasts that are made together at most, T for each row: memory stays bounded, and in the cache."""
READ = 8192
"""Rows that are read at a time at most, about."""


def read_size(batch: int, series: int, most: int = READ) -> int:
    """Rows that are read at a time: a micro-batch of every series, in all `most` at most.

    Example:
        >>> read_size(batch=48, series=3), read_size(batch=48, series=5000)
        (144, 8160)
    """
    return batch * max(1, min(series, most // batch))


class PartialBatches:
    """Rows whose micro-batch is not full, and how many rows each series has had; Stateful.

    Rows are put together only when some leave, and each leaves once: the cost is linear in the rows.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[pa.RecordBatch, Ints]] = []
        self._count = np.zeros(0, np.int64)  # (S,) rows of each series that wait
        self.taken = np.zeros(0, np.int64)  # (S,) rows of each series that left

    def __deepcopy__(self, _: object) -> PartialBatches:
        found = copy.copy(self)
        found._pieces, found._count, found.taken = list(self._pieces), self._count.copy(), self.taken.copy()
        return found

    def add(self, rows: pa.RecordBatch, code: Ints) -> None:
        """Let rows wait, in the order of the stream. code: (N,) of their series."""
        if self._pieces:
            rows = rows.cast(self._pieces[0][0].schema)
        if len(code):
            self._pieces.append((rows, code))
        more = np.zeros(max(int(code.max(initial=-1)) + 1 - len(self.taken), 0), np.int64)
        self.taken, self._count = np.concatenate([self.taken, more]), np.concatenate([self._count, more])
        self._count += np.bincount(code, minlength=len(self._count))

    def full(self, schedule: Schedule, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """The micro-batches that are full, one series after another, while there are any.

        Args:
            schedule: of the micro-batches of a series.
            most: rows that come at once, beside those of the first series.

        Yields:
            rows, and the code of each.
        """
        while True:
            room = schedule.rooms(self.taken)
            ready = np.flatnonzero(self._count >= room)
            if not len(ready):
                return
            yield from self._parts(np.where(self._count >= room, room, 0), most)

    def rest(self, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """All rows that wait, one series after another; `most`: as of `full`."""
        if self._pieces:
            yield from self._parts(self._count, most)

    def _parts(self, wanted: Ints, most: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        """The first `wanted` (S,) rows of each series; the rows of some series at a time."""
        rows, code = self._leave(wanted)
        ready, first = np.flatnonzero(wanted), 0
        ends = wanted[ready].cumsum()
        while first < len(ready):
            start = int(ends[first] - wanted[ready[first]])
            last = max(first + 1, int(np.searchsorted(ends, start + most, "right")))
            stop, own = int(ends[last - 1]), ready[first:last]
            self.taken[own] += wanted[own]
            first = last
            yield rows.slice(start, stop - start), code[start:stop]

    def rows(self) -> tuple[pa.RecordBatch | None, Ints]:
        """All rows that wait, in the order of the stream, None where none does; and the codes of their series."""
        return self._whole() if self._pieces else (None, np.zeros(0, np.int64))

    def _whole(self) -> tuple[pa.RecordBatch, Ints]:
        rows, code = zip(*self._pieces, strict=True)
        return together(rows), np.concatenate(code)

    def _leave(self, wanted: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The first `wanted` (S,) rows of each series, one series after another."""
        rows, code = self._whole()
        few = len(wanted) <= np.iinfo(np.uint16).max
        order = np.argsort(code.astype(np.uint16) if few else code, kind="stable")  # of 16 bits in linear time
        of = code[order]
        leaves = np.arange(len(of)) - (self._count.cumsum() - self._count)[of] < wanted[of]
        stays = np.sort(order[~leaves])
        self._pieces = [(rows.take(stays), code[stays])] if len(stays) else []
        self._count = self._count - wanted
        return rows.take(order[leaves]), of[leaves]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        rows, code = self.rows()
        own = {"code": torch.from_numpy(code.copy()), "taken": torch.from_numpy(self.taken.copy())}
        return own | Tail(rows).state()[0], {}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tail = Tail()
        tail.restore(tensors, rest)
        code, self.taken = (tensors[name].numpy().copy() for name in ("code", "taken"))
        self._pieces = [] if tail.rows is None else [(tail.rows, code)]
        self._count = np.bincount(code, minlength=len(self.taken))
