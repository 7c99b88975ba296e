"""Connections that are silent, slow or many, as strangers open them: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
import uvicorn

from streamgp_pipelines.adapters.web.connections import OVER, Limits, protocol
from tests.pipelines.killed import wait_for
from tests.serving.test_process import ask, begun, end, nothing_is_left

pytestmark = pytest.mark.slow
__all__ = ["nothing_is_left"]

HEAD = b"POST /rows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n"
MANY = 300


@contextmanager
def opened(url: str, count: int) -> Iterator[list[socket.socket]]:
    at = urlsplit(url)
    with ExitStack() as stack:
        made = [socket.create_connection((at.hostname, at.port), 10) for _ in range(count)]
        yield [stack.enter_context(one) for one in made]


def trickle(sockets: list[socket.socket], ended: threading.Event) -> None:
    """A byte a second to each."""
    while not ended.wait(1.0):
        for one in sockets:
            try:
                one.send(b"1")
            except OSError:
                continue


@pytest.mark.parametrize(
    "first", [b"", b"GET /forecast HTTP/1.1\r\nX: ", HEAD + b"\r\n["], ids=["silent", "head", "body"]
)
def test_hundreds_that_wait_close_nobody_out(home: Path, first: bytes) -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(files, 2048)), most))
    process, told = begun(home, "--rate", "0")
    with opened(told["url"], MANY) as sockets:
        for one in sockets:
            one.send(first)
        ended = threading.Event()
        thread = threading.Thread(target=trickle, args=(sockets if first else [], ended))
        thread.start()
        for _ in range(4):
            assert ask(f"{told['url']}/health") == {"status": "ok"}
            assert ask(f"{told['url']}/forecast")["forecast"]
            time.sleep(0.5)
        ended.set()
        thread.join()
    code, said = end(process)
    assert (code, said.count("\n") < 3) == (143, True), said[:500]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says whether its connection is one too many; /slow does so when it is told to."""
    if scope["path"] == "/slow":
        await receive()
        BUSY.append(scope["client"])
        while not GO.is_set():
            await asyncio.sleep(0.01)
    body = b"over" if scope["state"].get(OVER) else b"in"
    if scope["path"] == "/large":
        body = bytes(50_000_000)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


GO, BUSY = threading.Event(), list[Any]()


