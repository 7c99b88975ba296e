"""Rows of requests into a table: many requests make one commit, and each is answered when it is in the table.

A request is read in its own thread. One thread a table takes all that wait, judges them together against the table,
and commits them at once. What is answered is in the table; what was not answered may be, and can be sent again: a
row that the table has is a duplicate, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgp.errors import ServiceError, StreamgpError, TableError, UsageError
from streamgp_data.admission import OTHER, Verdict
from streamgp_data.event_time import NEVER
from streamgp_data.ingestion.chunk import Faults, PreparedChunk, Sieve, put_future_aside
from streamgp_data.ingestion.plan import plan_as_table
from streamgp_data.ingestion.writer import Aside, Lot, Writer
from streamgp_data.moments import Moments
from streamgp_data.quarantine import CLOCK, QUARANTINE, Quarantine
from streamgp_data.reading.bytes import Position
from streamgp_data.reading.files import FileSource
from streamgp_data.table import SEQ, Table
from streamgp_data.times import TimeReader
from streamgp_pipelines.config import IngestConfig

SOURCE = "serve"
"""What the quarantine calls rows of requests."""

WAITING = 256
"""Requests that may wait for a commit; more are refused."""

GROUP = 1 << 16
"""Rows from which on a commit takes no further request."""

LEAP = 24
"""Intervals, and a day at least, from which on times that follow the newest one leap."""
DAY = 86_400 * 10**6
"""Microseconds."""
_LINES = f"{SOURCE}#lines"


class Refused(NamedTuple):
    """A row of a request that is in the quarantine: its place in the request, from 0, and why."""

    row: int
    reason: str
    column: str
    detail: str


class Receipt(NamedTuple):
    """What became of the rows of a request.

    Attributes:
        accepted: rows that are in the table now; `late` of them came after a later row of their series, and windows
            leave them out.
        duplicates: rows that the table had: left out.
        quarantined: rows that cannot be read, whose time is too far ahead, or whose series and time the table has with
            other values, if it keeps the first of them.
        rows: of the table, now.
        notes: what to know of the rows that were accepted.
    """

    accepted: int
    late: int
    duplicates: int
    quarantined: tuple[Refused, ...]
    rows: int
    notes: tuple[str, ...] = ()


class Intake:
    """The one writer of a table in this process; other processes may write too.

    Args:
        table: of the rows.
        max_ahead: seconds that the time of a row may be ahead; see `put_future_aside`.

    Raises:
        UsageError: its rows have no time, so that a row that is sent twice cannot be known.
    """

    def __init__(self, table: Table, max_ahead: float = math.inf) -> None:
        meta = table.meta
        if meta.time is None:
            raise UsageError(
                f"table {table.path} has no time column: a row that is sent again could not be known",
                hint="ingest into a new table with --time COLUMN, a counter will do",
            )
        self.table, self.max_ahead = table, max_ahead
        self.reach = 0.0
        """Seconds that a row's time may be ahead beside these: of known inputs, or of one interval."""
        self.leaps, self.last_leap = Quarantine(table).leaps()
        """Rows whose time was far from all others, those in the quarantine from before too, and what is said of the
        last."""
        self.late = 0
        """Rows that came after a later row of their series."""
        self.failure: StreamgpError | None = None
        """Why rows could not be written; None again after a commit that succeeded."""
        self.committed: list[Callable[[], None]] = []
        """Called after every commit, in the thread of the intake."""
        self._schema = pa.schema([field for field in table.schema if field.name != SEQ])
        self._sieve = Sieve(self._schema, meta.time, meta.series, SOURCE, meta.time_format)
        self._writer = Writer(table)
        self._queue: Queue[tuple[PreparedChunk, tuple[str, ...], Future[Receipt]] | None] = Queue(WAITING)
        self._config = IngestConfig.model_construct(source=(SOURCE,), table=table.path)
        self._closed, self._gate = False, Lock()
        self._thread = Thread(target=self._work, name="intake", daemon=True)
        self._thread.start()

    def submit(self, source: FileSource) -> Future[Receipt]:
        """Read rows, and have them committed with those of others.

        Raises:
            DataError, SchemaError: they are none of this table, or their times cannot be read.
            ServiceError: too many requests wait.
        """
        found: Future[Receipt] = Future()
        if not source.sample.num_rows:
            found.set_result(Receipt(0, 0, 0, (), self.table.rows))
            return found
        part = self._prepare(source)
        notes = self._leap(part)
        with self._gate:
            if self._closed:
                raise ServiceError("the service is ending", hint="send the rows again when it is back")
            try:
                self._queue.put_nowait((part, notes, found))
            except Full:
                raise ServiceError("too many requests wait to be written", hint="send the rows again, later") from None
        return found

    def close(self) -> None:
        """Commit what waits, and end."""
        with self._gate:
            first, self._closed = not self._closed, True
        if first:
            self._queue.put(None)
        self._thread.join()

    def _prepare(self, source: FileSource) -> PreparedChunk:
        chosen, meta = plan_as_table(source, self._config, self.table), self.table.meta
        (chunk,) = source.read({})
        assert chosen.clock is not None and meta.time is not None
        series = None if meta.series is None else chunk.rows.column(meta.series)
        times = TimeReader(chosen.clock).read(chunk.rows.column(meta.time), series)
        part = self._sieve.prepare(chunk.rows, times, Position(), chosen.units)
        reach = self.max_ahead + self.reach
        put_future_aside(part, meta, self._writer.admission.newest, reach, self.max_ahead)
        return part

    def _leap(self, part: PreparedChunk) -> tuple[str, ...]:
        """A note where times leap from the newest one that the table has, and one clock may be wrong."""
        meta, newest = self.table.meta, self._writer.admission.newest
        if meta.time is None or not meta.clock or meta.every_ns is None or newest == NEVER:
            return ()
        times = part.table.column(meta.time).filter(pa.array(_good(part))).cast(pa.int64()).to_numpy()
        steps = np.unique([newest, *times[times > newest]])
        at = int(np.diff(steps, append=steps[-1]).argmax())
        interval = steps[min(at + 1, len(steps) - 1)] - steps[at]
        if interval <= max(LEAP * meta.every_ns // 1000, DAY):
            return ()
        moments = Moments.of(meta)
        first, before = (moments.say(1000 * int(value)) for value in steps[[at + 1, at]])
        return (
            f"the row of {first} comes {interval / DAY:,.1f} days after that of {before}: rows that come later with a "
            "time between are late, and are not learned",
        )

    def _late(self, receipt: Receipt, rows: int) -> tuple[str, ...]:
        """A note where rows come after a later one, whose clock may be wrong."""
        if not receipt.late:
            return ()
        meta = self.table.meta
        moment = Moments.of(meta).say((1000 if meta.clock else 1) * self._writer.admission.newest)
        newest = f"the newest, {moment}" if meta.series is None else "the newest of their series"
        hint = "is the clock of the newest right? streamgp doctor"
        return (f"{receipt.late:,} of {rows:,} rows are older than {newest}: {hint}",)

    def _work(self) -> None:
        ended = False
        while not ended:
            group = [self._queue.get()]
            size = 0
            while size < GROUP and group[-1] is not None:
                size += group[-1][0].rows.num_rows
                try:
                    group.append(self._queue.get_nowait())
                except Empty:
                    break
            ended = group[-1] is None
            waiting = [one for one in group if one is not None]
            if not waiting:
                continue
            try:
                receipts = self._commit([part for part, _, _ in waiting])
            except BaseException as error:  # raised where its rows are waited for, whatever it is
                self._look_again()
                if isinstance(error, ServiceError | TableError):
                    self.failure = error
                for _, _, future in waiting:
                    future.set_exception(error)
                continue
            self.failure = None
            for (part, notes, future), receipt in zip(waiting, receipts, strict=True):
                leapt = [one.detail for one in receipt.quarantined if one.reason in CLOCK] + list(notes)
                self.leaps, self.last_leap = self.leaps + len(leapt), leapt[-1] if leapt else self.last_leap
                self.late += receipt.late
                future.set_result(receipt._replace(notes=(*notes, *self._late(receipt, part.rows.num_rows))))
            for call in self.committed:
                call()
            self._writer.tidy()

    def _look_again(self) -> None:
        """See what the table holds, after a commit that failed or was another's."""
        with suppress(Exception):  # it is said when the next request comes
            self._writer.catch_up()

    def _commit(self, parts: list[PreparedChunk]) -> list[Receipt]:
        """Judge the rows of all parts together, and commit them at once."""
        good = [_good(part) for part in parts]
        candidates = pa.concat_tables([part.table.filter(pa.array(ok)) for part, ok in zip(parts, good, strict=True)])
        count, verdicts = sum(part.rows.num_rows for part in parts), list[Verdict]()

        def judge() -> Lot:
            verdict = self._writer.admission.judge(candidates)
            verdicts.append(verdict)
            first = self.table.mark(_LINES, 0)
            refused = self._refused(parts, self._faults(parts, good, verdict), first)
            accepted = verdict.accepted
            fresh = candidates if accepted.all() else candidates.filter(pa.array(accepted))
            marks = {_LINES: first + count} if fresh.num_rows or refused.num_rows else {}
            return Lot(fresh, [Aside(refused, SOURCE, first)], marks, verdict.revises[accepted], verdict.late[accepted])

        self._writer.write(judge)
        return self._receipts(self._faults(parts, good, verdicts[-1]), good, verdicts[-1])

    def _faults(self, parts: list[PreparedChunk], good: list[Any], verdict: Verdict) -> list[Faults]:
        """What is wrong with rows of each part; a row that was sent again is nothing of it."""
        found, start = [], 0
        for part, ok in zip(parts, good, strict=True):
            end = start + int(ok.sum())
            other = np.flatnonzero(ok)[verdict.conflict[start:end]].tolist()
            said = (OTHER[0], self.table.meta.time or "", OTHER[1])
            found.append({**part.faults, **dict.fromkeys(other, said)})
            start = end
        return found

    def _refused(self, parts: list[PreparedChunk], faults: list[Faults], first: int) -> pa.Table:
        """The rows for the quarantine, numbered over all requests."""
        tables = [QUARANTINE.empty_table()]
        for part, wrong in zip(parts, faults, strict=True):
            if wrong:
                found = self._sieve.quarantined(part.rows, wrong)
                lines = pc.add(found.column("line"), pa.scalar(first, pa.int64()))
                tables.append(found.set_column(QUARANTINE.get_field_index("line"), QUARANTINE.field("line"), lines))
            first += part.rows.num_rows
        return pa.concat_tables(tables)

    def _receipts(self, faults: list[Faults], good: list[Any], verdict: Verdict) -> list[Receipt]:
        found, start, rows = [], 0, self.table.rows
        for wrong, ok in zip(faults, good, strict=True):
            end = start + int(ok.sum())
            twice, late = int(verdict.duplicate[start:end].sum()), int(verdict.late[start:end].sum())
            refused = tuple(Refused(row, *fault) for row, fault in sorted(wrong.items()))
            found.append(Receipt(int(verdict.accepted[start:end].sum()), late, twice, refused, rows))
            start = end
        return found


def _good(part: PreparedChunk) -> Any:
    """(N,) the rows that can be read."""
    good = np.ones(part.rows.num_rows, bool)
    good[list(part.faults)] = False
    return good
