"""How a command that follows is: what it has taken, learned and waits for, for one line and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from streamgp.base import Json
from streamgp_data.ingestion.taken import TakenRows
from streamgp_data.messages import Pending
from streamgp_data.numbers import lasting
from streamgp_data.retry import Stored

SILENT = 10.0
"""Seconds after which a member of a group that holds messages may be dead: one that lives asks every second or so."""

EVERY = 60.0
"""Seconds from one line to the next."""


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
