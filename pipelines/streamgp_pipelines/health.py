"""How a command that follows is: what it has taken, learned and waits for, for one line and for Prometheus."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from streamgp.base import Json
from streamgp_data.messages import Pending
from streamgp_pipelines.numbers import lasting

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the seconds that a commit may take, of a histogram."""

SILENT = 10.0
"""Seconds after which a member of a group that holds messages may be dead: one that lives asks every second or so."""

EVERY = 60.0
"""Seconds from one line to the next."""


@dataclass
class Stored:
    """Of what is kept in a store.

    Attributes:
        away_since: since when the store has not answered, monotonic seconds; None while it does.
    """

    away_since: float | None = None

    @property
    def away(self) -> float:
        """Seconds for which the store has not answered; 0 while it does."""
        since = self.away_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def said(self) -> str:
        """The same in words; "" while it answers."""
        return "" if self.away_since is None else f", the store has not answered for {lasting(self.away)}"


@dataclass
class TakenRows(Stored):
    """Of rows that are taken into a table.

    Attributes:
        accepted, quarantined, redelivered, late: rows since the start.
        waiting: messages that are collected and not committed. since: when the first of them came, monotonic seconds.
        pending: what other members of the group hold, where there is one.
        newest: time of the newest row, seconds since 1970; None where the table has no clock.
        connected: whether the broker is there; None without one. reconnects: how often it came back.
        commits: by how long they took: at most each of BOUNDS, and longer. commit_seconds: of all of them.
    """

    accepted: int = 0
    quarantined: int = 0
    redelivered: int = 0
    late: int = 0
    waiting: int = 0
    since: float | None = None
    pending: Pending | None = None
    newest: float | None = None
    connected: bool | None = None
    reconnects: int = 0
    commits: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    commit_seconds: float = 0.0

    def committed(self, seconds: float) -> None:
        """Count a commit."""
        self.commits[bisect_left(BOUNDS, seconds)] += 1
        self.commit_seconds += seconds

    @property
    def lag(self) -> float:
        """Seconds for which the oldest message has waited for its commit."""
        since = self.since
        return 0.0 if since is None else time.monotonic() - since


@dataclass
class Learned(Stored):
    """Of rows that are learned from a table.

    Attributes:
        rows: seen, those after the last whole micro-batch with them. saved: in the newest checkpoint.
        table: rows of the table. since: since when some of them have not been seen, monotonic seconds.
        scores: of the rows since the last point, by name.
    """

    rows: int = 0
    saved: int = 0
    table: int = 0
    since: float | None = None
    scores: dict[str, float] = field(default_factory=dict)

    def look(self, rows: int, saved: int, table: int) -> None:
        """Update what is known of the rows."""
        self.rows, self.saved, self.table = rows, saved, table
        self.since = None if rows >= table else self.since or time.monotonic()

    @property
    def lag(self) -> float:
        """Seconds for which rows of the table have not been seen."""
        since = self.since
        return 0.0 if since is None else time.monotonic() - since


def others(pending: Pending) -> str:
    """What other members of a group hold, in words.

    Example:
        >>> others(Pending(40, 60.0)), others(Pending(40, 60.0, idle=300.0))
        ('other members hold 40', 'other members hold 40, one of them silent for 5:00: taken over 60 s after delivery')
    """
    found = f"other members hold {pending.messages:,}"
    if pending.idle is None or pending.idle < SILENT:
        return found
    return f"{found}, one of them silent for {lasting(pending.idle)}: taken over {pending.claim:g} s after delivery"


@dataclass
class Health:
    """Of one command; the parts that it does not have are None. It is written by the work and read by other threads.

    Attributes:
        opening: of the tables and checkpoints that it begins with.
    """

    opening: Stored = field(default_factory=Stored)
    taken: TakenRows | None = None
    learned: Learned | None = None

    @property
    def ready(self) -> bool:
        """Whether rows are taken or learned."""
        if self.opening.away_since is not None:
            return False
        return self.learned is not None or (self.taken is not None and self.taken.connected is not False)

    def line(self) -> str:
        """On one line.

        Example:
            >>> Health(taken=TakenRows(accepted=1200), learned=Learned(rows=1000, saved=1000, table=1200)).line()
            '1,200 rows taken, 0 quarantined, 0 wait; 1,000 rows learned, 200 behind'
        """
        parts = list[str]()
        if self.taken is not None:
            taken = self.taken
            age = f" for {lasting(taken.lag)}" if taken.lag >= 1 else ""
            away = ", the broker is away" if taken.connected is False else ""
            away += taken.said
            held = "" if taken.pending is None or not taken.pending.messages else f", {others(taken.pending)}"
            parts.append(
                f"{taken.accepted:,} rows taken, {taken.quarantined:,} quarantined, {taken.waiting:,} wait{age}{held}"
                f"{away}"
            )
        if self.learned is not None:
            learned = self.learned
            behind = max(0, learned.table - learned.rows)
            age = f" for {lasting(learned.lag)}" if learned.lag >= 1 else ""
            parts.append(f"{learned.rows:,} rows learned, {behind:,} behind{age}{learned.said}")
        parts += [f"starting{self.opening.said}"] if self.opening.away_since is not None else []
        return "; ".join(parts)

    def figures(self) -> dict[str, Json]:
        """The figures of each part: a reader has another clock, so that instants are in UTC, ISO 8601.

        Example:
            >>> Health(taken=TakenRows(accepted=1200)).figures()["taken"]["accepted"]
            1200
        """
        found: dict[str, Json] = {}
        for name, part in vars(self).items():
            if part is not None:
                figures = asdict(part)
                found[name] = figures | {
                    key: _instant(figures[key]) for key in ("since", "away_since") if figures.get(key) is not None
                }
        return found


def _instant(monotonic: float) -> str:
    """The time of a reading of the monotonic clock, to the second."""
    moment = datetime.now(UTC) - timedelta(seconds=time.monotonic() - monotonic)
    return moment.isoformat(timespec="seconds")


@contextmanager
def reported(
    health: Health, report: Callable[[Health], None], every: float = EVERY, once: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Call `report` at a steady interval, in a thread; with `once` a single time, when it holds."""
    ended = Event()

    def work() -> None:
        while not ended.wait(every):
            if once is not None and not once():
                continue
            report(health)
            if once is not None:
                return

    thread = Thread(target=work, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
