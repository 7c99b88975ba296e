"""A broker in memory, that can be away, deliver again, and be read by several."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from streamgp_data.messages import Away, Marks, Message, Pending
from streamgp_pipelines.config import IngestConfig
from streamgp_pipelines.live.follow import follow

START = datetime(2026, 1, 1)


def row(at: int, **more: Any) -> bytes:
    return json.dumps({"ds": (START + timedelta(minutes=at)).isoformat(), "y": float(at), **more}).encode()


class Memory:
    """A Feed. `width` 1: positions, from the mark on; 0: what is not acknowledged comes again with the connection.

    Attributes:
        acknowledged: places of the payloads, in the order of their acknowledgement.
        polled: the sizes of what `poll` gave.
        away: how many calls of `connect` and `poll` still fail.
        others: what other members of its group hold.
    """

    def __init__(self, payloads: Sequence[bytes], width: int = 1, piece: int = 1000) -> None:
        self.payloads, self.width, self.piece = list(payloads), width, piece
        self.acknowledged: list[int] = []
        self.polled: list[int] = []
        self.delivered: set[int] = set()
        self.away, self.next = 0, 0
        self.others: Pending | None = None
        self.topic: Callable[[int], str] = lambda at: f"plant/{at % 2}"

    def connect(self, marks: Marks) -> None:
        self._there()
        mark = marks("")
        left = set(range(len(self.payloads))) - set(self.acknowledged)
        self.next = mark[0] + 1 if mark else 0 if self.width else min(left, default=len(self.payloads))

    def poll(self, most: int, timeout: float) -> list[Message]:
        self._there()
        found = []
        while self.next < len(self.payloads) and len(found) < min(most, self.piece):
            at, self.next = self.next, self.next + 1
            position = (at,) if self.width else ()
            if self.width or at not in self.acknowledged:
                found.append(Message(self.payloads[at], self.topic(at), "", position, at in self.delivered, at))
                self.delivered.add(at)
        self.polled.append(len(found))
        return found

    def acknowledge(self, messages: Sequence[Message]) -> None:
        self.acknowledged += [message.tag for message in messages]

    def pending(self) -> Pending | None:
        return self.others

    def look(self) -> Pending | None:
        self._there()
        return self.others

    def close(self) -> None:
        pass

    def _there(self) -> None:
        if self.away:
            self.away -= 1
            raise Away("connection refused")


def take(table: Path, feed: Memory, **options: Any) -> dict[str, Any]:
    """Follow to the end; the summary."""
    given = {"source": ("memory://plant",), "table": str(table), "poll": 0.01, "linger": 0.0, **options}
    return dict(follow(IngestConfig.read(given), feed=feed))
