"""Messages of a broker: what a feed of them is, and the URL that names one."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import tee
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from streamgp import registry
from streamgp.errors import DataError, ServiceError, UsageError

KIND = "feeds"

PATIENCE = 10.0
"""Seconds that a broker may take to answer."""


class Away(Exception):
    """The broker cannot be reached: connect again, later."""


class Message(NamedTuple):
    """What a broker delivers.

    Attributes:
        payload: its bytes.
        topic: what it was published to: topic, subject or stream.
        partition: which part of the topic has it; "" where there is one.
        position: where in the partition it is, in lexicographic order; () where the feed has no positions.
        again: whether the broker may have delivered it before.
        tag: what the feed acknowledges it by.
        about: what the broker calls it, where `position` does not say it, and the field that has the payload.
    """

    payload: bytes
    topic: str
    partition: str
    position: tuple[int, ...]
    again: bool
    tag: Any
    about: tuple[bytes, ...] = ()


def by_partition(messages: Iterable[Message]) -> dict[str, tuple[int, ...]]:
    """Partition -> the position of its last message."""
    one, other = tee(messages)
    return dict(zip(map(_PARTITION, one), map(_POSITION, other), strict=True))


_PARTITION, _POSITION = itemgetter(2), itemgetter(3)


@dataclass(frozen=True)
class Pending:
    """What other members of a group were sent, and have not acknowledged.

    Attributes:
        messages: how many.
        claim: seconds after which those of a dead member are sent to one that asks.
        idle: seconds since the member that is silent for longest was heard of; None where the broker does not say.
    """

    messages: int
    claim: float
    idle: float | None = None


Marks = Callable[[str], tuple[int, ...]]
"""Partition -> the position of its last message that the table has, () before the first; it looks into the table."""


class Feed(Protocol):
    """A subscription to messages of a broker. None of its methods is called from two threads at once.

    Attributes:
        width: how many numbers a position has; 0 where messages have none: they are known by the rows that they bring.
            Messages with positions come without gaps, in the order of these, from the mark of their partition on.
    """

    width: int

    def connect(self, marks: Marks) -> None:
        """Subscribe; once more after `Away`, on what is left of the connection before.

        Raises:
            Away: the broker cannot be reached.
            ServiceError: it refuses.
        """
        ...

    def poll(self, most: int, timeout: float) -> list[Message]:
        """Messages, `most` at most; none where nothing came for `timeout` seconds, or may come before some are
        acknowledged.

        Raises:
            Away, ServiceError: as `connect`.
        """
        ...

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """The table has these, in the order of `poll`; those of an earlier connection are left to the broker.

        Raises:
            Away, ServiceError: as `connect`.
        """
        ...

    def pending(self) -> Pending | None:
        """What other members of the group hold; None without a group, or where the broker does not say.

        Raises:
            Away, ServiceError: as `connect`.
        """
        ...

    def look(self) -> Pending | None:
        """Connect, ask as `pending`, and end the connection; nothing is subscribed to and nothing changes.

        Raises:
            Away, ServiceError: as `connect`.
        """
        ...

    def close(self) -> None:
        """End the connection; the subscription stays."""
        ...


@dataclass(frozen=True)
class Address:
    """Where a feed is, and who may read it.

    Attributes:
        scheme, host, port, path: of the URL; port 0 where it has none. query: its options.
        tls: whether the connection is encrypted.
        user, password, token: of the URL, else of STREAMGP_SOURCE_USER, _PASSWORD and _TOKEN, or of the files that
            STREAMGP_SOURCE_PASSWORD_FILE and _TOKEN_FILE name; "" without.
        member: identifies the readers of one table to the broker.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: dict[str, str]
    tls: bool
    member: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The URL without credentials: what marks and quarantine call the source."""
        port = f":{self.port}" if self.port else ""
        stream = f"?stream={self.query['stream']}" if "stream" in self.query else ""
        return f"{self.scheme}://{self.host}{port}/{self.path}{stream}"

    def refused(self, why: object) -> ServiceError:
        """The broker has answered, and will not answer otherwise."""
        return ServiceError(
            f"{self.name}: the broker refuses: {self.plain(why)}",
            hint="are user, password or token (STREAMGP_SOURCE_USER, _PASSWORD, _TOKEN) and the name right?",
        )

    def check_reach(
        self, mark: tuple[int, ...], newest: tuple[int, ...], removed: tuple[int, ...], partition: str = ""
    ) -> None:
        """See that the broker still has what comes after the table's messages.

        Args:
            mark: position of the last message that the table has; () where there is none.
            newest: of the last message that the broker has had. removed: of the last one that it has no more.
            partition: of all these.

        Raises:
            DataError: positions have begun again: new messages would be taken for old ones.
        """
        where = f"{self.name}, partition {partition}" if partition else self.name
        if mark and newest < mark:
            raise DataError(
                f"{where}: the table has messages up to {_shown(mark)}, the broker up to {_shown(newest)}: "
                "it was made again",
                hint="take it as another source: --as NAME",
            )
        if mark and removed > mark:
            logging.getLogger("streamgp").warning(
                f"{where}: the broker has dropped messages after {_shown(mark)}: some may not have been read"
            )

    def plain(self, why: object) -> str:
        """What a library says, on one line and without credentials."""
        text = " ".join(str(why).split()) or type(why).__name__
        for secret in (self.password, self.token):
            text = text.replace(secret, "***") if secret else text
        return text[:300]


def _shown(position: tuple[int, ...]) -> str:
    return "-".join(str(number) for number in position)


@cache
def _schemes() -> dict[str, str]:
    """Scheme -> feed, as the feeds' own files declare them."""
    return {scheme: name for name in registry.names(KIND) for scheme in registry.load(KIND, name).SCHEMES}


