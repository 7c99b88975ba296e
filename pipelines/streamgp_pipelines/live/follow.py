"""Messages of a broker into a table: collected, judged, committed with their positions, and then acknowledged.

What a kill can separate, a restart joins: rows and positions are one commit (`commits`), then the messages are
acknowledged. A feed with positions begins after those of the table, not where the broker would. What a
feed without them delivers again, and what two processes read at once, is in the table already, and counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from operator import itemgetter, lt
from pathlib import Path
from threading import Event

from streamgp.base import Json
from streamgp.errors import DataError, ServiceError, UsageError
from streamgp_data.ingestion.report import IngestProgress, Progress, SourceReport, summary
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.messages import Away, Feed, Message, is_feed, open_feed
from streamgp_data.remote import unanswered
from streamgp_data.retry import LONGEST, SHORTEST, Retry
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.health import Health
from streamgp_pipelines.live.commits import Batch, Commits, Judged

GROUP, HELD = 1 << 16, 64 << 20
"""Messages, and bytes of them, from which on a commit waits for no other."""

LOOK = 10.0
"""Seconds from one look at what other members of the group hold to the next."""

SLICE = 0.05
"""Seconds between two looks for the end of a commit under way."""

Say = Callable[[str], None]


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
        say: called when the broker, or the store of the table, cannot be reached, and when it can again.
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
    taken = TakenRows()
    if health is not None:
        health.taken = taken
    run = Follow(config, config.as_name or name, feed, progress, say, ending or Event(), taken)
    try:
        run.run()
    except KeyboardInterrupt:
        run.end()
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
        health: TakenRows,
    ) -> None:
        self._config, self._name, self._feed = config, name, feed
        self._progress, self._say, self._began = progress, say, time.monotonic()
        self._ending, self._health = ending, health
        self._waits: float | None = None  # since when the first of those held has
        self._looked = float("-inf")
        self._report = SourceReport(name)
        self._held: list[Message] = []
        self._seen: dict[str, tuple[int, ...]] = {}
        self._pending: tuple[Batch, Future[Judged]] | None = None
        self._thread = ThreadPoolExecutor(1, "commit")
        retry = Retry(str(config.table), say, ending, health)
        self._commits = Commits(config, name, feed.width, health, retry, self._settle)

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
                break
            if time.monotonic() - self._looked > LOOK:
                self._look()
        self.flush()
        self._look()

    def _look(self) -> None:
        """See what other members of the group hold."""
        self._looked = time.monotonic()
        with suppress(Away):  # the next poll says so
            self._health.pending = self._feed.pending()

    def flush(self) -> None:
        """Commit what was collected, and acknowledge it."""
        self._settle()
        if self._held:
            self._submit()
            self._settle()

    def end(self) -> None:
        """Commit what was collected, if the store of the table answers: else the broker has it still."""
        self._ending.set()
        try:
            self.flush()
        except Exception as error:
            if not unanswered(error):
                raise
            self._say(f"{self._name}: what was collected is not committed, and comes again: {error}")

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
        writer = self._commits.writer
        if writer is None:
            raise self._commits.unknown or DataError(
                f"{self._name}: no message has a row yet", hint="is the name right, and the --format?"
            )
        found = summary(self._config.table, writer.table, [self._report], self._began, sort=False)
        pending, hints = self._health.pending, found["hints"]
        if pending is not None and pending.messages and not self._config.follow:
            assert isinstance(hints, list)
            hints.append(
                f"other members of the group hold {pending.messages:,} messages; where one of them is dead, the same "
                f"command takes its messages {pending.claim:g} s after they were delivered"
            )
        return found

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
                self._feed.connect(self._commits.mark)
                break
            except Away as error:
                lost = error
        self._health.connected = True
        if said:
            self._health.reconnects += 1
            self._say(f"{self._name}: the broker is back after {time.monotonic() - since:.0f} s")

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
        writer = self._commits.writer
        if writer is not None and writer.table.meta.clock and writer.admission.newest > 0:
            health.newest = writer.admission.newest / 1e6

    def _unseen(self, messages: list[Message]) -> list[Message]:
        """Without those that this process has taken: a broker may go back where partitions change hands."""
        seen = dict(self._seen)
        for name, run in groupby(messages, itemgetter(2)):
            found = list(map(itemgetter(3), run))
            if found[0] <= seen.get(name, ()) or not all(map(lt, found, found[1:])):
                break
            seen[name] = found[-1]
        else:
            self._seen = seen
            return messages
        fresh = []
        for message in messages:
            if message.position > self._seen.get(message.partition, ()):
                self._seen[message.partition] = message.position
                fresh.append(message)
        return fresh

    # The rows

    def _submit(self) -> None:
        """Have what is held committed, after the commit under way; it stays held where no row says what a new table
        is."""
        batch = self._commits.read(self._held, self._waits)
        if batch is None:
            return
        self._settle()
        self._commits.limit(batch)
        self._held, self._waits = [], None
        self._pending = batch, self._thread.submit(self._commits.commit, batch)

    def _settle(self) -> None:
        """Wait for the commit under way, and acknowledge its messages."""
        if self._pending is None:
            return
        batch, future = self._pending
        done = future.result()
        self._pending = None
        writer = self._commits.writer
        assert writer is not None
        self._report.count(done.sorted, writer.table.meta)
        self._report.redelivered += done.redelivered
        quarantined = sum(self._report.reasons.values())
        self._health.accepted, self._health.quarantined = self._report.rows, quarantined
        self._health.redelivered, self._health.late = self._report.redelivered, self._report.late
        self._measure()
        self._progress(IngestProgress(self._name, self._report.rows, quarantined, time.monotonic() - self._began))
        self._thread.submit(writer.tidy)
        try:
            self._feed.acknowledge(batch.messages)
        except Away:
            return  # the next poll says so; what is not acknowledged comes again, and is known


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
    alien = [
        "melt",
        "header_row",
        "decimal",
        "thousands",
        "encoding",
        "final",
        "repair",
        "sort",
        "dry_run",
        "keep_going",
        "no_header",
    ]
    alien += ["signals", "clock", "join", "max_age", "dbc", "salvage"]
    given = [name for name in alien if getattr(config, name)]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags}: not for messages of a broker", hint="it is an option for files: leave it out")
