"""Messages of ROS 1 and 2, decoded by the definitions that a bag carries."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import Any

from streamgp.streaming.recordings.recording import needs

_NAME = re.compile(r"[A-Za-z]\w*(/[A-Za-z]\w*){1,2}")


class Types:
    """Message types: the standard ones of ROS 2, and those of definitions.

    rosbags makes Python code of a definition. What reaches that code are identifiers, types and lengths, which its
    grammar has checked: names of types are checked here, constants are dropped.
    """

    def __init__(self) -> None:
        self._typesys = needs("rosbags.typesys", "mcap")
        self._standard = self._typesys.get_typestore(self._typesys.Stores.ROS2_HUMBLE)
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
        read = self._typesys
        found = read.get_types_from_idl(text) if idl else read.get_types_from_msg(text, _full(name))
        if not all(_NAME.fullmatch(one) for one in found):
            raise ValueError("a type has no usable name")
        store = read.get_typestore(read.Stores.EMPTY)  # two bags may call two types the same
        store.register({one: ([], fields) for one, (_, fields, *_) in found.items()})
        self._stores[_full(name)] = store

    def decode(self, raw: bytes, name: str, ros1: bool = False) -> dict[str, Any]:
        """The fields of a message, without the header, whose stamp is the sender's."""
        name = _full(name)
        store = self._stores.get(name, self._standard)
        message = store.deserialize_ros1(raw, name) if ros1 else store.deserialize_cdr(raw, name)
        found: dict[str, Any] = _plain(message)
        return found


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
