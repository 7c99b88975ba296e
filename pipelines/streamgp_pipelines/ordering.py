"""Rows of frames, each once, and with a lateness in the order of their times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from streamgp.base import Json
from streamgp.errors import DataError
from streamgp.windows.calendar import Ints
from streamgp.windows.rows import times
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.batches import together
from streamgp_data.checkpoint import Saved, fitting
from streamgp_data.event_time import NEVER, HeldBack
from streamgp_data.ingestion.repeats import Repeats
from streamgp_data.meaning import TableMeta
from streamgp_data.reading.cells import nothing
from streamgp_data.table import SEQ
from streamgp_data.versions import REVISES, Versions
from streamgp_pipelines.learning.tail import Tail

MOST = 16_384
"""Rows whose series and times are remembered, beside those that wait."""
FEW = 20
"""A frame of fewer rows is taken in any order."""


def behind(rows: pa.Table, meta: TableMeta, newest: Mapping[str, int] | None = None) -> int:
    """How many rows are late: older than one before them of their series by more than the lateness; a time counts once.

    Args:
        rows: in the order in which they came. meta: what their columns mean.
        newest: the newest time of each series before them.

    Example:
        >>> rows = pa.table({"t": [1, 3, 2, 4]})
        >>> behind(rows, TableMeta("t", clock=False)), behind(rows, TableMeta("t", clock=False), {"": 4})
        (1, 3)
    """
    if meta.time is None or not rows.num_rows:
        return 0
    times = rows.column(meta.time).cast(pa.int64())
    before, lateness = newest or {}, meta.lateness or 0
    if len(times) == 1:
        name = "" if meta.series is None else str(rows.column(meta.series)[0].as_py())
        return int(times[0].as_py() + lateness < before.get(name, NEVER))
    series = pa.repeat("", len(times)) if meta.series is None else rows.column(meta.series).cast(pa.string())
    found = pl.DataFrame({"time": pl.Series(times), "series": pl.Series(series)}).unique(maintain_order=True)
    names = found["series"].unique().to_list()
    known = {"series": names, "floor": [before.get(str(name), NEVER) for name in names]}
    floors = pl.DataFrame(known, schema={"series": pl.String, "floor": pl.Int64})
    found = found.join(floors, on="series", how="left", maintain_order="left", nulls_equal=True)
    newer = pl.max_horizontal(pl.col("time").cum_max().over("series"), "floor")
    return int(found.select((pl.col("time") + lateness < newer).sum()).item())


def places(rows: pa.Table, meta: TableMeta) -> Ints:
    """(N,) where each row stands in its stream: its time, ns or steps; without a time, its number in its series.

    Example:
        >>> places(pa.table({"id": ["a", "a", "b"]}), TableMeta(None, "id")).tolist()
        [0, 1, 0]
    """
    if meta.time is not None:
        return times(together(rows.to_batches() or [nothing(rows.schema)]), meta.time)
    if meta.series is None:
        return np.arange(rows.num_rows)
    names = pl.DataFrame({"series": pl.Series(rows.column(meta.series).cast(pa.string()))})
    return names.select(pl.int_range(pl.len()).over("series")).to_series().to_numpy().astype(np.int64)


def in_order(rows: pa.Table, meta: TableMeta) -> pa.Table:
    """The rows in the order of their times, those of one time as they came."""
    order = np.argsort(places(rows, meta), kind="stable")
    return rows if bool((np.diff(order) == 1).all()) else rows.take(order)


class Arrivals:
    """What becomes of the rows of frames before they are learned; Stateful.

    A row with the series, time and values of an earlier one is left out. One with other values is a version of that
    row, and `meta.duplicates` says what is read: of the versions in the first frame, and of those that come while the
    row waits. So it is in a table that is trained after every frame.

    Args:
        meta: what the columns mean.
    """

    def __init__(self, meta: TableMeta) -> None:
        self.meta, self.repeats = meta, Repeats(meta, MOST)
        self.waiting: HeldBack | None = None
        if meta.lateness is not None:
            assert meta.time is not None
            self.waiting = HeldBack(meta.time, meta.series, meta.lateness)
        self.unread = 0
        """Rows with other values of which nothing is read: their row had been learned, or the first is read."""
        self.late = 0
        """Rows that came too late, of this process."""
        self._versions: pa.Table | None = None
        self._known = -1  # rows of the first frame

    @classmethod
    def of(cls, saved: Saved, spec: WindowSpec) -> Self:
        """Those of a checkpoint; of one that was trained on a table, new ones."""
        about: Any = saved.rest.get("arrivals")
        if about is None:
            return cls(TableMeta(spec.time, spec.series, clock=False))
        with fitting(f"the order of rows in {saved.path}"):
            lateness, policy = about["lateness"], about["duplicates"]
            found = cls(TableMeta(spec.time, spec.series, False, lateness_ns=lateness, duplicates=policy))
        saved.restore({"arrivals": found})
        return found

    def take(self, rows: pa.Table, ordered: bool = False) -> pa.RecordBatch:
        """Rows that come; returns, with their places, those that are no other row again.

        Args:
            rows: they.
            ordered: whether rows that are late are not learned.

        Raises:
            DataError: that would be most of them, so that they are in no order.
        """
        late = behind(rows, self.meta) if rows.num_rows >= FEW and ordered else 0
        if late > rows.num_rows / 2:
            more = (
                ", name the column of their series, series=, if there are several" if self.meta.series is None else ""
            )
            raise DataError(
                f"{late} of {rows.num_rows} rows of the data frame are late: each is after a newer one of its series",
                hint=f"sort the frame by {self.meta.time!r}{more}, or give lateness= if rows come late",
            )
        newest = dict(self.repeats.newest)
        found = self._once(rows)
        self.late += behind(pa.Table.from_batches([found]), self.meta, newest)
        return found

    def _once(self, rows: pa.Table) -> pa.RecordBatch:
        """Rows, with their places, that are no other row again."""
        start, waits, beginning = self.repeats.count, self._waits(), self._known < 0 < rows.num_rows
        again = self.repeats.look(rows, int(waits.min()) if len(waits) else None)
        if beginning:
            self._known = self.repeats.count
        numbers = pa.array(np.arange(start, self.repeats.count), pa.int64())
        whole = rows.add_column(0, SEQ, numbers).combine_chunks()
        if (again.first < 0).all():
            return together(whole.to_batches() or [nothing(whole.schema)])
        read = again.other & ((again.first >= start) | np.isin(again.first, waits))
        if self.meta.duplicates == "first" or not (beginning or self.waiting is not None):
            read[:] = False
        self.unread += int((again.other & ~read).sum())
        if read.any():
            versions = whole.append_column(REVISES, pa.array(again.first, pa.int64())).filter(pa.array(read))
            self._versions = versions if self._versions is None else pa.concat_tables([self._versions, versions])
        return together(whole.filter(pa.array(again.first < 0)).to_batches() or [nothing(whole.schema)])

    def resolved(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the first frame as they are read with all of it known."""
        found = self._resolving()
        return rows if found is None else found.resolve(rows, np.zeros(rows.num_rows, np.int64))

    def release(self, rows: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch | None:
        """Rows that `take` gave; returns those to learn now, with these columns and their places."""
        rows = rows.select([SEQ, *names])
        if self.waiting is None:
            found, self._versions = self.resolved(rows), None
            return found if found.num_rows else None
        self.waiting.versions = self._resolving()
        out = self.waiting.push(rows)
        if self._versions is not None:
            self._versions = self._versions.filter(pc.is_in(self._versions[REVISES], value_set=pa.array(self._waits())))
        return out

    def left_out(self, windows: Windows) -> list[str]:
        """Warnings of rows that were not learned. The windows count those that they have read."""
        late = windows.late if windows.spec.late == "use" else max(windows.late, self.late)
        if windows.spec.late == "use" and windows.spec.lags:
            why = "each was late, and its place was taken, before the first row of its series or no longer kept"
        elif self.meta.lateness is None:
            why = "each was late, or in the same step as an earlier row of its series; sort the frame by time, or give "
            why += "lateness= if rows come late, tolerance= if the clock jitters"
        else:
            why = "each came later than the lateness, or is in the same step as an earlier row of its series; give a "
            why += "longer lateness= if rows come later, tolerance= if the clock jitters"
        found = [f"{late} rows were not learned: {why}"] if late else []
        if self.unread:
            what = "rows with the time of an earlier row of their series and other values were not read"
            if self.meta.duplicates == "first":
                why = 'the first is; if they correct it, or have a target that comes later: duplicates="last", and '
                why += "lateness= as long as they take"
            elif self.meta.lateness is None:
                why = "their row had been learned; give lateness=, as long as they take, and it waits for them"
            else:
                why = "their row had been learned; give a longer lateness="
            found.append(f"{self.unread} {what}: {why}")
        return found

    def held(self) -> pa.RecordBatch | None:
        """The rows that wait, in the order of their times."""
        if self.waiting is None:
            return None
        self.waiting.versions = self._resolving()
        return self.waiting.ordered()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        waiting, repeats = self.waiting, self.repeats
        tensors = {} if waiting is None else _packed("waiting", waiting.rows)
        for name, rows in (("seen", repeats.seen().to_arrow()), ("versions", self._versions)):
            tensors |= _packed(name, together(rows.to_batches()) if rows is not None and rows.num_rows else None)
        rest: dict[str, Json] = {"lateness": self.meta.lateness, "duplicates": self.meta.duplicates}
        rest |= {"newest": dict(repeats.newest)}
        rest |= {"count": repeats.count, "known": self._known, "unread": self.unread, "digests": pl.__version__}
        if waiting is not None:
            rest |= {"time": waiting.newest, "before": waiting.before.tolist(), "own": waiting.own.tolist()}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        about: Any = rest
        waiting, versions, seen = (_unpacked(name, tensors) for name in ("waiting", "versions", "seen"))
        self._versions = None if versions is None else pa.Table.from_batches([versions])
        self._known, self.unread, self.repeats.count = about["known"], about["unread"], about["count"]
        if seen is not None and about["digests"] == pl.__version__:
            self.repeats.remember(pl.DataFrame(pl.from_arrow(seen)), about["newest"])
        if self.waiting is not None:
            self.waiting.rows, self.waiting.newest = waiting, about["time"]
            self.waiting.before, self.waiting.own = np.array(about["before"], np.int64), np.array(about["own"], bool)

    def _waits(self) -> Ints:
        return np.empty(0, np.int64) if self.waiting is None else self.waiting.seq

    def _resolving(self) -> Versions | None:
        if self._versions is None or not self._versions.num_rows:
            return None
        return Versions(self._versions, self.meta.duplicates, self.meta.keys, self._known)


def _packed(name: str, rows: pa.RecordBatch | None) -> dict[str, Tensor]:
    return {f"{name}_{key}": tensor for key, tensor in Tail(rows).state()[0].items()}


def _unpacked(name: str, tensors: dict[str, Tensor]) -> pa.RecordBatch | None:
    tail = Tail()
    tail.restore({key.removeprefix(f"{name}_"): value for key, value in tensors.items() if key.startswith(name)}, {})
    return tail.rows
