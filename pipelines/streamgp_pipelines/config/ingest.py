"""The settings of `streamgp ingest`, `compact` and `vacuum`; `streamgp_pipelines.config` has those of every command."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from streamgp_data.presence import check_checkpoint, check_sources, check_table
from streamgp_pipelines.config.settings import (
    Ahead,
    Bytes,
    Checkpoint,
    File,
    Flag,
    HelpPanel,
    Names,
    Seconds,
    Settings,
    TableUri,
)

Signals = Annotated[
    Names,
    Flag(HelpPanel.RECORDINGS),
    Field(
        description="Signals of a recording, or columns of a file beside its time and series, that are taken, such as "
        "'imu.*,speed'; '*' keeps the hours of a day as columns, which become rows otherwise; default: all "
        "(streamgp describe FILE)"
    ),
]
Dbc = Annotated[
    File | None,
    Flag(HelpPanel.RECORDINGS),
    Field(description="Messages and signals of a CAN log, such as cars.dbc"),
]
Salvage = Annotated[
    bool, Flag(HelpPanel.RECORDINGS), Field(description="Of a damaged recording, take what comes before the damage")
]
Sheet = Annotated[
    str | None,
    Flag(HelpPanel.TEXT, "NAME"),
    Field(description="Sheet of an Excel workbook; default: the only one with rows"),
]
HeaderRow = Annotated[
    int | None,
    Flag(HelpPanel.TEXT, "ROW"),
    Field(
        ge=1,
        description="Row of the column names in a CSV or a workbook, from 1: what is above it is skipped; default: the "
        "first that is not empty",
    ),
]
Columns = Annotated[
    Names,
    Flag(HelpPanel.TEXT),
    Field(
        description="Columns of a CSV without a header, from left to right, also of messages in CSV; default: the "
        "first line names them"
    ),
]
NoHeader = Annotated[
    bool,
    Flag(HelpPanel.TEXT),
    Field(description="A CSV without a header: its columns are column_1, column_2, ... unless --columns names them"),
]
Format = Annotated[
    str | None,
    Flag(HelpPanel.TEXT, "FORMAT"),
    Field(
        description="csv, jsonl, parquet, hdf5, mcap, can ...; default: by the suffix. Of messages json, csv, arrow, "
        "msgpack, avro or protobuf; default: json"
    ),
]
Follow = Annotated[bool, Field(description="Wait for new rows until interrupted")]


def _address(value: str) -> str:
    """HOST:PORT or PORT.

    Raises:
        ValueError: it is neither.
    """
    port = value.rpartition(":")[2]
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError("it is HOST:PORT, such as 127.0.0.1:9108, or a port of this machine")
    return value


MetricsAt = Annotated[
    Annotated[str, AfterValidator(_address)] | None,
    Field(
        description="Answer Prometheus at http://HOST:PORT/metrics while rows are followed; a port alone is that of "
        "127.0.0.1; default: no"
    ),
]


class MessageSettings(Settings):
    """How messages are read, of every command that takes them."""

    unit: Annotated[Names, Flag(HelpPanel.MESSAGES, "COL=UNIT")] = Field(
        (),
        description="Unit of the numbers of a column that do not say theirs, such as power=kW, where the table's have "
        "one; default: none",
    )

    columns: Annotated[Names, Flag(HelpPanel.MESSAGES)] = Field(
        (), description="Columns of messages in CSV without a header; default: the first line of each"
    )
    topic: Annotated[str | None, Flag(HelpPanel.MESSAGES, "COL")] = Field(
        None, description="Column for the topic of a message, which --series can name; default: none"
    )
    message_schema: Annotated[File | None, Flag(HelpPanel.MESSAGES, name="--schema")] = Field(
        None, description="Schema of --format avro (JSON) or protobuf (a descriptor set of protoc); default: none"
    )
    message: Annotated[str | None, Flag(HelpPanel.MESSAGES, "NAME")] = Field(
        None, description="Type of a message of --format protobuf, such as plant.Meter; default: the only one"
    )
    linger: Annotated[float, Flag(HelpPanel.MESSAGES, "SECONDS")] = Field(
        0.2, ge=0, le=60, description="How long a message may wait for others, which are committed with it"
    )


class FromBroker(MessageSettings):
    """Messages into the table that a command learns."""

    source: Annotated[str | None, Flag(HelpPanel.MESSAGES, "URL")] = Field(
        None,
        description="Take the messages of a broker into the table as streamgp ingest does, and learn them; "
        "default: the table alone",
    )
    format: Annotated[str | None, Flag(HelpPanel.MESSAGES, "FORMAT")] = Field(
        None, description="Of messages: json, csv, arrow, msgpack, avro or protobuf; default: json"
    )
    max_ahead: Annotated[Ahead | None, Flag(HelpPanel.MESSAGES)] = Field(
        None,
        description="How far the time of a message may be ahead of now and of the table, such as 1d, or none: any; "
        "rows further ahead go to the quarantine; default: 1d on a clock with dates, none with --known",
    )

    def intake(self, table: str, follow: bool) -> IngestConfig | None:
        """The settings of the `streamgp ingest` that --source stands for; None without."""
        if self.source is None:
            return None
        given = {name: getattr(self, name) for name in FromBroker.model_fields if name in self.model_fields_set}
        if getattr(self, "known", ()):  # whose rows come ahead
            given = {"max_ahead": math.inf} | given
        return IngestConfig.read(
            {
                **given,
                "source": (self.source,),
                "table": table,
                "follow": follow,
                "durable": getattr(self, "durable", False),
            }
        )


class IngestConfig(MessageSettings):
    """`streamgp ingest`."""

    source: Annotated[tuple[str, ...], Flag(argument=True, metavar="FILE|URL")] = Field(
        description="Files, directories, globs, - for standard input, or the URL of a broker"
    )
    table: Annotated[TableUri, Flag(HelpPanel.TABLE, first=True)] = Field(
        description="Directory of the table; made when missing"
    )
    time: Annotated[str | None, Flag(HelpPanel.TABLE, "COL|row", first=True)] = Field(
        None,
        description="Time column, or row for rows without an order; Date,Time for a date and a time of day, or the "
        "number of a period, in two columns; default: ds, or the only time column; with columns of hours, "
        "that of the day",
    )
    series: Annotated[str | None, Flag(HelpPanel.TABLE, "COL", first=True)] = Field(
        None, description="Column that names the series; default: unique_id, else a single series"
    )
    unit: Annotated[Names, Flag(HelpPanel.TABLE, "COL=UNIT")] = Field(
        (),
        description="Unit of a column whose numbers do not say theirs, such as power=kW; of a new table the one that "
        "the column has; default: as in the header, or after the numbers",
    )
    melt: Annotated[Names, Flag(HelpPanel.TABLE, first=True)] = Field(
        (),
        description="Columns that are a series each, such as 'zone_*': the table has their names in the column of "
        "--series and their values in y; default: none",
    )
    time_format: Annotated[str | None, Flag(HelpPanel.TABLE, "FORMAT", first=True)] = Field(
        None,
        description="iso, epoch-s, -ms, -us, -ns, elapsed-s ..., step, excel (days of a workbook), or such as "
        "'%d.%m.%Y %H:%M'; default: detected",
    )
    timezone: Annotated[str | None, Flag(HelpPanel.TABLE, "ZONE", first=True)] = Field(
        None,
        description="Time zone of times without an offset: an IANA name or +10:00; default: none. A repeated hour is "
        "first the earlier instant, then the later one; a skipped hour goes to the quarantine",
    )
    every: Annotated[str | None, Flag(HelpPanel.TABLE, "INTERVAL", first=True)] = Field(
        None, description="Interval between rows, such as 30m; never resamples; default: none"
    )
    tolerance: Annotated[str | None, Flag(HelpPanel.TABLE, "INTERVAL")] = Field(
        None,
        description="For a clock that jitters or drifts: a row this far from the nearest tick is on the grid, at most "
        "half an interval; default: intervals are counted from the first row",
    )
    lateness: Annotated[str | None, Flag(HelpPanel.TABLE, "INTERVAL")] = Field(
        None,
        description="How late rows may come: a row is learned, in the order of times, once there is one that is newer "
        "by more than this; a series that is later still is ordered by its own rows; given with the first rows; "
        "default: rows are learned in the order in which they come",
    )
    duplicates: Annotated[Literal["first", "last", "mean", "quarantine"] | None, Flag(HelpPanel.TABLE)] = Field(
        None,
        description="What is read of rows with one series and time but other values: first (the others go to the "
        "quarantine), or, with all kept, last, mean, or quarantine (a row without values); given with the first rows; "
        "default: first",
    )
    max_ahead: Annotated[Ahead | None, Flag(HelpPanel.TABLE)] = Field(
        None,
        description="How far the time of a row may be ahead of now and of the table, such as 1d, or none: any; rows "
        "further ahead go to the quarantine; default: 1d for messages on a clock with dates, none for files",
    )
    max_series: Annotated[int | None, Flag(HelpPanel.TABLE, "COUNT")] = Field(
        None, ge=1, description="Most series of the table; rows of further ones go to the quarantine; default: any"
    )
    signals: Signals = ()
    clock: Annotated[str | None, Flag(HelpPanel.RECORDINGS, "SIGNAL|INTERVAL")] = Field(
        None,
        description="Signal whose samples are the rows, or the interval between rows, such as 10ms; default: the "
        "signal of most samples",
    )
    join: Annotated[Literal["last", "nearest", "interpolate"] | None, Flag(HelpPanel.RECORDINGS)] = Field(
        None,
        description="Value of a signal at a row: its last sample, its nearest, or linear between both neighbours; the "
        "last two look ahead; default: last",
    )
    max_age: Annotated[str | None, Flag(HelpPanel.RECORDINGS, "INTERVAL")] = Field(
        None,
        description="How far a sample may be from the row that it is used for; beyond, the value is missing; "
        "default: any",
    )
    dbc: Dbc = None
    salvage: Salvage = False
    format: Annotated[Format, Flag(first=True)] = None
    sheet: Sheet = None
    header_row: HeaderRow = None
    columns: Columns = ()
    no_header: NoHeader = False
    separator: Annotated[str | None, Flag(HelpPanel.TEXT, "SIGN")] = Field(
        None, description="Field separator; default: detected"
    )
    decimal: Annotated[str | None, Flag(HelpPanel.TEXT, ".|,")] = Field(
        None,
        pattern=r"^[.,]$",
        description="Decimal sign; the other one then groups thousands; default: detected where cells are clear",
    )
    thousands: Annotated[str | None, Flag(HelpPanel.TEXT, "SIGN")] = Field(
        None, description="Thousands separator; default: detected where cells are like 1,234.5 or 1,234,567"
    )
    encoding: Annotated[str | None, Flag(HelpPanel.TEXT, "NAME")] = Field(
        None, description="Text encoding, such as utf-8 or latin-1; default: detected"
    )
    null: Annotated[tuple[str, ...], Flag(HelpPanel.TEXT, "TEXT")] = Field(
        (), description="Text of a missing value, repeatable; default: empty, NA, N/A, NaN, null, None"
    )
    max_line: Annotated[Bytes, Flag(HelpPanel.TEXT)] = Field(
        16_000_000,
        ge=1024,
        le=1 << 30,
        description="Longest line to read, such as 64MB; a longer one goes to the quarantine, truncated",
    )
    as_name: Annotated[str | None, Flag(HelpPanel.PROCESSING, "NAME", name="--as")] = Field(
        None, description="Identify the source by this name instead of its path"
    )
    final: Annotated[bool, Flag(HelpPanel.PROCESSING)] = Field(
        False,
        description="The files are complete: read a last line without a newline, which may be half a line",
    )
    repair: Annotated[bool, Flag(HelpPanel.PROCESSING)] = Field(
        False, description="If half a line was ingested: replace its row by the whole line"
    )
    sort: Annotated[bool, Flag(HelpPanel.PROCESSING)] = Field(
        False, description="Sort the new rows of a source by time, in memory"
    )
    follow: Annotated[Follow, Flag(HelpPanel.PROCESSING, first=True)] = False
    keep_going: Annotated[bool, Flag(HelpPanel.PROCESSING)] = Field(
        False,
        description="Take a source of which more than half of the rows go to the quarantine, and end with 0 instead of "
        "3; take the new rows of a file that was read with other options before, instead of ending with 4",
    )
    durable: Annotated[bool, Flag(HelpPanel.PROCESSING)] = Field(
        False, description="Have every commit on the disk before it counts: a power cut loses nothing that was reported"
    )
    poll: Annotated[float, Flag(HelpPanel.PROCESSING, "SECONDS")] = Field(
        1.0,
        gt=0,
        description="Seconds between two checks with --follow; without it messages of a broker end when none comes "
        "for as long",
    )
    metrics: Annotated[MetricsAt, Flag(HelpPanel.PROCESSING, "HOST:PORT")] = None
    dry_run: Annotated[bool, Flag(HelpPanel.PROCESSING, first=True)] = Field(
        False, description="Print what would be done, write nothing"
    )

    def check_there(self) -> None:
        """The sources."""
        check_sources(self.source)

    @model_validator(mode="after")
    def _melts_or_repairs(self) -> Self:
        if self.melt and self.repair:
            raise ValueError("--repair replaces one row: it does not go with --melt")
        if self.keep_going and self.follow:
            raise ValueError("--keep-going belongs to files that end: with --follow nothing is stopped")
        return self


class DescribeConfig(Settings):
    """`streamgp describe`: a file, a table or a checkpoint."""

    source: Annotated[Path | None, Flag(argument=True, metavar="FILE")] = Field(
        None, description="File to ingest: its columns or signals, rates, units, first and last times"
    )
    table: TableUri | None = Field(None, description="Table that ingest made")
    checkpoint: Checkpoint | None = Field(None, description="Checkpoint of a training run")
    strict: bool = Field(
        False, description="Fail if the newest checkpoint is damaged, instead of showing the one before"
    )
    signals: Signals = ()
    dbc: Dbc = None
    salvage: Salvage = False
    time: Annotated[str | None, Flag(HelpPanel.RECORDINGS, "NAME")] = Field(
        None, description="Vector of times, where it cannot be known, or Date,Time of two columns; default: by its name"
    )
    time_format: Annotated[str | None, Flag(HelpPanel.RECORDINGS, "FORMAT")] = Field(
        None, description="What its numbers count: epoch-s, elapsed-ms ...; default: by unit and size"
    )
    format: Annotated[Format, Flag(first=True)] = None
    sheet: Sheet = None
    header_row: HeaderRow = None
    columns: Columns = ()
    no_header: NoHeader = False

    def check_there(self) -> None:
        """The table or the checkpoint; a file is opened soon enough."""
        if self.table is not None:
            check_table(self.table)
        if self.checkpoint is not None:
            check_checkpoint(self.checkpoint)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.source, self.table, self.checkpoint)) != 1:
            raise ValueError("give FILE, --table or --checkpoint, one of them")
        return self


class CompactConfig(Settings):
    """`streamgp compact`."""

    table: Annotated[TableUri, Flag(argument=True, metavar="TABLE")] = Field(description="Table that ingest made")
    dry_run: bool = Field(False, description="Print what would be merged, write nothing")


class VacuumConfig(Settings):
    """`streamgp vacuum`."""

    table: Annotated[TableUri, Flag(argument=True, metavar="TABLE")] = Field(description="Table that ingest made")
    keep: Seconds = Field(
        3600.0,
        allow_inf_nan=False,
        description="How long files stay that are not needed any more, such as 7d; at least 10m, as a commit that is "
        "under way may need them",
    )
    dry_run: bool = Field(False, description="Print what would be deleted, delete nothing")

    @field_validator("keep")
    @classmethod
    def _long_enough(cls, keep: float) -> float:
        if keep < 600:
            raise ValueError("give at least 10m; a number without a unit is seconds")
        return keep
