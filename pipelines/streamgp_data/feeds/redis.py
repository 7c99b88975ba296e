"""Redis Streams: `redis://host:port/db?stream=NAME`.

An entry has its payload in its only field; with several fields, these are the columns of a row. The identifiers of
entries are their positions. With `group=NAME` a consumer group divides the entries over processes: each is
acknowledged, and what a dead process left is claimed after `claim` seconds; such entries are known by their rows. A
dead consumer that holds nothing is removed when another one starts.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from streamgp.errors import ServiceError, UsageError
from streamgp_data.messages import PATIENCE, Address, Away, Marks, Message, Pending, client

SCHEMES, ENCRYPTED = ("redis", "rediss"), ("rediss",)
OPTIONS = ("stream", "claim")
EXAMPLE = "redis://localhost:6379/0?stream=meters"

MEMBER = "streamgp-"
"""Beginning of the names of our consumers, before the host and the process."""
FORGOTTEN = 3600.0
"""Seconds after which a consumer of ours that holds nothing is removed from its group; one that lives asks every second
or so, and is there again as soon as it asks."""
_REMOVE = """
local removed = 0
for _, about in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local one = {}
    for at = 1, #about, 2 do one[about[at]] = about[at + 1] end
    local ours = string.sub(one['name'], 1, #ARGV[2]) == ARGV[2] and string.find(one['name'], '-%d+$')
    if ours and one['name'] ~= ARGV[3] and one['pending'] == 0 and one['idle'] > tonumber(ARGV[4]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], one['name'])
        removed = removed + 1
    end
