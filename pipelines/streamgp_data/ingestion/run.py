"""One run of ingest: reads ahead, checks, commits; every commit moves the rows and the position together.

The order of the writes is what survives a kill: first the quarantine, then table rows and position in one atomic
commit. A kill between the two leaves quarantined rows of a batch that was never committed; the next run checks the
batch again, and the quarantine takes only those that it has not. The same holds for two runs of one source at once:
the table's commit lets one of them through, and the quarantine has the rows of either once.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

import pyarrow as pa

from streamgp.base import Json
from streamgp.errors import DataError, ServiceError, TableError
from streamgp_data.admission import Admission
from streamgp_data.compaction import Compaction
from streamgp_data.delta import Conflict
from streamgp_data.event_time import NEVER
from streamgp_data.ingestion.acceptance import Acceptance
from streamgp_data.ingestion.choosing import as_table, asked_for
from streamgp_data.ingestion.chunk import (
    PreparedChunk,
    Sieve,
    Sorted,
    in_time_order,
    put_future_aside,
    put_surplus_aside,
)
from streamgp_data.ingestion.dry_run import DryRun
from streamgp_data.ingestion.pairing import by_periods, paired
from streamgp_data.ingestion.pieces import Pieces
from streamgp_data.ingestion.plan import ROW, Plan, interval, plan, time_name
from streamgp_data.ingestion.prefetch import prefetch
from streamgp_data.ingestion.report import (
    IngestProgress,
    Progress,
    SourceReport,
    doubts,
    innermost,
    known_format,
    readings,
    summary,
    understood,
)
from streamgp_data.ingestion.reread import ReadOptions, other_line
from streamgp_data.ingestion.units import SaidUnits
from streamgp_data.quarantine import SUPERSEDED, Quarantine
from streamgp_data.reading.bytes import Position, name_of
from streamgp_data.reading.cells import LINE
from streamgp_data.reading.day_rows import DayRows
from streamgp_data.reading.files import FileSource, open_source
from streamgp_data.reading.lines import TextLines
from streamgp_data.reading.melted import Melted
from streamgp_data.reading.records import Stopped
from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.tree import SECONDS
from streamgp_data.retry import Retry, Stored
from streamgp_data.swapped import SwappedDays
from streamgp_data.table import Table, TableMeta
from streamgp_data.times import TimeReader

if TYPE_CHECKING:
    from streamgp_pipelines.config import IngestConfig


T = TypeVar("T")


class Moved(Exception):
    """Another process has taken rows of the same source."""


class IngestionRun:
    """The state of one run over all its sources. Use as a context, `open` it, then ask for the `summary`.

    Args:
        config, progress, say: as of `ingest`.
        health: says whether the store is away.
    """

    def __init__(
        self, config: IngestConfig, progress: Progress, health: Stored, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._config = config
        self._progress = progress
        self._ending = Event()
        self._retry = Retry(str(config.table), say, self._ending, health)
        self._began = time.monotonic()
        self._sources: dict[str, SourceReport] = {}
        self._dry: DryRun | None = None
        self._looked: dict[str, tuple[int, int]] = {}
        self._clocks: dict[str, tuple[TimeReader | None, int]] = {}
        self._table: Table | None = None
        self._stopped: dict[str, Stopped | None] = {}
        self._anonymous = f"stdin-{uuid4()}"
        self._writer = ThreadPoolExecutor(1, "commit")
        self._pending: tuple[PreparedChunk, Sorted, Position, Future[None]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._writer.shutdown(wait=True)

    def open(self) -> None:
        """Look at the table, where there is one."""

        def look() -> None:
            if Table.exists(self._config.table):
                self._adopt(Table.open(self._config.table, self._config.durable))

        self._retried(look)

    def _retried(self, work: Callable[[], T]) -> T:
        """Wait for the store where the sources are followed."""
        return self._retry.wait_for(work) if self._config.follow else work()

    def take(self, uri: str) -> None:
        """Take what is new in one source."""
        name = self._config.as_name or (self._anonymous if uri == "-" else name_of(uri))
        report = self._sources.setdefault(name, SourceReport(name))
        look = (0, 0) if uri == "-" else _look(uri)
        if self._looked.get(name) == look:
            return
        while True:
            try:
                self._attempt(uri, report)
                break
            except Moved:
                if uri == "-":
                    raise DataError(
                        f"standard input: another process ingests under the name {name} too", hint="choose another --as"
                    ) from None
        self._looked[name] = look

    def summary(self) -> dict[str, Json]:
        """Totals of the run; see `ingest`.

        Raises:
            DataError: there was nothing to make a table of.
        """
        refused = any(report.refusal is not None for report in self._sources.values())
        if self._table is None and not (self._config.dry_run or self._config.follow or refused):
            waiting = any(report.waiting for report in self._sources.values())
            hint = "its last line has no newline: if the file is whole, --final takes it"
            hint = hint if waiting else "a table is made of one row or more: of a CSV a line under its header"
            raise DataError("no source has a row yet", hint=hint)
        return summary(self._config.table, self._table, list(self._sources.values()), self._began, self._config.sort)

    def _adopt(self, table: Table) -> None:
        self._table = table
        self._quarantine = Quarantine(table)
        self._admission = Admission(table)
        self._compaction = Compaction(table)

    def _attempt(self, uri: str, report: SourceReport) -> None:
        """Take a source from where it stands."""
        source, config, notes = _laid_out(uri, self._config, self._table)
        if not source.sample.num_rows:
            self._rowless(source, report)
            return
        source, chosen = self._planned(source, config, notes, report)
        self._check_options(source, chosen, report)
        if self._config.dry_run:
            report.state = "dry run"
            self._count(source, chosen, report)
            return
        form = None if chosen.clock is None else chosen.clock.format
        sieve = Sieve(chosen.schema, chosen.meta.time, chosen.meta.series, report.name, form)
        start = Position() if self._table is None else self._start(self._table, source, chosen, sieve, report)
        source.stopped = self._stopped.get(report.name)
        reader = self._reader(source, chosen, start, report.name)
        pieces = report.pieces = Pieces(source.uri, chosen.meta)
        days = SwappedDays(chosen.meta.time, None if start.bytes else form)
        parts = prefetch(_prepared(source, chosen, reader, sieve, start))
        if not (start.bytes or self._config.keep_going or self._config.follow):
            first = next(parts, None)
            if first is not None and self._refused(uri, first, source, chosen, report):
                return
            parts = chain(() if first is None else (first,), parts)
        table = self._table_for(chosen)
        report.said = SaidUnits(source, chosen.schema, chosen.meta, table)
        parts = days.seen(pieces.seen(parts))
        if self._config.sort and chosen.meta.time is not None:
            parts = iter(in_time_order(list(parts), chosen.meta.time))
        end = self._commit_each(parts, chosen.meta, sieve, report, start)
        self._remember_options(table, report.name)
        report.doubts += [f"{report.name}: {note}" for note in report.pace.notes(table.meta)]
        report.doubts += days.notes(source.uri) + report.said.notes(source.uri) + _left_out(source)
        self._clocks[report.name] = (reader, end.lines)
        self._stopped[report.name] = source.stopped
        report.waiting = source.waiting

    def _planned(
        self, source: FileSource, config: IngestConfig, notes: list[str], report: SourceReport
    ) -> tuple[FileSource, Plan]:
        """The source with the columns of the table, and what becomes of them; the report says how it is read.

        Args:
            source: with rows.
            config: the settings for it.
            notes: what to say of it where it makes the table.
            report: of it.
        """
        if self._table is not None:
            source, config, notes = as_table(source, config, self._table)
        chosen = plan(source, config, self._table, fill=True)
        if isinstance(file := innermost(source), TextLines):
            file.keys = chosen.meta.keys
        if chosen.empty:
            notes.append(f"{source.uri}: it has no column {', '.join(map(repr, chosen.empty))}: empty in its rows")
        report.reads, report.doubts = understood(source, chosen), doubts(source, chosen) + notes
        if self._table is None and self._config.time_format is None:
            report.doubts += readings(source, chosen, config.time is not None)
        elif config.time_format is None:
            report.doubts += known_format(source, chosen)
        return source, chosen

    def _table_for(self, chosen: Plan) -> Table:
        """The table, made where there is none, with the interval that was declared."""
        table = self._table or self._create(chosen)
        if chosen.meta != table.meta and chosen.meta.every_ns is not None:
            every, tolerance = chosen.meta.every_ns, chosen.meta.tolerance_ns
            self._retried(lambda: table.declare(every, tolerance))
            self._admission = self._retried(lambda: Admission(table))
        return table

    def _start(self, table: Table, source: FileSource, chosen: Plan, sieve: Sieve, report: SourceReport) -> Position:
        """Where the rows begin that the table has not."""
        start = self._retried(lambda: self._position(table, report.name))
        if self._config.repair and (before := self._repair(source, chosen, sieve, report, start)) is not None:
            start = before
            self._clocks.pop(report.name, None)
            self._stopped.pop(report.name, None)
        return start

    def _reader(self, source: FileSource, chosen: Plan, start: Position, name: str) -> TimeReader | None:
        """The source's clock, having seen all rows before `start`: that of the last look, where it stands there."""
        reader, lines = self._clocks.get(name, (None, -1))
        if reader is None or lines != start.lines or reader.clock != chosen.clock:
            reader = _wound_up(source, chosen, start)
        return reader

    def _commit_each(
        self, parts: Iterator[PreparedChunk], meta: TableMeta, sieve: Sieve, report: SourceReport, start: Position
    ) -> Position:
        """Commit chunks, each while the next is read; returns the position after the last."""
        empty: PreparedChunk | None = None
        for part in parts:
            empty = None if part.rows.num_rows else part
            if empty is None:
                self._settle(sieve, report)
                if self._config.max_ahead is not None:
                    put_future_aside(part, meta, self._admission.newest, self._config.max_ahead)
                self._submit(sieve, report, part, start)
                start = part.after
        self._settle(sieve, report)
        if empty is not None:  # blank lines at the end: one commit, however many there are
            self._submit(sieve, report, empty, start)
            start = empty.after
            self._settle(sieve, report)
        return start

    def _check_options(self, source: FileSource, chosen: Plan, report: SourceReport) -> None:
        """See that what was read of a source before would be the same rows with the options of this run.

        Raises:
            TableError: it would not, and --keep-going was not given.
        """
        table, config = self._table, self._config
        flags = [] if table is None else self._options(report.name).changed(table)
        start = Position() if table is None else self._position(table, report.name)
        if table is None or not flags or not start.bytes:
            return
        said = f"{report.name} was read before with another {' and '.join(flags)}, or without"
        if source.uri == "-":
            report.doubts.append(f"{said}: what was read then stays as it is")
            return
        next(source.read(start.offset()), None)  # says that the file was changed
        line = None
        if table.meta.time is not None:
            sieve = Sieve(chosen.schema, chosen.meta.time, chosen.meta.series, report.name)
            parts = _prepared(source, chosen, _wound_up(source, chosen, Position()), sieve, Position())
            line = other_line(parts, start.lines, report.name, table, config.max_ahead, config.max_series)
            if line is None:
                return
        found = f"{said}; what the table has of it stays as it was read"
        found += "" if line is None else f", though line {line} would be another row now"
        if not config.keep_going:
            raise TableError(
                found,
                hint="if it was read wrongly, ingest the sources into a new table; if these are other rows of it, add "
                "them with --as NAME; --keep-going takes its new rows alone",
            )
        report.doubts.append(found)

    def _options(self, name: str) -> ReadOptions:
        return ReadOptions(name, self._config)

    def _remember_options(self, table: Table, name: str) -> None:
        """Have the table name the options of this run, where no rows of the source were taken with them.

        Raises:
            Moved: another writer has committed.
        """
        news = self._options(name).news(table)
        if not news or not self._position(table, name).bytes:
            return
        try:
            self._retried(lambda: table.commit(None, news))
        except Conflict:
            self._retried(partial(self._catch_up, table))
            raise Moved from None

    def _refused(self, uri: str, first: PreparedChunk, source: FileSource, chosen: Plan, report: SourceReport) -> bool:
        """Whether a source is refused that no rows were taken of: its first rows say so, and then all of them; of
        standard input, which cannot be read twice, the first alone. Its report is then that of a dry run, and nothing
        was written."""
        acceptance = self._acceptance(source, chosen)
        acceptance.add(first, self._repeated(first, chosen.meta))
        if acceptance.verdict() is None:
            return False
        counted = SourceReport(report.name, reads=report.reads, doubts=[*report.doubts], state="refused")
        self._dry = None
        if uri == "-":
            self._count(source, chosen, counted, [first])
        else:  # opened again: a thread still reads ahead in the other one
            again, config, notes = _laid_out(uri, self._config, self._table)
            self._count(*self._planned(again, config, notes, counted), counted)
        if counted.refusal is None:
            return False
        self._sources[report.name] = counted
        return True

    def _acceptance(self, source: FileSource, chosen: Plan, begun: bool = False) -> Acceptance:
        """The judge of a source; begun: whether it sees the first rows alone."""
        before = sum(one.fitting for one in self._sources.values() if one.refusal is None)
        rows = 0 if self._table is None else self._table.rows
        return Acceptance(source.uri, chosen.meta, chosen.clock, fresh=not (before or rows), begun=begun)

    def _repeated(self, part: PreparedChunk, meta: TableMeta) -> Counter[str]:
        """How many rows of the first chunk of a new table have the series and time of another one."""
        if self._table is not None and self._table.rows:
            return Counter()
        return DryRun(meta, None).count(part.table.filter(pa.array(part.good)))[2]

    def _count(
        self, source: FileSource, chosen: Plan, report: SourceReport, parts: Iterable[PreparedChunk] | None = None
    ) -> None:
        """What would become of the rows of a source, or of these parts of it."""
        table, meta = self._table, chosen.meta
        start = Position() if table is None else self._position(table, report.name)
        if self._dry is None:
            self._dry = DryRun(meta, table)
        form = None if chosen.clock is None else chosen.clock.format
        sieve = Sieve(chosen.schema, meta.time, meta.series, report.name, form)
        report.pieces, said = Pieces(source.uri, meta), SaidUnits(source, chosen.schema, meta, table)
        acceptance = self._acceptance(source, chosen, begun=parts is not None)
        if parts is None:
            parts = prefetch(_prepared(source, chosen, _wound_up(source, chosen, start), sieve, start))
        for part in report.pieces.seen(parts):
            if self._config.max_ahead is not None:
                newest = NEVER if table is None else self._admission.newest
                put_future_aside(part, meta, newest, self._config.max_ahead)
            report.reasons.update(reason for reason, _, _ in part.faults.values())
            rows = part.table.filter(pa.array(part.good))
            said.add(rows)
            fitting, versions, twice, differ = self._dry.count(rows)
            acceptance.add(part, twice)
            report.meta, report.first = meta, report.first or rows
            report.keep(differ)
            report.fitting, report.versions = report.fitting + fitting, report.versions + versions
            report.reasons.update(twice)
        report.doubts += said.notes(source.uri) + _left_out(source)
        report.waiting = source.waiting
        if not (start.bytes or self._config.keep_going or self._config.follow):
            report.refusal = acceptance.verdict()

    def _repair(
        self, source: FileSource, chosen: Plan, sieve: Sieve, report: SourceReport, start: Position
    ) -> Position | None:
        """Go back before a last line that was taken torn and has grown since; its row is superseded."""
        torn = source.torn(start.offset())
        if torn is None:
            return None
        assert self._table is not None
        before = Position.of(torn.after)
        reader = _wound_up(source, chosen, before)
        times = None if reader is None else reader.read(*torn.rows.select(_clock_columns(chosen)).columns)
        part = sieve.prepare(torn.rows, times, before, chosen.units)
        refused = self._quarantine.reasons_of(report.name, before.lines + 1) - {SUPERSEDED}
        row = None if part.faults or refused else self._table.find(part.table)
        if self._table.meta.duplicates != "first":
            row = None  # the whole line is another version of it
        marks = {f"{report.name}#{key}": value for key, value in before._asdict().items()}
        try:
            if row is not None:
                aside = sieve.aside(
                    part, (SUPERSEDED, "", f"half a line: the row with _seq {row}, which is not read any more")
                )
                self._quarantine.add(aside, report.name, before.lines)
                self._table.supersede(row, marks)
                report.reasons[SUPERSEDED] += 1
            else:
                self._table.commit(None, marks)
        except Conflict:
            self._table.refresh()
            raise Moved from None
        self._admission = Admission(self._table)
        return before

    def _rowless(self, source: FileSource, report: SourceReport) -> None:
        """A header without rows: nothing to do, unless there were rows before."""
        start = Position() if self._table is None else self._position(self._table, report.name)
        if start.bytes:
            next(source.read(start.offset()), None)  # says that the file was changed
        report.state, report.waiting = "no rows yet", source.waiting

    def _create(self, chosen: Plan) -> Table:
        try:
            table = Table.create(self._config.table, chosen.schema, chosen.meta, self._config.durable)
        except TableError:
            if not Table.exists(self._config.table):
                raise
            self._adopt(Table.open(self._config.table, self._config.durable))
            raise Moved from None  # made by somebody else in this moment: plan again, against it
        self._adopt(table)
        return table

    def _submit(self, sieve: Sieve, report: SourceReport, part: PreparedChunk, start: Position) -> None:
        if self._config.max_series is not None and self._table is not None:
            put_surplus_aside([part], self._table.meta.series, self._admission.series, self._config.max_series)
        divided = sieve.divide(part, self._admission)
        future = self._writer.submit(self._commit, report.name, part, divided, start)
        self._pending = (part, divided, start, future)

    def _settle(self, sieve: Sieve, report: SourceReport) -> None:
        """Wait for the commit under way; after another writer's, judge its rows again and commit again.

        Raises:
            Moved: the other writer took rows of the same source.
        """
        while self._pending is not None:
            part, divided, start, future = self._pending
            self._pending = None
            assert self._table is not None
            try:
                future.result()
            except Conflict:
                self._retried(partial(self._catch_up, self._table))
                if self._position(self._table, report.name) != start:
                    raise Moved from None
                self._submit(sieve, report, part, start)
                continue
            report.count(divided, self._table.meta)
            self._progress(self._so_far(report.name))

    def _catch_up(self, table: Table) -> None:
        """See what others have committed; rows are judged against all of it from here on."""
        table.refresh()
        self._admission = Admission(table)

    def _commit(self, name: str, part: PreparedChunk, divided: Sorted, start: Position) -> None:
        tried = False

        def write() -> None:
            nonlocal tried
            if tried and self._is_there(name, part.after):
                return
            tried = True
            self._write(name, part, divided, start)

        self._retried(write)
        if self._config.follow:
            with suppress(TableError, ServiceError):  # said to those who read the damaged file, or write next
                self._compaction.committed()

    def _is_there(self, name: str, after: Position) -> bool:
        """Whether the last commit is there, which was not answered.

        Raises:
            Conflict: others have committed.
        """
        assert self._table is not None
        before = self._table.version
        if self._table.refresh() != before and self._position(self._table, name) != after:
            raise Conflict
        return self._position(self._table, name) == after

    def _write(self, name: str, part: PreparedChunk, divided: Sorted, start: Position) -> None:
        assert self._table is not None
        self._quarantine.add(divided.quarantined, name, start.lines)
        marks = {f"{name}#{key}": value for key, value in part.after._asdict().items()}
        marks |= self._options(name).news(self._table)
        if divided.accepted.num_rows:
            self._table.commit(divided.accepted, marks, divided.revises, divided.late)
        else:
            self._table.commit(None, marks)

    @staticmethod
    def _position(table: Table, name: str) -> Position:
        return Position(*(table.mark(f"{name}#{key}", 0) for key in Position._fields))

    def _so_far(self, name: str) -> IngestProgress:
        reports = self._sources.values()
        quarantined = sum(sum(one.reasons.values()) for one in reports)
        return IngestProgress(name, sum(one.rows for one in reports), quarantined, time.monotonic() - self._began)


