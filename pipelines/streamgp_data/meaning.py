"""What the columns of a table mean, and how its log keeps that."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streamgp.errors import TableError
from streamgp_data import delta
from streamgp_data.versions import Policy

FORMAT = 1


@dataclass(frozen=True)
class TableMeta:
    """What the columns of a table mean.

    Attributes:
        time: the time column; None where rows are steps and there is no clock.
        series: the column that says which series a row belongs to, or None.
        clock: True where `time` holds instants (timestamp, microseconds), False where it holds int64 steps.
        zone: the zone of the clock: an IANA name, "+10:00", or None for a naive local clock.
        local: whether times without an offset show the clock of the zone, because a time zone was given; where it is
            False, the others had offsets, and those without one are refused. None where it is not known.
        every_ns: the declared interval in nanoseconds (in steps where `time` holds steps), or None.
        time_format: how the source wrote its times: iso, epoch-ms, elapsed-s, step, a strptime format; None where it
            is not known. time_whole: whether they were whole numbers.
        tolerance_ns: how far from a whole number of intervals after the row before a row may be, and still be taken
            as on the grid; None counts intervals from the first row of the series.
        lateness_ns: how long rows are held back so that they can be read in the order of their times (in steps where
            `time` holds steps); None reads them as they arrived.
        duplicates: which of several rows of one series and time with other values is read: first, last, mean, or
            quarantine, which is a row without values. Only in a table of the first are the others not in the table.
    """

    time: str | None = None
    series: str | None = None
    clock: bool = True
    zone: str | None = None
    every_ns: int | None = None
    time_format: str | None = None
    time_whole: bool = True
    tolerance_ns: int | None = None
    lateness_ns: int | None = None
    duplicates: Policy = "first"
    local: bool | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of time and series, where there are such."""
        return tuple(name for name in (self.time, self.series) if name is not None)

    @property
    def clock_of(self) -> str | None:
        """The zone whose clock times without an offset show; None where there is no such."""
        return None if self.local is False else self.zone

    @property
    def lateness(self) -> int | None:
        """The lateness in the unit of the time column's integers."""
        return self.lateness_ns if self.lateness_ns is None or not self.clock else self.lateness_ns // 1000


def description(meta: TableMeta, schema: pa.Schema) -> str:
    """What the log keeps of the meaning of the columns, with a digest: another interval means other steps."""
    return json.dumps({"format": FORMAT, "meta": asdict(meta), "digest": _digest(asdict(meta), schema)})


def _digest(meta: dict[str, Any], schema: pa.Schema) -> str:
    return sha256(json.dumps([meta, schema.names], sort_keys=True).encode()).hexdigest()[:32]


def meaning(log: DeltaTable, path: str) -> TableMeta:
    """What the table's description says of its columns.

    Raises:
        TableError: it is not a table of this program, or of another version, or its description is damaged.
    """
    try:
        about = json.loads(log.metadata().description or "")
        if "digest" in about and about["digest"] != _digest(about["meta"], delta.arrow_schema(log)):
            raise TableError(
                f"table {path} is damaged: the description of its columns in _delta_log has another digest",
                hint="restore the first files of _delta_log from a copy, or ingest the sources into a new table",
            )
        meta, found = TableMeta(**about["meta"]), about["format"]
    except (ValueError, KeyError, TypeError):
        raise TableError(
            f"{path} is a Delta table, but no streamgp table", hint="ingest its Parquet files into a new table"
        ) from None
    if found != FORMAT:
        raise TableError(f"table {path} has format {found}, this program reads {FORMAT}", hint="ingest it again")
    return meta
