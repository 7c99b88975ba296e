"""Connections to `serve`, and how long and how many of them may wait: those who say nothing close nobody else out.

uvicorn bounds the time between two requests and nothing else. Here a connection that is quiet, whose head or body is
slow to come, or whose client does not read its answer, is closed after a time; and where there are as many connections
as are allowed, of one address or of all, the one that has waited longest for its client makes room for a new one. Only
where a request is at work on each of them, the new one is answered with 503, unless it asks for the health. A client
that sends many requests before it reads an answer is closed.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

OVER = "over"
"""In the state of a request: whether its connection is one too many."""

_TICK = 0.5
_PROGRESS = 16_384


class Limits(NamedTuple):
    """What connections may do.

    Attributes:
        connections: at a time; address: of one address; spare: more, for those who ask for the health alone.
        head: seconds until the head of a request is there, and its bytes at most.
        body: seconds from then until its body is there.
        stall: seconds in which a client has to read some of an answer.
        pipelined: requests of a connection that may wait for the answer to another one.
    """

    connections: int
    address: int
    spare: int = 32
    head: float = 10.0
    head_bytes: int = 65_536
    body: float = 35.0
    stall: float = 20.0
    pipelined: int = 8


def limits_here() -> Limits:
    """Half of the files that this process may open are for connections: tables need the others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1024 if files == resource.RLIM_INFINITY else max(16, min(1024, files // 2))
    return Limits(most, most // 2)


def protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """The class of uvicorn's connections (`uvicorn.Config(http=...)`), of one server."""
    return type("Bounded", (Connection,), {"room": Room(limits)})


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits."""

    room: Room

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.since = self._moved = self.loop.time()
        self._until: float | None = self.since + self.room.limits.head
        self._in_body, self._head, self._left = False, 0, 0
        self._over = False
        self._running: RequestResponseCycle | None = None

    @property
    def address(self) -> str:
        """Of the client."""
        return self.client[0] if self.client else ""

    @property
    def at_work(self) -> bool:
        """Whether a whole request has come and is not answered yet."""
        cycle = self.cycle
        return bool(self.pipeline) or not (cycle is None or cycle.response_complete or cycle.more_body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place."""
        super().connection_made(transport)
        self._over = not self.room.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave it; what is still answered goes nowhere."""
        self.room.leave(self)
        self._forget()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once."""
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        """Requests that wait are not answered, and what the one at work answers is not written.

        uvicorn tells this to the newest request alone, which is not the one at work where several wait: that one would
        write to a closed connection, and leave a traceback.
        """
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse what has come; the first bytes of a head start its time."""
        if self._until is None:
            self._wait(self.room.limits.head)
        self._head += len(data)
        super().data_received(data)
        if self._until is not None and not self._in_body and self._head > self.room.limits.head_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A head begins.

        Raises:
            ValueError: too many requests wait already; the parser stops.
        """
        if len(self.pipeline) >= self.room.limits.pipelined:
            raise ValueError("too many requests of a connection wait")
        super().on_message_begin()
        self.scope["state"][OVER] = self._over
        if self._until is None:  # after another request in the same bytes
            self._wait(self.room.limits.head)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._wait(self.room.limits.body)
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is there."""
        self._until, self._in_body = None, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is made: what counts from now on is the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """What follows is no request, or one too many; an answer before those that are due would be taken for one of
        these."""
        if self.pipeline or not (self._running is None or self._running.response_complete):
            self.drop()
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def look(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        left = self.transport.get_write_buffer_size()
        if left == 0 or left > self._left or self._left - left >= _PROGRESS:
            self._left, self._moved = left, now
        elif now - self._moved > self.room.limits.stall:
            self.drop()
        if self._until is not None and now > self._until and not self.flow.read_paused:
            self._refuse(b"408 Request Timeout")

    def _wait(self, seconds: float) -> None:
        self.since, self._head = self.loop.time(), 0
        self._until = self.since + seconds

    def _refuse(self, status: bytes) -> None:
        """End it; with an answer, where a request has begun and none is given."""
        if self.transport.is_closing():
            return
        if self._head and not self._in_body and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class Room:
    """The places of a server.

    Args:
        limits: how many there are, and how long one may be held.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._of: dict[str, set[Connection]] = {}
        self._count, self._looks = 0, False

    def enter(self, one: Connection) -> bool:
        """Take a place, if need be that of one that waits; returns whether there was one."""
        mine = self._of.setdefault(one.address, set())
        free = True
        if len(mine) >= self.limits.address:
            free = self._make_room(mine)
        elif self._count >= self.limits.connections:
            free = any(map(self._make_room, sorted(self._of.values(), key=len, reverse=True)))
        self._of.setdefault(one.address, mine).add(one)
        self._count += 1
        if not self._looks:
            self._looks = True
            one.loop.call_later(_TICK, self._look, one.loop)
        if self._count > self.limits.connections + self.limits.spare:
            one.drop()
        return free

    def leave(self, one: Connection) -> None:
        """Give the place back."""
        mine = self._of.get(one.address, set())
        if one in mine:
            mine.remove(one)
            self._count -= 1
            if not mine:
                del self._of[one.address]

    def _make_room(self, among: set[Connection]) -> bool:
        """End the connection that has waited longest for its client; returns whether there was one."""
        found = min((one for one in among if not one.at_work), key=lambda one: one.since, default=None)
        if found is None:
            return False
        self.leave(found)
        found.drop()
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for one in [one for mine in self._of.values() for one in mine]:
            one.look(now)
        self._looks = self._count > 0
        if self._looks:
            loop.call_later(_TICK, self._look, loop)