def options_of(config: IngestConfig) -> dict[str, Any]:
    """What a format may be given."""
    text = ("separator", "decimal", "thousands", "encoding", "null", "max_line", "final")
    names: tuple[str, ...] = (*text, "time", "time_format", "signals", "clock", "join", "dbc", "salvage", "sheet")
    names += ("header_row", "columns", "no_header")
    found = {name: getattr(config, name) for name in names}
    age = None if config.max_age is None else interval(config.max_age, "--max-age")
    if config.time == ROW:  # where samples have no times, they are numbered
        found |= {"interval": interval(config.every) if config.every else SECONDS}
    return found | {"max_age": age, "time": None if config.time == ROW else config.time}


def _laid_out(uri: str, config: IngestConfig, table: Table | None) -> tuple[FileSource, IngestConfig, list[str]]:
    """The rows of a source as a table has them: days of hours unrolled, times in one column, signals that are wanted,
    wide ones melted; the settings for it, and what to say of it where it makes the table."""
    source, notes = open_source(uri, config.format, options_of(config)), list[str]()
    if isinstance(source, Joined):
        config = _of_joined(source, config)
    if source.sample.num_rows:
        source, config = by_periods(source, config, table)
        if isinstance(source, DayRows):
            notes = [source.note(config.series)]
        source, config = paired(source, config, table)
        source = asked_for(source, config, table)
    if config.melt:
        clock = time_name(source, config, table) if source.sample.num_rows else None
        source = Melted(source, config.melt, config.series or "unique_id", clock)
    return source, config, notes


