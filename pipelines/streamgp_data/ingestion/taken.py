"""How many rows a table has taken, and what waits for it."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field

from streamgp_data.messages import Pending
from streamgp_data.retry import Stored

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the seconds that a commit may take, of a histogram."""


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