@contextmanager
def serving(**limits: Any) -> Iterator[tuple[str, int]]:
    given: dict[str, Any] = {"connections": 40, "address": 20, "head": 1.0, "body": 2.0, "stall": 1.0}
    options: dict[str, Any] = {"http": protocol(Limits(**given | limits)), "ws": "none", "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_keep_alive=1, **options))
    GO.clear()
    BUSY.clear()
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    yield host, port
    GO.set()
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()


def seconds_open(one: socket.socket, send: bytes = b"", every: float = 0.1) -> tuple[float, bytes]:
    """How long the server leaves a connection open, while bytes are sent now and then; and what it says."""
    began, said = time.monotonic(), b""
    one.settimeout(every)
    while time.monotonic() - began < 15:
        try:
            one.send(send)
            part = one.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            break
        if not part:
            break
        said += part
    return time.monotonic() - began, said


@pytest.mark.parametrize(
    ("first", "again", "least", "says"),
    [
        (b"", b"", 1.0, b""),
        (b"GET / HTTP/1.1\r\nX: ", b"1", 1.0, b"408"),
        (b"", b"\r\n", 1.0, b"408"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n",
            b"1",
            2.0,
            b"200",
        ),  # it is answered before its body is there
        (b"POST /slow HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", 2.0, b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"", 1.0, b"200"),
        (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nX: ", b"1", 1.0, b"408"),
        (b"GET / HTTP/1.1\r\nX: " + b"1" * 66_000, b"", 0.0, b"431"),  # of a longer one, a reset may drop the answer
    ],
    ids=["silent", "head", "lines", "late body", "body", "idle", "second head", "long head"],
)
def test_a_client_has_so_long(first: bytes, again: bytes, least: float, says: bytes) -> None:
    with serving() as at, socket.create_connection(at, 5) as one:
        one.sendall(first)
        seconds, said = seconds_open(one, again)
        assert least - 0.1 < seconds < 14 and says in said


def test_an_answer_that_is_not_read_is_dropped() -> None:
    with serving() as at, socket.create_connection(at, 5) as one:
        one.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        time.sleep(4)  # four times as long as is waited for
        size = 0
        with pytest.raises(OSError):  # reset, where all that was sent is read
            while part := one.recv(1 << 20):
                size += len(part)
            raise OSError
        assert size < 50_000_000


def test_an_answer_that_is_read_slowly_arrives() -> None:
    with serving() as at, socket.create_connection(at, 5) as one:
        one.sendall(b"GET /large HTTP/1.1\r\nConnection: close\r\n\r\n")
        size = 0
        while part := one.recv(1 << 20):
            size += len(part)
            time.sleep(0.05)
        assert size > 50_000_000


def test_requests_that_wait_for_one_answer_are_few() -> None:
    """Nine of a connection are answered; a client that sends hundreds is closed."""
    get = b"GET / HTTP/1.1\r\n\r\n"
    with serving() as at:
        with socket.create_connection(at, 5) as one:
            one.sendall(get * 9)
            assert seconds_open(one)[1].count(b" 200 ") == 9
        with socket.create_connection(at, 5) as one:
            one.sendall(get * 200)
            assert seconds_open(one)[1].count(b" 200 ") < 9
        assert asked(at) == b"in"


def test_breaking_off_while_requests_wait_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as at:
        for _ in range(20):
            with socket.create_connection(at, 5) as one:
                one.sendall(b"GET /slow HTTP/1.1\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n" * 5)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        wait_for(lambda: len(BUSY) > 10)
        time.sleep(0.5)  # until the resets are there
        GO.set()
        assert asked(at) == b"in"
    assert not capfd.readouterr().err


def test_a_waiting_connection_makes_room_and_one_at_work_does_not() -> None:
    with serving(head=30.0) as at, ExitStack() as stack:
        silent = stack.enter_context(socket.create_connection(at, 5))
        busy = [stack.enter_context(socket.create_connection(at, 5)) for _ in range(19)]
        for one in busy:
            one.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        wait_for(lambda: len(BUSY) == 19)
        assert asked(at) == b"in"  # in the place of the silent one
        assert seconds_open(silent)[0] < 14
        busy.append(stack.enter_context(socket.create_connection(at, 5)))
        busy[-1].sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        wait_for(lambda: len(BUSY) == 20)
        assert asked(at) == b"over"
        GO.set()
        for one in busy:
            one.settimeout(10)
            assert one.recv(1000).endswith(b"in")


def asked(at: tuple[str, int]) -> bytes:
    with socket.create_connection(at, 5) as one:
        one.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        said = b""
        while part := one.recv(1000):
            said += part
        return said.rpartition(b"\r\n")[2]


def test_the_one_too_many_is_told_so_unless_it_asks_for_the_health(home: Path) -> None:
    from tests.serving.test_app import client_of

    with client_of(home) as client:
        client.app_state[OVER] = True
        found = client.get("/forecast")
        assert (found.status_code, found.headers["connection"]) == (503, "close") and found.json()["hint"]
        assert [client.get(path).status_code for path in ("/health", "/ready")] == [200, 200]


def test_hundreds_of_garbage_leave_no_line_each(home: Path) -> None:
    process, told = begun(home)
    for _ in range(50):
        with opened(told["url"], 1) as (one,):
            one.send(b"\x16\x03\x01garbage\r\n\r\n")
            assert b"400" in one.recv(1000)
        with opened(told["url"], 1) as (one,):
            one.send(HEAD + b"\r\n[")
    with pytest.raises(HTTPError):
        ask(f"{told['url']}/nothing")
    assert end(process)[1].count("\n") < 3
