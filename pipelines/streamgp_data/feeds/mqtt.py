"""MQTT 5: `mqtt://host:port/topic/#`, QoS 1, a persistent session, acknowledged by hand.

The broker keeps what it has delivered until it is acknowledged, and delivers it again after a connection was lost. It
gives no positions: what comes again is known by the series and the time of its rows. At most WINDOW messages are
delivered and not acknowledged.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Any

from streamgp.errors import ServiceError, UsageError
from streamgp_data.messages import PATIENCE, Address, Away, Marks, Message, Pending, client

SCHEMES, ENCRYPTED = ("mqtt", "mqtts"), ("mqtts",)
OPTIONS = ("client",)
EXAMPLE = "mqtt://localhost:1883/meters/#"

WINDOW = 1 << 13
_TAKEN_OVER, _REFUSED = 142, range(128, 160)
_FOR_NOW = (128, 136, 137, 139, 141, 151, 159)  # lost, unavailable, busy, shutting down, keep alive, quota, rate


def whole(address: Address) -> bool:
    """Whether a URL has all that is needed."""
    return bool(address.path)


def build(address: Address) -> Mqtt:
    """The feed of a topic filter.

    Raises:
        UsageError: paho-mqtt is not installed, or processes that share a topic cannot be distinguished.
    """
    if "group" in address.query and "client" not in address.query:
        raise UsageError(
            f"{address.name}: processes that share a topic have a session each",
            hint="give each another client=NAME in the URL, beside group",
        )
    return Mqtt(address)


class Mqtt:
    """A Feed."""

    width = 0

    def __init__(self, address: Address) -> None:
        self._address = address
        self._mqtt = client("paho.mqtt.client", "mqtt")
        self._client: Any = None
        self._life = 0  # of the connection: a broker uses the numbers of messages again
        self._messages: deque[Message] = deque()
        self._changed = Condition()
        self._lost: Exception | None = None
        self._state = ""

    def connect(self, marks: Marks) -> None:
        mqtt, address = self._mqtt, self._address
        self._open(address.query.get("client", address.member))
        topic = f"$share/{address.query['group']}/{address.path}" if "group" in address.query else address.path
        options = mqtt.SubscribeOptions(qos=1, retainHandling=1)  # what is retained comes with the first subscription
        self._client.subscribe(topic, options=options)
        self._await("subscribed")

    def _open(self, name: str, session: bool = True) -> None:
        mqtt, address = self._mqtt, self._address
        self.close()
        self._life += 1
        self._messages.clear()
        self._lost, self._state = None, ""
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5, reconnect_on_failure=False, manual_ack=True
        )
        if address.user or address.password:
            self._client.username_pw_set(address.user, address.password or address.token or None)
        properties = mqtt.Properties(mqtt.PacketTypes.CONNECT)
        properties.SessionExpiryInterval, properties.ReceiveMaximum = 0xFFFFFFFF if session else 0, WINDOW
        life = self._life
        self._client.on_connect = lambda _client, _data, _flags, code, _more: self._told(life, "connected", code)
        self._client.on_subscribe = lambda _client, _data, _mid, codes, _more: self._told(life, "subscribed", *codes)
        self._client.on_disconnect = lambda _client, _data, _flags, code, _more: self._gone(life, code)
        self._client.on_message = lambda _client, _data, message: self._take(life, message)
        try:
            if address.tls:
                self._client.tls_set(address.query.get("ca"), address.query.get("cert"), address.query.get("key"))
            port = address.port or (8883 if address.tls else 1883)
            self._client.connect(address.host, port, 30, clean_start=not session, properties=properties)
        except ssl.SSLError as error:
            raise address.refused(error) from None
        except OSError as error:
            raise Away(address.plain(error)) from None
        self._client.loop_start()
        self._await("connected")

    def poll(self, most: int, timeout: float) -> list[Message]:
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._lost, timeout)
            if self._lost is not None and not self._messages:
                raise self._lost
            found = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
            self._changed.notify_all()
        return found

    def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            life, number, quality = message.tag
            if life == self._life:
                self._client.ack(number, quality)

    def pending(self) -> Pending | None:
        return None  # the broker does not say what it holds for others

    def look(self) -> Pending | None:
        try:
            self._open("", session=False)  # a name of the broker's choice: that of the reader would end its connection
        finally:
            self.close()
        return None

    def close(self) -> None:
        if self._client is not None:
            with self._changed:
                self._state = ""
                self._changed.notify_all()
            self._client.disconnect()
            self._client.loop_stop()

    def _await(self, state: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._state == state or self._lost, PATIENCE)
            if self._state != state:
                raise self._lost or Away("it does not answer")

    def _told(self, life: int, state: str, *codes: Any) -> None:
        with self._changed:
            wrong = [code for code in codes if code.value in _REFUSED]
            if life == self._life and wrong:
                self._fail(wrong[0])
            elif life == self._life:
                self._state = state
            self._changed.notify_all()

    def _gone(self, life: int, code: Any) -> None:
        with self._changed:
            if life == self._life and self._lost is None:
                self._fail(code)
            self._changed.notify_all()

    def _fail(self, code: Any) -> None:
        if code.value == _TAKEN_OVER:
            self._lost = ServiceError(
                f"{self._address.name}: another process has taken the session",
                hint="one process reads a topic into a table; more share it with group=NAME&client=NAME in the URL",
            )
        else:
            temporary = code.value not in _REFUSED or code.value in _FOR_NOW
            self._lost = Away(str(code)) if temporary else self._address.refused(code)

    def _take(self, life: int, message: Any) -> None:
        again, tag = message.dup or message.retain, (life, message.mid, message.qos)
        with self._changed:
            if life != self._life:
                return
            patience = time.monotonic() + PATIENCE  # QoS 0 has no window, and not all brokers keep to it: TCP does
            while self._state == "subscribed" and len(self._messages) > 2 * WINDOW and time.monotonic() < patience:
                self._changed.wait(0.1)
            self._messages.append(Message(message.payload, message.topic, "", (), again, tag))
            self._changed.notify_all()
