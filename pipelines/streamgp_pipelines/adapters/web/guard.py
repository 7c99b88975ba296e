"""What every request passes before it is answered: host, rate, token; and the count of what was answered."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamgp.errors import ServiceError, UsageError
from streamgp_pipelines.adapters.web.connections import OVER
from streamgp_pipelines.adapters.web.memo import Memo
from streamgp_pipelines.adapters.web.metrics import Metrics
from streamgp_pipelines.adapters.web.problems import Problem, answer
from streamgp_pipelines.config.serve import ServeConfig

HEALTH = frozenset({"/health", "/ready"})
"""Paths that are answered where there are too many connections, too."""

OPEN = frozenset({"/", *HEALTH})
"""Paths without data, which need no token."""

VARIABLE = "STREAMGP_TOKEN"
LEAST = 16
"""Characters of a token."""

ADDRESSES = 10_000
"""Addresses whose rate is known."""


def token_of(config: ServeConfig) -> tuple[str | None, Path | None]:
    """The token that clients need, and the file that it is in; None where none is needed.

    From the environment, or from the file; where there is neither, one is made and written, for its owner alone.

    Raises:
        UsageError: it is too short.
        ServiceError: the file cannot be read or written.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if config.auth == "never":
        return None, None
    if not given and config.token_file is None and config.auth == "auto" and is_loopback(config.host):
        return None, None
    file = None
    if not given:
        file = config.token_file or Path(config.checkpoint[0]) / ".token"
        try:
            given = file.read_text().strip() if file.exists() else _make(file)
        except OSError as error:
            raise ServiceError(f"--token-file {file}: {error.strerror}", hint="name another file") from None
    if len(given) < LEAST or not given.isascii():
        raise UsageError(f"the token has fewer than {LEAST} characters", hint="such as: openssl rand -hex 32")
    return given, file


def _make(file: Path) -> str:
    token = secrets.token_urlsafe(32)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(token + "\n")
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
        (True, True, False, True)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Rate:
    """A limit on the requests a second of an address: a bucket that fills steadily, and holds those of one second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was so

    def take(self, address: str, now: float) -> bool:
        """Whether one more is allowed.

        Example:
            >>> rate = Rate(2)
            >>> [rate.take("a", 0.0) for _ in range(3)], rate.take("b", 0.0), rate.take("a", 0.5)
            ([True, True, False], True, True)
        """
        if not self._most:
            return True
        left, since = self._left.pop(address, (float(self._most), now))
        left = min(left + (now - since) * self._most, self._most)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class Guard:
    """ASGI middleware.

    Args:
        app: the API.
        config: limits.
        token: that clients need, or None.
        metrics: what requests are counted in.
        memo: answers that are given again.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig, token: str | None, metrics: Metrics, memo: Memo) -> None:
        self._app, self._token, self._metrics, self._memo = app, token, metrics, memo
        self._rate = Rate(config.rate)
        self._local = token is None and is_loopback(config.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        try:
            found = self._refusal(HTTPConnection(scope)) or self._memo.find(scope)
            await (self._app if found is None else found)(scope, receive, watched)
        finally:
            route: Any = scope.get("route")
            path = getattr(route, "path", scope["path"] if status == 200 else "other")
            self._metrics.request(scope["method"], path, status, time.perf_counter() - began)

    def _refusal(self, request: HTTPConnection) -> ASGIApp | None:
        """The answer to a request that may not pass."""
        if self._local and not is_loopback(request.url.hostname or ""):  # a page that has taken over a name
            message = "header.host: this service answers to this machine alone"
            problem = Problem(error="Refused", message=message, hint="ask 127.0.0.1 or localhost", field="header.host")
            return answer(400, problem)
        if request.scope.get("state", {}).get(OVER) and request.url.path not in HEALTH:
            found = answer(
                503, Problem(error="Refused", message="too many requests at a time", hint="wait, then go on")
            )
            found.headers["Connection"] = "close"
            return found
        address = request.client.host if request.client else ""
        if not self._rate.take(address, time.monotonic()):
            return answer(429, Problem(error="Refused", message="too many requests", hint="wait, then go on slower"))
        if self._token is None or request.url.path in OPEN:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode()):
            return None
        hint = "send the header Authorization: Bearer TOKEN"
        return answer(
            401,
            Problem(error="Refused", message="the token is missing or wrong", hint=hint, field="header.authorization"),
        )
