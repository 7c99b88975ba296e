"""One chunk of a source: its rows that the table takes, and those that go to the quarantine, with the reason."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgp.windows.rows import YEARS
from streamgp_data.admission import Admission
from streamgp_data.event_time import NEVER
from streamgp_data.instants import ELAPSED
from streamgp_data.quarantine import QUARANTINE
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import FAULT, LINE, TEXT, no_unit, said
from streamgp_data.reading.units import NO_UNITS, UnitConversion, times_power
from streamgp_data.swapped import read_as, swapped
from streamgp_data.table import TableMeta
from streamgp_data.times import Clock, TimeReader, Times

Faults = dict[int, tuple[str, str, str]]
"""Row -> (reason, column, detail)."""


class PreparedChunk(NamedTuple):
    """A chunk before the table is asked: its rows as read, the table's columns of them, the faults that stand
    whatever the table holds, and the position after it."""

    rows: pa.RecordBatch
    table: pa.Table
    faults: Faults
    after: Position

    @property
    def good(self) -> NDArray[np.bool_]:
        """(N,) the rows without a fault."""
        good = np.ones(self.rows.num_rows, bool)
        good[list(self.faults)] = False
        return good


@dataclass(frozen=True)
class Sorted:
    """accepted, conflicts: the table's columns; quarantined: QUARANTINE; reasons: how many by reason; revises, late:
    (N,) of those accepted, as those of `Verdict`; conflicts: versions too; None where there are none, or they were not
    kept."""

    accepted: pa.Table
    quarantined: pa.Table
    reasons: Counter[str]
    revises: NDArray[np.int64]
    late: NDArray[np.bool_]
    conflicts: pa.Table | None = None

    @property
    def versions(self) -> int:
        """Accepted rows that are another version of a row."""
        return int((self.revises >= 0).sum())


def put_future_aside(
    part: PreparedChunk, meta: TableMeta, newest: int, ahead: float, named: float | None = None
) -> None:
    """Mark rows of the far future as faulty: one of 2099 would make all later rows of its series late.

    The time counts from now, or from the newest row of a table that is ahead of now, as simulated streams are; a naive
    clock may be ahead as anywhere on Earth. Time that has passed since a start counts from the newest row of the table,
    if it has one. Clocks that count rows have no limit.

    Args:
        part: the rows.
        meta: of the table.
        newest: its last time, μs.
        ahead: seconds that the time of a row may be ahead.
        named: seconds that the fault of a row names in their place.
    """
    if meta.time is None or not meta.clock or (meta.time_format in ELAPSED and newest == NEVER):
        return
    column = part.table.column(meta.time)
    now = -math.inf if meta.time_format in ELAPSED else time.time() + (0 if column.type.tz else 14 * 3600)
    latest, said = max(now * 1e6, float(newest)) + ahead * 1e6, ahead if named is None else named
    for row in np.flatnonzero(column.cast(pa.int64()).to_numpy() > latest).tolist():
        found = f"{part.rows.column(meta.time)[row]} is more than {said:g} s ahead (--max-ahead)"
        part.faults.setdefault(row, ("future", meta.time, found))


def put_surplus_aside(parts: Sequence[PreparedChunk], series: str | None, known: set[Any], most: int) -> None:
    """Mark rows of new series beyond the `most` first ones as faulty; `known` are those that have rows."""
    if series is None:
        return
    allowed = set(known)
    for part in parts:
        column = part.table.column(series).combine_chunks()
        good = part.good
        strange = []
        for name in column.filter(pa.array(good)).unique().to_pylist():
            if name not in allowed and len(allowed) >= most:
                strange.append(name)
            else:
                allowed.add(name)
        if strange:
            fault = ("too many series", series, f"the table has {len(allowed):,} series (--max-series)")
            for row in _where(pc.is_in(column, value_set=pa.array(strange, column.type)).to_numpy(False)):
                part.faults.setdefault(row, fault)


class Sieve:
    """Divides chunks between table and quarantine.

    Args:
        schema: the table's columns. time, series: their names. source: the source's name.
        form: of times that are text of a format.
    """

    def __init__(
        self, schema: pa.Schema, time: str | None, series: str | None, source: str, form: str | None = None
    ) -> None:
        self._form = form
        self._schema = schema
        self._time = time
        self._series = series
        self._source = source

    def _typed(self, rows: pa.RecordBatch, times: Times | None, powers: Mapping[str, int]) -> pa.Table:
        """The table's columns of a chunk, its time column as instants or steps, its numbers in the table's units; those
        that it has not are empty."""
        table = pa.Table.from_batches([rows])
        for field in self._schema:
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        table = table.select(self._schema.names)
        for name, between in powers.items():
            numbers = times_power(table.column(name).cast(pa.float64()).to_numpy(), between)
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array(numbers, pa.float64(), from_pandas=True))
        if times is not None:
            name = self._time or ""
            table = table.set_column(table.schema.get_field_index(name), name, times.values)
        return table.cast(self._schema)

    def _faults(self, rows: pa.RecordBatch, times: Times | None) -> Faults:
        """Row -> (reason, column, detail) of the rows that cannot be taken whatever the table holds."""
        found: Faults = {}
        if self._series is not None:
            for i in _where(_empty(rows.column(self._series))):
                found[i] = ("no series", self._series, "")
        if times is not None:
            assert self._time is not None
            cells = rows.column(self._time)
            for i in _where(times.values.is_null().to_numpy(zero_copy_only=False)):
                found[i] = ("no time", self._time, "")
            bad = _where(times.bad)
            wrong = cells.take(pa.array(bad, pa.int64()))
            for i, why in zip(bad, _no_time(wrong, times.values.type, self._form), strict=True):
                found[i] = ("unparsable", self._time, f"{said(cells[i])[:80]!r} {why}")
            for i in _where(times.beyond):
                what = said(cells[i])[:80]
                found[i] = ("out of range", self._time, f"{what} {_NO_PERIOD if ' period ' in what else _FAR_NUMBER}")
            for i in _where(_out_of_range(times.values)):
                found[i] = (
                    "out of range",
                    self._time,
                    f"{said(cells[i])} is not in the years {YEARS[0]} to {YEARS[1]}",
                )
            for i in _where(times.skipped):
                found[i] = ("skipped hour", self._time, f"the clock was set forward over {said(cells[i])}")
        faults = rows.column(FAULT)
        if faults.null_count < len(faults):
            for i in _where(faults.is_valid().to_numpy(zero_copy_only=False)):
                reason, column, detail = faults[i].as_py().split("|", 2)
                found[i] = (reason, column, detail)
        return found

    def divide(self, part: PreparedChunk, admission: Admission) -> Sorted:
        """Accepted and quarantined rows, against what the table holds now."""
        rows, table, faults = part.rows, part.table, dict(part.faults)
        good = part.good
        places = np.flatnonzero(good)
        candidates = table if good.all() else table.filter(pa.array(good))
        verdict = admission.judge(candidates)
        for i, (reason, detail) in verdict.faults.items():
            faults[int(places[i])] = (reason, self._time or "", detail)
        accepted = verdict.accepted
        differ = verdict.conflict | (accepted & (verdict.revises >= 0))
        conflicts = candidates.filter(pa.array(differ)) if differ.any() else None
        if not accepted.all():
            candidates = candidates.filter(pa.array(accepted))
        reasons = Counter(reason for reason, _, _ in faults.values())
        aside = self.quarantined(rows, faults)
        return Sorted(candidates, aside, reasons, verdict.revises[accepted], verdict.late[accepted], conflicts)

    def prepare(
        self, rows: pa.RecordBatch, times: Times | None, after: Position, units: UnitConversion = NO_UNITS
    ) -> PreparedChunk:
        """A chunk as the table's columns, with the faults of its rows; `units` as those of a `Plan`."""
        faults = self._faults(rows, times)
        for name, unit in units.unknown.items():
            for i in _where(rows.column(name).is_valid().to_numpy(zero_copy_only=False)):
                faults.setdefault(i, no_unit(name, unit))
        return PreparedChunk(rows, self._typed(rows, times, units.powers), faults, after)

    def aside(self, part: PreparedChunk, fault: tuple[str, str, str]) -> pa.Table:
        """Every row of a chunk as quarantined, for one (reason, column, detail)."""
        return self.quarantined(part.rows, dict.fromkeys(range(part.rows.num_rows), fault))

    def quarantined(self, rows: pa.RecordBatch, faults: Faults) -> pa.Table:
        """Rows with these faults as the quarantine holds them."""
        if not faults:
            return QUARANTINE.empty_table()
        order = sorted(faults)
        picked = rows.take(pa.array(order, pa.int64()))
        cells = pl.DataFrame(pl.from_arrow(_writable(picked.drop_columns([LINE, FAULT, TEXT]))))
        texts = pl.Series(pl.from_arrow(picked.column(TEXT))).cast(pl.String)
        written = texts.fill_null(cells.select(pl.struct(pl.all()).struct.json_encode()).to_series())
        reasons, columns, details = (pa.array(part) for part in zip(*(faults[i] for i in order), strict=True))
        sources = pa.repeat(self._source, len(order))
        lines, text = picked.column(LINE), written.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
        return pa.Table.from_arrays([reasons, columns, details, sources, lines, text], schema=QUARANTINE)


