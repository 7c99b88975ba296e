"""Messages into rows of a table: read, judged against what it holds, and committed with their positions.

A batch is quarantined first, then rows and positions are one commit: of what a kill separates, a restart knows both
sides. What a store did not answer to is tried again, and judged again: the commit may be there.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from streamgp.errors import DataError, TableError, UsageError
from streamgp_data.admission import SAME
from streamgp_data.ingestion.chunk import PreparedChunk, Sieve, Sorted, put_future_aside, put_surplus_aside
from streamgp_data.ingestion.plan import Plan, plan, plan_as_table
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.ingestion.writer import Lot, Writer
from streamgp_data.instants import ELAPSED
from streamgp_data.messages import Message
from streamgp_data.quarantine import QUARANTINE
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.cells import LINE
from streamgp_data.retry import Retry
from streamgp_data.table import SEQ, Table
from streamgp_data.times import TimeReader
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.config.settings import AHEAD
from streamgp_pipelines.live.decoding import Content, Decoder, Messages
from streamgp_pipelines.live.positions import Positions

UNKNOWN = 1000
"""Messages without a row that may come before the first row says what a new table is."""

FIRST = 64
"""Rows that are looked at one by one, where all together cannot be understood."""

T = TypeVar("T")


class Batch(NamedTuple):
    """What is committed together: messages in the order of their arrival, the rows that were read of them, and when
    the first one came."""

    messages: list[Message]
    parts: list[PreparedChunk]
    since: float | None


class Judged(NamedTuple):
    """What became of a batch: its rows, messages and rows that the table has already, and what was committed."""

    sorted: Sorted
    redelivered: int
    lot: Lot


class RowReader(NamedTuple):
    """How rows of one kind are read."""

    source: Messages
    plan: Plan
    times: TimeReader | None


class Commits:
    """The table of `follow`; it is made of the first rows.

    Args:
        config: as of `follow`.
        name: of the source, in marks and quarantine.
        width: numbers of a position; 0 where messages have none.
        health: counts the commits.
        retry: waits for the store of the table.
        settle: waits for the commit under way.
    """

    def __init__(
        self,
        config: IngestConfig,
        name: str,
        width: int,
        health: TakenRows,
        retry: Retry,
        settle: Callable[[], None],
    ) -> None:
        self._config, self._name, self._width, self._health = config, name, width, health
        self._retry, self._settle = retry, settle
        self._positions = Positions(name, width)
        self._decoder = Decoder(config, name)
        self._readers: dict[pa.Schema | None, RowReader] = {}
        self.writer: Writer | None = None
        self._told = False  # of rows of the far future
        self.unknown: DataError | None = None  # why there is no table yet
        self._retried(self._begin)

    def mark(self, partition: str) -> tuple[int, ...]:
        """The position of the last message of a partition that the table has; asked in any moment of a commit."""

        def look() -> tuple[int, ...]:
            if not Table.exists(self._config.table):
                return ()
            return self._positions.mark(Table.open(self._config.table), partition)

        return self._retried(look)

    def read(self, messages: list[Message], since: float | None) -> Batch | None:
        """The rows of messages; None where no row says what a new table is.

        What the first of them say may be anybody's: for a while they are held, until others make a table.

        Raises:
            DataError, SchemaError, UsageError: no table can be made of them, or they do not fit it.
        """
        contents, bad = self._decoder.split(messages)
        if self.writer is None:
            try:
                self._retried(lambda: self._create(contents))
            except DataError as error:
                if len(messages) > UNKNOWN:
                    raise
                if self.unknown is None:
                    logging.getLogger("streamgp").warning(f"{error.message}; waiting for messages that make a table")
                self.unknown = error
                return None
        assert self.writer is not None
        if not self._readers:
            self._decoder.check_series(contents, self.writer.table.meta.series)
        parts = [part for content in contents if (part := self._prepared(content, bad)) is not None]
        if bad:
            rows = self._decoder.unreadable(messages, bad, self._columns)
            parts.append(self._sieve.prepare(rows, None, Position()))
        return Batch(messages, parts, since)

    def limit(self, batch: Batch) -> None:
        """Put rows of the far future aside, and those of more series than are allowed; no commit is under way."""
        assert self.writer is not None
        admission, meta = self.writer.admission, self.writer.table.meta
        ahead = math.inf if meta.time_format in ELAPSED else AHEAD
        ahead = ahead if self._config.max_ahead is None else self._config.max_ahead
        for part in batch.parts if ahead < math.inf else []:
            put_future_aside(part, meta, admission.newest, ahead)
            found = next((detail for reason, _, detail in part.faults.values() if reason == "future"), None)
            if found is not None and not self._told:
                self._told = True
                rest = (
                    "it is in the quarantine, as others will be; --max-ahead none takes such rows, as of a simulation"
                )
                logging.getLogger("streamgp").warning(f"a row of the far future: {found}; {rest}")
        if self._config.max_series is not None:
            put_surplus_aside(batch.parts, meta.series, admission.series, self._config.max_series)

    def commit(self, batch: Batch) -> Judged:
        """Judge and commit, in any thread.

        Raises:
            TableError, ServiceError: as `Writer.write`.
        """
        done, tried = list[Judged](), batch

        def judge() -> Lot:
            done.append(self._judge(tried))
            return done[-1].lot

        def write() -> None:
            nonlocal tried
            assert self.writer is not None
            began = time.monotonic()
            try:
                self.writer.write(judge)
            except Exception:  # where the commit is there all the same, its rows come again
                tried = batch._replace(messages=[message._replace(again=True) for message in batch.messages])
                raise
            self._health.committed(time.monotonic() - began)

        self._retried(write)
        return done[-1]

    def _retried(self, work: Callable[[], T]) -> T:
        """Wait for the store where the source is followed."""
        return self._retry.wait_for(work) if self._config.follow else work()

    def _begin(self) -> None:
        if Table.exists(self._config.table):
            self._adopt(Table.open(self._config.table, self._config.durable))

    def _adopt(self, table: Table) -> None:
        if not self._width and table.meta.time is None:
            raise UsageError(
                f"table {table.path} has no time column: a message that comes again could not be known",
                hint="ingest into a new table with --time COLUMN, a counter will do",
            )
        self.writer = Writer(table)
        columns = pa.schema([field for field in table.schema if field.name != SEQ])
        self._sieve = Sieve(columns, table.meta.time, table.meta.series, self._name, table.meta.time_format)
        self._columns = columns

    def _create(self, contents: Sequence[Content]) -> None:
        """Make the table, of the first rows.

        Raises:
            DataError: there are none, or their times cannot be read.
        """
        if not contents:
            raise DataError(f"{self._name}: no message has a row yet", hint="is the --format right?")
        self._decoder.check_series(contents, self._config.series)
        source = self._decoder.source
        chosen = _first(contents[0], lambda content: plan(source(content, None), self._config, None))
        try:
            table = Table.create(self._config.table, chosen.schema, chosen.meta, self._config.durable)
        except TableError:
            if not Table.exists(self._config.table):
                raise
            table = Table.open(self._config.table, self._config.durable)  # made by somebody else in this moment
        self._adopt(table)

    def _prepared(self, content: Content, bad: dict[int, str]) -> PreparedChunk | None:
        """The rows of messages, as the table has them; where none can be read, the messages are bad."""
        try:
            reader = self._readers.get(content.schema) or _first(content, self._reader)
        except DataError as error:  # of the columns, or of every time
            bad |= dict.fromkeys(content.owner.tolist(), f"unparsable||{error.message[:300]}")
            return None
        meta = reader.plan.meta
        rows = reader.source.parse(content)
        names = [name for name in (meta.time, meta.series) if name is not None]
        times = None if reader.times is None else reader.times.read(*rows.select(names).columns)
        return self._sieve.prepare(rows, times, Position(), reader.plan.units)

    def _reader(self, content: Content) -> RowReader:
        """How rows like these are read, from now on.

        Raises:
            DataError, SchemaError: they are none of the table.
        """
        assert self.writer is not None
        table, source = self.writer.table, self._decoder.source(content, self.writer.table)
        if self._config.time_format is None and table.meta.time is not None:
            chosen = plan_as_table(source, self._config, table)
        else:
            chosen = plan(source, self._config, table)
        if chosen.meta != table.meta and chosen.meta.every_ns is not None:
            self._settle()
            every, tolerance = chosen.meta.every_ns, chosen.meta.tolerance_ns
            self._retried(lambda: table.declare(every, tolerance))
            self._retried(self.writer.catch_up)
        found = RowReader(source, chosen, None if chosen.clock is None else TimeReader(chosen.clock))
        self._readers[content.schema] = found
        return found

    def _judge(self, batch: Batch) -> Judged:
        """Accepted and quarantined rows, against what the table holds now."""
        assert self.writer is not None
        table, messages = self.writer.table, batch.messages
        fresh = self._positions.fresh(table, messages)
        places = [part.rows.column(LINE).to_numpy() for part in batch.parts]
        good = [fresh[place] for place in places]
        for part, ok in zip(batch.parts, good, strict=True):
            ok[list(part.faults)] = False
        taken = [part.table.filter(pa.array(ok)) for part, ok in zip(batch.parts, good, strict=True)]
        candidates = pa.concat_tables([self._columns.empty_table(), *taken])
        verdict = self.writer.admission.judge(candidates)
        taken_in = verdict.accepted
        accepted = candidates if taken_in.all() else candidates.filter(pa.array(taken_in))
        faults = verdict.faults
        start, again, refused = 0, int((~fresh).sum()), [QUARANTINE.empty_table()]
        for part, ok, place in zip(batch.parts, good, places, strict=True):
            wrong = {row: said for row, said in part.faults.items() if fresh[place[row]]}
            rows = np.flatnonzero(ok).tolist()
            known = {row: faults[start + at] for at, row in enumerate(rows) if start + at in faults}
            start += len(rows)
            for row, (reason, detail) in known.items():
                if reason == SAME[0] and messages[place[row]].again:
                    again += 1
                else:
                    wrong[row] = (reason, table.meta.time or "", detail)
            refused.append(self._sieve.quarantined(part.rows, wrong))
        aside = pa.concat_tables(refused)
        reasons = Counter(str(reason) for reason in aside.column("reason").to_pylist())
        addressed, moved = (
            self._positions.addressed(aside, table, messages),
            self._positions.moved(table, messages, fresh),
        )
        revises, late = verdict.revises[taken_in], verdict.late[taken_in]
        lot = Lot(accepted, addressed, moved, revises, late)
        return Judged(Sorted(accepted, aside, reasons, revises, late), again, lot)


def _first(content: Content, attempt: Callable[[Content], T]) -> T:
    """What the rows give together, or the first of them that gives it alone.

    Raises:
        DataError: none of the first ones does.
    """
    try:
        return attempt(content)
    except DataError as error:
        for row in range(min(len(content.owner), FIRST)):
            with suppress(DataError):
                return attempt(content.row(row))
        raise error from None
