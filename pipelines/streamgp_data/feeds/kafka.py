"""Kafka: `kafka://host:port/topic`. The offsets of partitions are the positions.

A process reads all partitions; with `group=NAME` a consumer group divides them over processes. Either way reading
begins after the offsets of the table; those that are committed to the broker are for its own tools. What is not taken
waits in the client, at most 16 MB of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

from streamgp_data.messages import PATIENCE, Address, Away, Marks, Message, Pending, by_partition, client

SCHEMES, ENCRYPTED = ("kafka", "kafkas"), ("kafkas",)
OPTIONS = ("mechanism",)
EXAMPLE = "kafka://localhost:9092/meters"

PIECE = 1 << 14
"""Messages that are taken at once."""

JOINING = 60.0
"""Seconds that a group may take to assign partitions: until those of a dead member are free."""

LOOK = 60.0
"""Seconds from one look for new partitions to the next."""


def whole(address: Address) -> bool:
    """Whether a URL has all that is needed."""
    return bool(address.path)


def build(address: Address) -> Kafka:
    """The feed of a topic.

    Raises:
        UsageError: confluent-kafka is not installed.
    """
    return Kafka(address)


class _Numbers(dict[int, str]):
    """Numbers as text."""

    def __missing__(self, number: int) -> str:
        return self.setdefault(number, str(number))


class Kafka:
    """A Feed."""

    width = 1

    def __init__(self, address: Address) -> None:
        self._address, self._kafka = address, client("confluent_kafka", "kafka")
        self._consumer: Any = None
        self._lost: Exception | None = None
        self._held: list[Message] = []
        self._assigned, self._looked = False, 0.0
        self._partitions: list[int] = []
        self._numbers = _Numbers()

    def connect(self, marks: Marks) -> None:
        kafka, address = self._kafka, self._address
        self.close()
        self._lost, self._assigned, self._held = None, False, []
        self._consumer = kafka.Consumer(self._settings(), logger=_silent())

        def assign(consumer: Any, partitions: list[Any]) -> None:
            for partition in partitions:
                last = marks(str(partition.partition))
                if last:
                    try:
                        oldest, following = consumer.get_watermark_offsets(partition, PATIENCE)
                    except kafka.KafkaException as error:
                        raise self._lost or self._failure(error.args[0]) from None
                    address.check_reach(last, (following - 1,), (oldest - 1,), str(partition.partition))
                partition.offset = last[0] + 1 if last else kafka.OFFSET_BEGINNING
            consumer.assign(partitions)
            self._assigned = True

        self._partitions = self._known()
        if "group" not in address.query:
            assign(self._consumer, [kafka.TopicPartition(address.path, number) for number in self._partitions])
            return
        self._consumer.subscribe([address.path], on_assign=assign)
        until = time.monotonic() + JOINING
        while not self._assigned:
            self._held += self._take(1, 0.1)
            if time.monotonic() > until:
                raise Away("the group assigns no partitions")

    def _known(self) -> list[int]:
        """The partitions of the topic."""
        kafka, topic, self._looked = self._kafka, self._address.path, time.monotonic()
        try:
            found = self._consumer.list_topics(topic, PATIENCE).topics[topic]
        except kafka.KafkaException as error:
            raise self._lost or self._failure(error.args[0]) from None
        if found.error is not None:
            raise self._failure(found.error)
        return sorted(found.partitions)

    def poll(self, most: int, timeout: float) -> list[Message]:
        if time.monotonic() - self._looked > LOOK and self._known() != self._partitions:
            raise Away("the topic has other partitions")
        found, self._held = self._held, []
        return found or self._take(min(most, PIECE), timeout)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        if not messages or self._consumer is None:
            return
        of = self._kafka.TopicPartition
        last = by_partition(messages).items()
        offsets = [of(self._address.path, int(partition), offset + 1) for partition, (offset,) in last]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def pending(self) -> Pending | None:
        return None  # partitions are divided, not messages

    def look(self) -> Pending | None:
        self.close()
        settings = {**self._settings(), "allow.auto.create.topics": False}
        self._lost, self._consumer = None, self._kafka.Consumer(settings, logger=_silent())
        try:
            self._known()
        finally:
            self.close()
        return None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _settings(self) -> dict[str, Any]:
        address = self._address
        found: dict[str, Any] = {
            "bootstrap.servers": f"{address.host}:{address.port or 9092}",
            "group.id": address.query.get("group", address.member),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1 << 14,
            "session.timeout.ms": 10_000,
            "allow.auto.create.topics": True,
            "error_cb": self._failed,
        }
        if address.user:
            mechanism = address.query.get("mechanism", "PLAIN")
            found |= {"sasl.mechanism": mechanism, "sasl.username": address.user, "sasl.password": address.password}
        protocol = ("SASL_" if address.user else "") + ("SSL" if address.tls else "PLAINTEXT")
        names = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}
        files = {names[key]: address.query[key] for key in names if key in address.query}
        return found | {"security.protocol": protocol} | files

    def _take(self, most: int, timeout: float) -> list[Message]:
        first = self._consumer.consume(1, timeout)  # of more it would wait for all, until the timeout
        taken = [*first, *(self._consumer.consume(most - 1, 0.0) if first and most > 1 else ())]
        kind = self._kafka.Message  # its methods are mapped: no code of Python runs for each message
        wrong = [error for error in map(kind.error, taken) if error is not None]
        if wrong:
            taken = [one for one in taken if one.error() is None]
        for error in wrong:
            if error.code() != self._kafka.KafkaError._PARTITION_EOF:
                self._failed(error)
        payloads = list(map(kind.value, taken))
        if None in payloads:
            payloads = [payload or b"" for payload in payloads]
        partitions = map(self._numbers.__getitem__, map(kind.partition, taken))
        positions = zip(map(kind.offset, taken), strict=True)
        parts = payloads, repeat(self._address.path), partitions, positions, repeat(False), repeat(None), repeat(())
        found = list(map(partial(tuple.__new__, Message), zip(*parts, strict=False)))  # what repeats has no end
        if self._lost is not None and not found:
            raise self._lost
        return found

    def _failed(self, error: Any) -> None:
        code, kinds = error.code(), self._kafka.KafkaError
        passing = (kinds._TRANSPORT, kinds._RESOLVE, kinds._MAX_POLL_EXCEEDED)  # one broker of several; it continues
        if code == kinds._ALL_BROKERS_DOWN or error.fatal() or code in self._refusals() or code not in passing:
            self._lost = self._failure(error)

    def _failure(self, error: Any) -> Exception:
        why = error.str()
        return self._address.refused(why) if error.code() in self._refusals() else Away(self._address.plain(why))

    def _refusals(self) -> tuple[int, ...]:
        kinds = self._kafka.KafkaError
        refused = (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED, kinds.TOPIC_AUTHORIZATION_FAILED)
        return (*refused, kinds.GROUP_AUTHORIZATION_FAILED, kinds._SSL, kinds.UNSUPPORTED_SASL_MECHANISM)


def _silent() -> Any:
    """What librdkafka logs is said by what we raise."""
    import logging

    found = logging.getLogger("streamgp.kafka")
    found.addHandler(logging.NullHandler())
    found.propagate = False
    return found