def _writable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Times as polars can write them: it knows no zones such as +10:00, and panics far beyond the year 9999."""
    kinds: list[Any] = rows.schema.types
    for at, kind in enumerate(kinds):
        if not pa.types.is_temporal(kind):
            continue
        column, day = rows.column(at), _DAYS.get(getattr(kind, "unit", ""), 1)
        count = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        if (np.abs(count.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)) > _FAR * day).any():
            rows = rows.set_column(at, rows.schema.names[at], count)
        elif pa.types.is_timestamp(kind) and kind.tz:
            rows = rows.set_column(at, rows.schema.names[at], column.cast(pa.timestamp(kind.unit, "UTC")))
    return rows


_FAR_NUMBER = (
    "is no time where the others are: of a clock that was not set, or in another unit (--time-format says which)"
)
_NO_PERIOD = "is none of this day, which has as many as it has time (--timezone says where a clock is changed)"
_DAYS = {unit: 86_400 * scale for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))}
_FAR = 2_900_000
"""Days from 1970 to the year 9909."""


def _empty(column: pa.Array[Any]) -> np.ndarray[Any, Any]:
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type):
        missing = missing | (pl.Series(pl.from_arrow(column)).str.strip_chars() == "").fill_null(False).to_numpy()
    return missing


def _out_of_range(times: pa.Array[Any]) -> np.ndarray[Any, Any]:
    """(N,) instants that training could not count."""
    if not pa.types.is_timestamp(times.type):
        return np.zeros(len(times), bool)
    first, end = (np.datetime64(str(year), "us").astype(np.int64) for year in (YEARS[0], YEARS[1] + 1))
    instants = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return (instants < first) | (instants >= end)


def _no_time(cells: pa.Array[Any], kind: pa.DataType, form: str | None) -> list[str]:
    """Why a table with times of this kind, written in this format, does not take these cells as times."""
    if len(cells) and (turned := swapped(form)) is not None and pa.types.is_string(cells.type):
        also = f"is not a time by {form}, and is one by {turned}"
        return [also if good else "is not a time" for good in read_as(cells, turned)[1]]
    if not len(cells) or not pa.types.is_timestamp(kind) or not pa.types.is_string(cells.type):
        return ["is not a time"] * len(cells)
    other, why = Clock("iso-offset", zone="UTC"), "has an offset from UTC, and the table has no time zone"
    if kind.tz is not None:
        other, why = Clock("iso"), "has no offset from UTC, as others have: --timezone says whose clock it shows"
    return ["is not a time" if bad else why for bad in TimeReader(other).read(cells).bad]


def _where(mask: np.ndarray[Any, Any]) -> list[int]:
    return np.flatnonzero(mask).tolist() if mask.any() else []


def in_time_order(parts: list[PreparedChunk], time: str) -> list[PreparedChunk]:
    """All of a source's rows as one part, in the order of time (rows without a time last)."""
    if not parts:
        return []
    batches = pa.Table.from_batches([part.rows for part in parts]).combine_chunks().to_batches()
    rows = batches[0] if batches else parts[0].rows
    table = pa.concat_tables([part.table for part in parts])
    starts = np.cumsum([0, *(part.rows.num_rows for part in parts)])
    faults = {
        int(start) + i: fault for start, part in zip(starts, parts, strict=False) for i, fault in part.faults.items()
    }
    keyed = pa.table({"time": table.column(time), "row": np.arange(table.num_rows)})
    order = pc.sort_indices(keyed, sort_keys=[("time", "ascending"), ("row", "ascending")])
    places = np.empty(table.num_rows, np.int64)
    places[order.to_numpy()] = np.arange(table.num_rows)
    moved = {int(places[i]): fault for i, fault in faults.items()}
    return [PreparedChunk(rows.take(order), table.take(order), moved, parts[-1].after)]
