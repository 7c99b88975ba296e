"""NATS JetStream: `nats://host:port/subject.>`, by a pull consumer on the stream that has the subject.

The sequence numbers of the stream are the positions. With `group=NAME` a durable consumer divides the messages over
processes: each is acknowledged, and what a dead process left is delivered again after `claim` seconds; such messages
are known by their rows. Nothing is fetched between two calls: the event loop runs only inside of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from streamgp.errors import ServiceError, UsageError
from streamgp_data.messages import PATIENCE, Address, Away, Marks, Message, Pending, client

SCHEMES, ENCRYPTED = ("nats", "natss"), ("natss",)
OPTIONS = ("claim",)
EXAMPLE = "'nats://localhost:4222/meters.>'"

PIECE = 1 << 10
"""Messages that are asked for at once."""

SHORT = 0.02
"""Seconds that more messages are waited for."""

PENDING = 1 << 16
"""Messages of a group that may be delivered and not acknowledged."""

T = TypeVar("T")


def whole(address: Address) -> bool:
    """Whether a URL has all that is needed."""
    return bool(address.path)


def build(address: Address) -> Nats:
    """The feed of a subject.

    Raises:
        UsageError: nats-py is not installed, or `claim` is no number of seconds.
    """
    return Nats(address)


class Nats:
    """A Feed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._nats, self._js = client("nats", "nats"), client("nats.js", "nats")
        self._group = address.query.get("group", "")
        try:
            self._claim = float(address.query.get("claim", "60"))
        except ValueError:
            raise UsageError(f"{address.name}: claim is no number of seconds", hint="such as claim=60") from None
        self.width = 0 if self._group else 1
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        self._subscription: Any = None
        self._stream, self._own = "", set[int]()
        self._delivered, self._full = 0, False

    def connect(self, marks: Marks) -> None:
        self._end()
        self._delivered, last = 0, marks("") if self.width else ()
        self._own.clear()
        self._run(self._open())
        self._run(self._subscribe(last))

    def poll(self, most: int, timeout: float) -> list[Message]:
        found = [self._message(one) for one in self._run(self._fetch(min(most, PIECE), max(timeout, 0.01)))]
        if self.width:
            for message in found:
                self._delivered += 1
                if message.tag.metadata.sequence.consumer != self._delivered:  # the client drops what it cannot hold
                    raise Away("a message was dropped on the way")
        else:
            self._own.update(message.tag.metadata.sequence.stream for message in found)
        return found

    def acknowledge(self, messages: Sequence[Message]) -> None:
        if self._group:
            self._run(self._acknowledge([message.tag for message in messages]))
            self._own.difference_update(message.tag.metadata.sequence.stream for message in messages)

    def pending(self) -> Pending | None:
        return self._run(self._pending()) if self._group else None

    def look(self) -> Pending | None:
        self._run(self._open())
        try:
            return self.pending()
        finally:
            self._end()

    def close(self) -> None:
        self._end()
        self._loop.close()

    def _end(self) -> None:
        if self._client is not None:
            try:
                self._run(self._client.close())
            except Away:
                return
            finally:
                self._client = None

    async def _open(self) -> None:
        address = self._address
        options: dict[str, Any] = {"token": address.token} if address.token else {}
        if address.user:
            options |= {"user": address.user, "password": address.password}
        if address.tls:
            options["tls"] = ssl.create_default_context(cafile=address.query.get("ca"))
            if "cert" in address.query:
                options["tls"].load_cert_chain(address.query["cert"], address.query.get("key"))
        scheme = "tls" if address.tls else "nats"
        self._client = await self._nats.connect(
            f"{scheme}://{address.host}:{address.port or 4222}",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # of the first connection, 2 s apart; 60 by default
            reconnect_time_wait=0.1,
            connect_timeout=PATIENCE,
            error_cb=_nothing,
            **options,
        )
        stream = self._client.jetstream(timeout=PATIENCE)
        try:
            self._stream = await stream.find_stream_name_by_subject(address.path)
        except self._js.errors.NotFoundError:
            what = f"{address.name}: no stream of JetStream has the subject {address.path}"
            raise ServiceError(what, hint="make one: nats stream add NAME --subjects SUBJECT") from None

    async def _subscribe(self, last: tuple[int, ...]) -> None:
        address, api, name = self._address, self._js.api, self._stream
        stream = self._client.jetstream(timeout=PATIENCE)
        if self._group:
            config = api.ConsumerConfig(
                ack_policy=api.AckPolicy.EXPLICIT, ack_wait=self._claim, max_ack_pending=PENDING, max_deliver=-1
            )
            self._subscription = await stream.pull_subscribe(
                address.path, durable=self._group, stream=name, config=config
            )
            return
        state = (await stream.stream_info(name)).state
        address.check_reach(last, (state.last_seq,), (state.first_seq - 1,))
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=last[0] + 1 if last else 1,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=5 * 60.0,
        )
        self._subscription = await stream.pull_subscribe(address.path, stream=name, config=config)

    async def _fetch(self, most: int, timeout: float) -> list[Any]:
        if not self._client.is_connected:
            raise Away("the connection is lost")
        found = list[Any]()  # the server waits for as many as are asked for, until the timeout
        with suppress(TimeoutError, self._nats.errors.TimeoutError):
            if self._full:
                found += await self._subscription.fetch(most, timeout=min(timeout, SHORT))
            else:
                found += await self._subscription.fetch(1, timeout=timeout)
                if most > 1:
                    found += await self._subscription.fetch(most - 1, timeout=SHORT)
        self._full = len(found) == most
        return found

    async def _pending(self) -> Pending | None:
        stream = self._client.jetstream(timeout=PATIENCE)
        try:
            found = await stream.consumer_info(self._stream, self._group)
        except self._js.errors.NotFoundError:
            return None  # nobody has begun yet
        return Pending(max(0, (found.num_ack_pending or 0) - len(self._own)), self._claim)

    async def _acknowledge(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if message._client is self._client:  # of this connection
                await message.ack()
        await self._client.flush(PATIENCE)

    def _message(self, one: Any) -> Message:
        metadata = one.metadata
        position = (metadata.sequence.stream,) if self.width else ()
        return Message(one.data, one.subject, "", position, metadata.num_delivered > 1, one)

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        """Run to the end.

        Raises:
            Away: the broker cannot be reached, or has no answer.
            ServiceError: it refuses.
        """
        address, errors, js = self._address, self._nats.errors, self._js.errors
        try:
            return self._loop.run_until_complete(what)
        except (errors.AuthorizationError, js.NotFoundError, js.BadRequestError, ssl.SSLError) as error:
            raise address.refused(error) from None
        except errors.Error as error:
            text = str(error).lower()
            refused = "authorization" in text or "permissions" in text or "authentication" in text
            raise (address.refused(error) if refused else Away(address.plain(error))) from None
        except OSError as error:
            raise Away(address.plain(error)) from None


async def _nothing(error: Exception) -> None:
    """What the library reports beside what it raises."""