end
return removed
"""
"""Run by the server in one piece: nobody is sent a message between the look and the removal."""
PIECE = 1 << 12
"""Entries that are asked for at once."""


def whole(address: Address) -> bool:
    """Whether a URL has all that is needed."""
    return bool(address.query.get("stream")) and (address.path or "0").isdecimal()


def build(address: Address) -> Redis:
    """The feed of a stream.

    Raises:
        UsageError: the package redis is not installed, or `claim` is no number of seconds.
    """
    return Redis(address)


class Redis:
    """A Feed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._redis = client("redis", "redis")
        self._stream, self._group = address.query["stream"], address.query.get("group", "")
        self._consumer = f"{MEMBER}{socket.gethostname()}-{os.getpid()}"
        try:
            self._claim = float(address.query.get("claim", "60"))
        except ValueError:
            raise UsageError(f"{address.name}: claim is no number of seconds", hint="such as claim=60") from None
        self.width = 0 if self._group else 2
        self._client: Any = None
        self._last, self._claimed = "0-0", 0.0

    def _open(self) -> None:
        address, redis = self._address, self._redis
        self.close()
        options: dict[str, Any] = {"ssl": address.tls}
        if address.tls:
            names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
            options |= {names[key]: address.query[key] for key in names if key in address.query}
        self._client = redis.Redis(
            address.host,
            address.port or 6379,
            int(address.path or 0),
            username=address.user or None,
            password=address.password or address.token or None,
            socket_connect_timeout=PATIENCE,
            socket_timeout=PATIENCE * 2,
            socket_keepalive=True,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            protocol=2,
            **options,
        )
        with self._asking():
            self._client.ping()

    def connect(self, marks: Marks) -> None:
        address, redis = self._address, self._redis
        self._open()
        with self._asking():
            if self._group:
                try:
                    self._client.xgroup_create(self._stream, self._group, "0", mkstream=True)
                except redis.ResponseError as error:
                    if "BUSYGROUP" not in str(error):
                        raise
                self._forget()
        last = marks("") if self.width else ()
        self._last = f"{last[0]}-{last[1]}" if last else "0-0"
        with self._asking():
            if last and self._client.exists(self._stream):
                about = self._client.xinfo_stream(self._stream)
                oldest = _position(about["first-entry"][0] if about["first-entry"] else about["last-generated-id"])
                removed = max(_position(about.get("max-deleted-entry-id") or b"0-0"), oldest)
                address.check_reach(last, _position(about["last-generated-id"]), removed)

    def _forget(self) -> None:
        """Remove dead consumers of ours that hold nothing; they stay where the server lets nobody do this."""
        given = (self._group, MEMBER, self._consumer, int(FORGOTTEN * 1000))
        with suppress(self._redis.ResponseError):  # no right to run scripts
            self._client.eval(_REMOVE, 1, self._stream, *given)

    def poll(self, most: int, timeout: float) -> list[Message]:
        count, block = min(most, PIECE), max(1, int(timeout * 1000))
        with self._asking():
            if not self._group:
                found = self._entries(self._client.xread({self._stream: self._last}, count, block))
                self._last = found[-1].tag.decode() if found else self._last
                return found
            if time.monotonic() - self._claimed > self._claim / 2:
                idle = int(self._claim * 1000)
                name, group, consumer = self._stream, self._group, self._consumer
                _, entries, *_ = self._client.xautoclaim(name, group, consumer, idle, count=count)
                if entries:
                    return [self._message(number, fields, True) for number, fields in entries if fields is not None]
                self._claimed = time.monotonic()
            streams = {self._stream: ">"}
            return self._entries(self._client.xreadgroup(self._group, self._consumer, streams, count, block))

    def acknowledge(self, messages: Sequence[Message]) -> None:
        if self._group and messages:
            with self._asking():
                self._client.xack(self._stream, self._group, *(message.tag for message in messages))

    def pending(self) -> Pending | None:
        return self._pending(self._consumer)

    def look(self) -> Pending | None:
        self._open()
        try:
            with self._asking():
                there = self._client.exists(self._stream)
            if not there:
                name = self._address.name
                raise ServiceError(
                    f"{name}: there is no stream yet", hint="its first message makes it: is the name right?"
                )
            return self._pending("")
        finally:
            self.close()

    def _pending(self, own: str) -> Pending | None:
        """What members hold, but for this one."""
        if not self._group:
            return None
        with self._asking():
            try:
                members = self._client.xinfo_consumers(self._stream, self._group)
            except self._redis.ResponseError as error:
                if "NOGROUP" in str(error) or "no such key" in str(error).lower():
                    return None  # nobody has begun yet
                raise
        others = [one for one in members if one["pending"] and one["name"] != own.encode()]
        idle = max((one["idle"] / 1000 for one in others), default=None)
        return Pending(sum(one["pending"] for one in others), self._claim, idle)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _entries(self, answer: Any) -> list[Message]:
        return [self._message(number, fields, False) for _, entries in answer or () for number, fields in entries]

    def _message(self, number: bytes, fields: dict[bytes, bytes], again: bool) -> Message:
        about: tuple[bytes, ...] = (number,)
        if len(fields) == 1:
            ((field, payload),) = fields.items()
            about = number, field
        else:
            payload = json.dumps({_text(key): _text(value) for key, value in fields.items()}).encode()
        return Message(payload, self._stream, "", () if self._group else _position(number), again, number, about)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        redis, address = self._redis, self._address
        try:
            yield
        except (
            redis.AuthenticationError,
            redis.exceptions.AuthorizationError,
            redis.exceptions.NoPermissionError,
        ) as error:
            raise address.refused(error) from None
        except redis.exceptions.InvalidResponse as error:
            raise address.refused(f"it does not speak the protocol of Redis: {error}") from None
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise Away(address.plain(error)) from None
        except redis.ResponseError as error:
            passing = ("LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "CLUSTERDOWN")
            if str(error).startswith("NOGROUP"):  # the stream was deleted, or the server forgot it
                raise Away("the consumer group is gone") from None
            raise (Away(address.plain(error)) if str(error).startswith(passing) else address.refused(error)) from None


def _position(number: bytes) -> tuple[int, ...]:
    first, _, second = number.partition(b"-")
    return int(first), int(second)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
