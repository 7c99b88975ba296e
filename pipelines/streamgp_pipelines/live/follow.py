"""Messages of a broker into a table: collected, judged, committed with their positions, and then acknowledged.

What a kill can separate, a restart joins: a batch is quarantined, then rows and positions are one commit, then the
messages are acknowledged. A feed with positions begins behind those of the table, not where the broker would. What a
feed without them delivers again, and what two processes read at once, is in the table already, and counted.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from operator import itemgetter, lt
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from streamgp.base import Json
from streamgp.errors import DataError, SchemaError, ServiceError, TableError, UsageError
from streamgp.streaming.admission import SAME
from streamgp.streaming.messages import Away, Feed, Message, is_feed, open_feed
from streamgp.streaming.quarantine import QUARANTINE
from streamgp.streaming.reading.bytes import Position
from streamgp.streaming.reading.cells import LINE
from streamgp.streaming.table import SEQ, Table
from streamgp.streaming.times import TimeReader
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.health import Health, Taken
from streamgp_pipelines.ingestion.chunk import Prepared, Sieve, Sorted, put_future_aside, put_surplus_aside
from streamgp_pipelines.ingestion.plan import Plan, plan, plan_as_table
from streamgp_pipelines.ingestion.report import IngestProgress, Progress, SourceReport, summary
from streamgp_pipelines.ingestion.writer import Lot, Writer
from streamgp_pipelines.live.decoding import Content, Decoder, Messages
from streamgp_pipelines.live.positions import Positions

GROUP, HELD = 1 << 16, 64 << 20
"""Messages, and bytes of them, from which on a commit waits for no other."""

UNKNOWN = 1000
"""Messages without a row that may come before the first row says what a new table is."""

SLICE = 0.05
"""Seconds between two looks for the end of a commit under way."""

SHORTEST, LONGEST = 0.5, 30.0
"""Seconds from one attempt to reach a broker to the next, which double."""

FIRST = 64
"""Rows that are looked at one by one, where all together cannot be understood."""

T = TypeVar("T")
Say = Callable[[str], None]


class Batch(NamedTuple):
    """What is committed together: messages in the order of their arrival, the rows that were read of them, and when
    the first one came."""

    messages: list[Message]
    parts: list[Prepared]
    since: float | None


class Judged(NamedTuple):
    """What became of a batch: its rows, messages and rows that the table has already, and what was committed."""

    sorted: Sorted
    redelivered: int
    lot: Lot


class Reader(NamedTuple):
    """How rows of one kind are read."""

    source: Messages
    plan: Plan
    times: TimeReader | None


def follow(
    config: IngestConfig,
    progress: Progress = lambda _: None,
    say: Say = lambda _: None,
    feed: Feed | None = None,
    ending: Event | None = None,
    health: Health | None = None,
) -> dict[str, Json]:
    """Take the messages of a broker into the table; with `follow` until interrupted, else until none comes.

    Args:
        config: its only source is the URL of a broker.
        progress: called after each commit.
        say: called when the broker cannot be reached, and when it can again.
        feed: in place of the broker's.
        ending: once it is set, what was collected is committed and acknowledged, as by an interruption.
        health: `taken` of it is kept up to date.

    Returns:
        The summary, as `ingest`.

    Raises:
        UsageError: the flags do not fit a broker, or the table has no time and the feed no positions.
        ServiceError: the broker refuses, or cannot be reached and is not to be waited for; the storage refused.
        DataError, SchemaError, TableError: as `ingest`.
        KeyboardInterrupt: after what was collected is committed and acknowledged.
    """
    _check(config)
    name = config.source[0]
    if feed is None:
        if not is_feed(name):
            raise UsageError(f"{name} is no URL of a broker", hint="streamgp ingest takes files into the table")
        address, feed = open_feed(config.source[0], str(Path(config.table).absolute()))
        name = address.name
    taken = Taken()
    if health is not None:
        health.taken = taken
    run = Follow(config, config.as_name or name, feed, progress, say, ending or Event(), taken)
    try:
        run.run()
    except KeyboardInterrupt:
        run.flush()
        raise
    finally:
        run.close()
    return run.summary()


class Follow:
    """One run of `follow`.

    Args:
        config, progress, say: as of `follow`.
        name: of the source, in marks and quarantine.
        feed: not connected yet.
        ending, health: as of `follow`.
    """

    def __init__(
        self,
        config: IngestConfig,
        name: str,
        feed: Feed,
        progress: Progress,
        say: Say,
        ending: Event,
        health: Taken,
    ) -> None:
        self._config, self._name, self._feed = config, name, feed
        self._progress, self._say, self._began = progress, say, time.monotonic()
        self._ending, self._health = ending, health
        self._waits: float | None = None  # since when the first of those held has
        self._positions = Positions(name, feed.width)
        self._decoder = Decoder(config, name)
        self._report = SourceReport(name)
        self._writer: Writer | None = None
        self._readers: dict[pa.Schema | None, Reader] = {}
        self._held: list[Message] = []
        self._seen: dict[str, tuple[int, ...]] = {}
        self._pending: tuple[Batch, Future[Judged]] | None = None
        self._thread = ThreadPoolExecutor(1, "commit")
        if Table.exists(config.table):
            self._adopt(Table.open(config.table, config.durable))

    def run(self) -> None:
        """Connect, and take what comes."""
        self._connect()
        while not self._ending.is_set():
            try:
                ended = not self._collect()
            except Away as error:
                self._connect(error)
                continue
            if self._held:
                self._submit()
            if ended and not self._config.follow:
                self._settle()
                return
        self.flush()

    def flush(self) -> None:
        """Commit what was collected, and acknowledge it."""
        self._settle()
        if self._held:
            self._submit()
            self._settle()

    def close(self) -> None:
        """End the connection and the thread."""
        self._thread.shutdown(wait=True)
        try:
            self._feed.close()
        except Away:
            return

    def summary(self) -> dict[str, Json]:
        """Totals of the run; see `ingest`.

        Raises:
            DataError: there was nothing to make a table of.
        """
        if self._writer is None:
            raise DataError(f"{self._name}: no message has a row yet", hint="is the name right, and the --format?")
        return summary(self._config.table, self._writer.table, [self._report], self._began, sort=False)

    def _adopt(self, table: Table) -> None:
        if not self._feed.width and table.meta.time is None:
            raise UsageError(
                f"table {table.path} has no time column: a message that comes again could not be known",
                hint="ingest into a new table with --time COLUMN, a counter will do",
            )
        self._writer = Writer(table)
        columns = pa.schema([field for field in table.schema if field.name != SEQ])
        self._sieve = Sieve(columns, table.meta.time, table.meta.series, self._name)
        self._columns = columns

    # The broker

    def _connect(self, lost: Away | None = None) -> None:
        """Connect, again and again where the broker is waited for, until the end.

        Raises:
            ServiceError: it refuses, or is not waited for.
        """
        wait, since, said = SHORTEST, time.monotonic(), False
        while True:
            if lost is not None:
                self._health.connected = False
                if not self._config.follow:
                    raise ServiceError(
                        f"{self._name}: the broker cannot be reached: {lost}", hint="is the address right?"
                    )
                if not said:
                    self._say(f"{self._name}: the broker is away ({lost}); trying again")
                self._settle()
                said = True
                if self._ending.wait(wait * random.uniform(0.5, 1.0)):
                    return
                wait = min(2 * wait, LONGEST)
            try:
                self._feed.connect(self._marks)
                break
            except Away as error:
                lost = error
        self._health.connected = True
        if said:
            self._health.reconnects += 1
            self._say(f"{self._name}: the broker is back after {time.monotonic() - since:.0f} s")

    def _marks(self, partition: str) -> tuple[int, ...]:
        """The position of the last message of a partition that the table has; asked in any moment of a commit."""
        if not Table.exists(self._config.table):
            return ()
        return self._positions.mark(Table.open(self._config.table), partition)

    def _collect(self) -> bool:
        """Hold what comes, until it is as much as a commit takes or the first of it has waited; whether any came."""
        came, size = False, _size(self._held)
        until = time.monotonic() + self._config.poll
        while len(self._held) < GROUP and size < HELD:
            left = until - time.monotonic()
            found = self._feed.poll(GROUP - len(self._held), max(0.0, min(left, SLICE) if self._pending else left))
            if self._pending is not None and self._pending[1].done():
                self._settle()
            if found and not came:
                came, until = True, time.monotonic() + self._config.linger
            size += _size(found)
            self._held += self._unseen(found) if self._feed.width else found
            if self._held and self._waits is None:
                self._waits = time.monotonic()
            self._measure()
            if time.monotonic() >= until:
                break
        return came

    def _measure(self) -> None:
        """What waits: held, or in the commit under way."""
        health, pending = self._health, None if self._pending is None else self._pending[0]
        health.waiting = len(self._held) + (0 if pending is None else len(pending.messages))
        health.since = self._waits if pending is None else pending.since
        if self._writer is not None and self._writer.table.meta.clock and self._writer.admission.newest > 0:
            health.newest = self._writer.admission.newest / 1e6

    def _unseen(self, messages: list[Message]) -> list[Message]:
        """Without those that this process has taken: a broker may go back where partitions change hands."""
        partitions: dict[str, list[tuple[int, ...]]] = {}
        for message in messages:
            partitions.setdefault(message.partition, []).append(message.position)
        if all(
            found[0] > self._seen.get(name, ()) and all(map(lt, found, found[1:])) for name, found in partitions.items()
        ):
            self._seen |= {name: found[-1] for name, found in partitions.items()}
            return messages
        fresh = []
        for message in messages:
            if message.position > self._seen.get(message.partition, ()):
                self._seen[message.partition] = message.position
                fresh.append(message)
        return fresh

    # The rows

    def _submit(self) -> None:
        """Have what is held committed, behind the commit under way; it stays held where no row says what a new table
        is."""
        messages = self._held
        contents, bad = self._decoder.split(messages)
        if self._writer is None:
            try:
                self._create(contents)
            except DataError as error:
                if isinstance(error, SchemaError) or len(messages) > UNKNOWN:
                    raise
                return
        assert self._writer is not None
        if not self._readers:
            self._decoder.check_series(contents, self._writer.table.meta.series)
        parts = [part for content in contents if (part := self._prepared(content, bad)) is not None]
        if bad:
            rows = self._decoder.unreadable(messages, bad, self._columns)
            parts.append(self._sieve.prepare(rows, None, Position()))
        self._settle()
        if self._config.max_ahead is not None:
            for part in parts:
                newest = self._writer.admission.newest
                put_future_aside(part, self._writer.table.meta, newest, self._config.max_ahead)
        if self._config.max_series is not None:
            admission, series = self._writer.admission, self._writer.table.meta.series
            put_surplus_aside(parts, series, admission.series, self._config.max_series)
        batch = Batch(messages, parts, self._waits)
        self._held, self._waits = [], None
        self._pending = batch, self._thread.submit(self._commit, batch)

    def _settle(self) -> None:
        """Wait for the commit under way, and acknowledge its messages."""
        if self._pending is None:
            return
        batch, future = self._pending
        done = future.result()
        self._pending = None
        assert self._writer is not None
        self._report.count(done.sorted, self._writer.table.meta)
        self._report.redelivered += done.redelivered
        quarantined = sum(self._report.reasons.values())
        self._health.accepted, self._health.quarantined = self._report.rows, quarantined
        self._health.redelivered, self._health.late = self._report.redelivered, self._report.late
        self._measure()
        self._progress(IngestProgress(self._name, self._report.rows, quarantined, time.monotonic() - self._began))
        self._thread.submit(self._writer.tidy)
        try:
            self._feed.acknowledge(batch.messages)
        except Away:
            return  # the next poll says so; what is not acknowledged comes again, and is known

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

    def _prepared(self, content: Content, bad: dict[int, str]) -> Prepared | None:
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
        return self._sieve.prepare(rows, times, Position())

    def _reader(self, content: Content) -> Reader:
        """How rows like these are read, from now on.

        Raises:
            DataError, SchemaError: they are none of the table.
        """
        assert self._writer is not None
        table, source = self._writer.table, self._decoder.source(content, self._writer.table)
        if self._config.time_format is None and table.meta.time is not None:
            chosen = plan_as_table(source, self._config, table)
        else:
            chosen = plan(source, self._config, table)
        if chosen.meta != table.meta and chosen.meta.every_ns is not None:
            self._settle()
            table.declare(chosen.meta.every_ns, chosen.meta.tolerance_ns)
            self._writer.catch_up()
        found = Reader(source, chosen, None if chosen.clock is None else TimeReader(chosen.clock))
        self._readers[content.schema] = found
        return found

    def _commit(self, batch: Batch) -> Judged:
        """Judge and commit, in the thread."""
        assert self._writer is not None
        done = list[Judged]()

        def judge() -> Lot:
            done.append(self._judge(batch))
            return done[-1].lot

        began = time.monotonic()
        self._writer.write(judge)
        self._health.committed(time.monotonic() - began)
        return done[-1]

    def _judge(self, batch: Batch) -> Judged:
        """Accepted and quarantined rows, against what the table holds now."""
        assert self._writer is not None
        table, messages = self._writer.table, batch.messages
        fresh = self._positions.fresh(table, messages)
        places = [part.rows.column(LINE).to_numpy() for part in batch.parts]
        good = [fresh[place] for place in places]
        for part, ok in zip(batch.parts, good, strict=True):
            ok[list(part.faults)] = False
        taken = [part.table.filter(pa.array(ok)) for part, ok in zip(batch.parts, good, strict=True)]
        candidates = pa.concat_tables([self._columns.empty_table(), *taken])
        verdict = self._writer.admission.judge(candidates)
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


def _size(messages: Sequence[Message]) -> int:
    """Bytes of payloads."""
    return sum(map(len, map(itemgetter(0), messages)))


def _check(config: IngestConfig) -> None:
    """Flags that a broker has no use for.

    Raises:
        UsageError: one is given, or another source beside the broker.
    """
    if len(config.source) > 1:
        raise UsageError("a broker is followed alone", hint="run another streamgp ingest for each other source")
    alien = ["melt", "decimal", "thousands", "encoding", "final", "repair", "sort", "dry_run"]
    alien += ["signals", "clock", "join", "max_age", "dbc", "salvage"]
    given = [name for name in alien if getattr(config, name)]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags}: not for messages of a broker", hint="it is an option for files: leave it out")