def _of_joined(source: Joined, config: IngestConfig) -> IngestConfig:
    """The settings where rows were made by a clock: --time and --time-format have had their say."""
    every = config.every or (None if source.every_ns is None else f"{source.every_ns}ns")
    time = config.time if config.time == ROW and not source.numbered else source.time_column
    return config.model_copy(update={"time": time, "time_format": source.time_format, "every": every})


def _left_out(source: FileSource) -> list[str]:
    file = innermost(source)
    return file.left_out() if isinstance(file, TextLines) else []


def _wound_up(source: FileSource, chosen: Plan, start: Position) -> TimeReader | None:
    """The source's clock, having seen all rows before `start`: they decide which run of a repeated hour comes next.

    Standard input cannot be read twice: there, the repeated hour begins again where a run went on.
    """
    if chosen.clock is None:
        return None
    reader = TimeReader(chosen.clock)
    if reader.remembers and start.lines and source.uri != "-":
        for chunk in source.read({}):
            known = int((chunk.rows[LINE].to_numpy() <= start.lines).sum())
            reader.read(*chunk.rows.select(_clock_columns(chosen)).slice(0, known).columns)
            if known < chunk.rows.num_rows:
                break
    return reader


def _prepared(
    source: FileSource, chosen: Plan, reader: TimeReader | None, sieve: Sieve, start: Position
) -> Iterator[PreparedChunk]:
    """The chunks after `start`, their times read."""
    for chunk in source.read(start.offset()):
        times = None if reader is None else reader.read(*chunk.rows.select(_clock_columns(chosen)).columns)
        yield sieve.prepare(chunk.rows, times, Position.of(chunk.after), chosen.units)


def _clock_columns(chosen: Plan) -> list[str]:
    return [name for name in (chosen.meta.time, chosen.meta.series) if name is not None]


def _look(uri: str) -> tuple[int, int]:
    """What changes when a file grows."""
    try:
        found = os.stat(uri)
    except OSError as error:
        raise DataError(f"{uri}: {error.strerror}", hint="it was there a moment ago") from None
    return found.st_size, found.st_mtime_ns
