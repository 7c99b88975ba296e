"""Messages of ROS 1 and 2, decoded by the definitions that a bag carries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from streamgp_data.recordings.recording import needs

_NAME = re.compile(r"[A-Za-z]\w*(/[A-Za-z]\w*){1,2}")
_LONGEST = 1 << 18
"""Characters of a definition."""
_FIELDS = 1 << 12
"""Fields of a message, those of the messages within it counted too: rosbags writes code for each."""


class Types:
    """Message types: the standard ones of ROS 2, and those of definitions.

    rosbags makes Python code of a definition. What reaches that code are identifiers, types and lengths, which its
    grammar has checked: names of types are checked here, constants are dropped, and so are types so large that the
    code would fill the memory.
    """

    def __init__(self) -> None:
        self._stores: dict[str, Any] = {}

    def define(self, name: str, text: str, idl: bool = False) -> str | None:
        """Take up a type by its definition; of ROS 1 or 2, or of IDL. Returns why that cannot be done, or None."""
        try:
            self._define(name, text, idl)
        except Exception as error:  # whatever the parser of definitions raises
            return f"its definition: {error}".splitlines()[0][:200]
        return None

    def _define(self, name: str, text: str, idl: bool) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a message type")
        if len(text) > _LONGEST:
            raise ValueError(f"{len(text):,} characters, more than {_LONGEST:,}")
        self._stores[_full(name)] = _store(name, text, idl)

    def decode(self, raw: bytes, name: str, ros1: bool = False) -> dict[str, Any]:
        """The fields of a message, without the header, whose stamp is the sender's."""
        name = _full(name)
        store = self._stores.get(name) or _standard()
        message = store.deserialize_ros1(raw, name) if ros1 else store.deserialize_cdr(raw, name)
        found: dict[str, Any] = _plain(message)
        return found


@cache
def _standard() -> Any:
    read = needs("rosbags.typesys", "mcap")
    return read.get_typestore(read.Stores.ROS2_HUMBLE)


@lru_cache(maxsize=256)
def _store(name: str, text: str, idl: bool) -> Any:
    """The types of one definition; they are its own, as two bags may call two types the same.

    Raises:
        ValueError: a type has no usable name, or is too large.
    """
    read = needs("rosbags.typesys", "mcap")
    found = _types_of_idl(text) if idl else read.get_types_from_msg(text, _full(name))
    if not all(_NAME.fullmatch(one) for one in found):
        raise ValueError("a type has no usable name")
    _check_size(found)
    store = read.get_typestore(read.Stores.EMPTY)
    store.register({one: ([], fields) for one, (_, fields, *_) in found.items()})
    return store


def _types_of_idl(text: str) -> Any:
    """The types of a definition in IDL, by rosbags' grammar.

    Each rule of it remembers what it found at a place: without that, an expression takes some hundred times as long for
    each pair of brackets. Shifts, which could make numbers of any length, are no part of it here.
    """
    grammar: Any = needs("rosbags.typesys.idl", "mcap").IDLParser

    class Remembering(grammar):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(text)
            for name in vars(grammar):
                if not name.startswith("_") and name != "specification":
                    setattr(self, name, cache(getattr(self, name)))

        def shift_expr(self, place: int) -> Any:
            return self.add_expr(place)

    return needs("rosbags.typesys.base", "mcap").make_typesdict(Remembering().specification())


class _Size(NamedTuple):
    """Of a message or of a field: how many parts it has, and whether it takes bytes."""

    parts: int
    bytes: bool


def _check_size(found: Mapping[str, Any]) -> None:
    """See that no message is made of very many fields, holds itself, or has a list whose elements take no bytes.

    Raises:
        ValueError: one is.
    """
    sizes: dict[str, _Size] = {}

    def message(name: str, within: tuple[str, ...]) -> _Size:
        if name in within:
            raise ValueError(f"{name} holds itself")
        if name not in found:
            return _Size(1, True)
        if name not in sizes:
            inside = [field(node, about, (*within, name)) for _, (node, about) in found[name][1]]
            sizes[name] = _Size(1 + sum(one.parts for one in inside), any(one.bytes for one in inside))
        if sizes[name].parts > _FIELDS:
            raise ValueError(f"{name} has {sizes[name].parts:,} fields, more than {_FIELDS:,}")
        return sizes[name]

    def field(node: Any, about: Any, within: tuple[str, ...]) -> _Size:
        if node.name == "BASE":
            return _Size(1, True)
        if node.name == "NAME":
            return message(about, within)
        (inner, what), length = about
        each = field(inner, what, within)
        if not each.bytes:
            raise ValueError("a list of messages without fields")
        numbers = inner.name == "BASE" and what[0] not in ("string", "wstring")
        if node.name == "ARRAY":
            return _Size(1 if numbers else each.parts * length, length > 0)
        return _Size(each.parts, True)

    for name in found:
        message(name, ())


def _full(name: str) -> str:
    package, _, last = name.rpartition("/")
    return name if package.endswith("/msg") else f"{package}/msg/{last}"


def _plain(value: Any) -> Any:
    """A message as dictionaries, lists and arrays."""
    if is_dataclass(value):
        fields = {key: one for key, one in vars(value).items() if not key.startswith("__")}
        return {key: _plain(one) for key, one in fields.items() if not _is_header(one)}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _is_header(value: Any) -> bool:
    return is_dataclass(value) and {"stamp", "frame_id"} <= vars(value).keys()