def is_feed(uri: str) -> bool:
    """Whether a source is a broker's.

    Example:
        >>> is_feed("mqtt://localhost/meters/#"), is_feed("data/demand.csv"), is_feed("s3://bucket/demand.csv")
        (True, False, False)
    """
    return "://" in uri and uri.split("://")[0] in _schemes()


def open_feed(uri: str, reader: str) -> tuple[Address, Feed]:
    """The feed at a URL, not connected yet.

    Args:
        uri: of the broker, and of what is read there.
        reader: identifies who reads, such as the path of a table.

    Raises:
        UsageError: the URL cannot be understood, or the client library is not installed.
    """
    module: ModuleType = registry.load(KIND, _schemes()[uri.split("://")[0]])
    address = _address(uri, reader, module)
    feed: Feed = module.build(address)
    return address, feed


def _address(uri: str, reader: str, module: ModuleType) -> Address:
    scheme = uri.split("://")[0]
    url = urlsplit(uri.replace("#", "%23"))  # a wildcard of MQTT
    path, query = unquote(url.path.removeprefix("/")), dict(parse_qsl(url.query, keep_blank_values=True))
    known = {*module.OPTIONS, "ca", "cert", "key", "group"}
    if alien := sorted(set(query) - known):
        hint = f"it may have: {', '.join(sorted(known))}"
        raise UsageError(f"a {scheme}:// URL has no option {', '.join(alien)}", hint=hint)
    try:
        port = url.port or 0
    except ValueError:
        port = -1
    if port < 0 or not url.hostname:
        raise UsageError(f"a {scheme}:// URL needs a host", hint=f"such as {module.EXAMPLE}")
    name = f"{scheme}://{url.hostname}:{port}/{path}?{query.get('stream', '')}"
    member = f"streamgp-{sha256(f'{name} {reader}'.encode()).hexdigest()[:12]}"
    found = Address(scheme, url.hostname, port, path, query, scheme in module.ENCRYPTED, member, **_credentials(url))
    if not module.whole(found):
        raise UsageError(f"{found.name}: what is to be read is not named", hint=f"such as {module.EXAMPLE}")
    return found


def _credentials(url: SplitResult) -> dict[str, str]:
    """User, password and token."""
    return {
        "user": unquote(url.username or "") or os.environ.get("STREAMGP_SOURCE_USER", ""),
        "password": unquote(url.password or "") or _secret("STREAMGP_SOURCE_PASSWORD"),
        "token": _secret("STREAMGP_SOURCE_TOKEN"),
    }


def _secret(variable: str) -> str:
    """What a variable has, or the file that it names with _FILE."""
    if given := os.environ.get(variable):
        return given
    file = os.environ.get(f"{variable}_FILE")
    try:
        return Path(file).read_text(encoding="utf-8").strip() if file else ""
    except OSError as error:
        raise UsageError(f"{variable}_FILE: {file}: {error.strerror}", hint="name a file that can be read") from None


def client(module: str, extra: str) -> Any:
    """The client library of a broker.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UsageError(f"{extra}: this needs the package {module}", hint=f"pip install 'streamgp[{extra}]'") from None
