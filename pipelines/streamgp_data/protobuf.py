"""Messages of Protocol Buffers, read by a compiled schema (a FileDescriptorSet): data, of which nothing is run."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamgp_data.messages import client

_MODULES = ("descriptor", "descriptor_pb2", "descriptor_pool", "message", "message_factory")
_NUMBERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32")
_WRAPPED = {f"google.protobuf.{name}Value" for name in (*_NUMBERS, "Bool", "String")}
_OWN = {
    f"google/protobuf/{name}.proto"
    for name in ("any", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers")
}
"""Files that the library brings along."""
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


class Column(NamedTuple):
    """A field of a message or of one within it: its name with dots, and the fields that lead to it."""

    name: str
    path: tuple[Any, ...]


class ProtobufSchema:
    """The types of a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it.

    Args:
        data: the serialised set. Types of Google such as `google/protobuf/timestamp.proto` may be missing.

    Raises:
        ValueError: it is none, or lacks a file that it imports.
        UsageError: the package protobuf is not installed.
    """

    def __init__(self, data: bytes) -> None:
        parts = {name: client(f"google.protobuf.{name}", "protobuf") for name in _MODULES}
        self._decode_error = parts["message"].DecodeError
        self._class_of, self._kinds = parts["message_factory"].GetMessageClass, parts["descriptor"].FieldDescriptor
        self._pool = parts["descriptor_pool"].DescriptorPool()
        usual = parts["descriptor_pool"].Default()
        found = parts["descriptor_pb2"].FileDescriptorSet()
        try:
            found.ParseFromString(data)
        except self._decode_error as error:
            raise ValueError(str(error)) from None
        files = {file.name: file for file in found.file}
        if not files:
            raise ValueError("it has no types")
        added = set[str]()

        def add(name: str, on: tuple[str, ...]) -> None:
            if name in added:
                return
            if name in on or (name not in files and name not in _OWN):
                raise ValueError(f"{name} is imported and is not in it")
            if name in files:
                for needed in files[name].dependency:
                    add(needed, (*on, name))
                self._pool.Add(files[name])
            else:
                client(f"google.protobuf.{name.split('/')[-1].removesuffix('.proto')}_pb2", "protobuf")
                self._pool.AddSerializedFile(usual.FindFileByName(name).serialized_pb)
            added.add(name)

        try:
            for name in files:
                add(name, ())
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError(" ".join(str(error).split())[:200]) from None
        self._names = sorted(
            f"{file.package}.{one.name}".removeprefix(".") for file in found.file for one in file.message_type
        )

    @property
    def names(self) -> list[str]:
        """Types that are in no other one."""
        return self._names

    def message(self, name: str) -> Any:
        """The class of a type.

        Raises:
            ValueError: there is no such type.
        """
        try:
            return self._class_of(self._pool.FindMessageTypeByName(name))
        except KeyError:
            raise ValueError(f"no message is called {name[:80]}; there are: {', '.join(self._names)[:300]}") from None

    def columns(self, kind: Any) -> tuple[list[Column], dict[str, str]]:
        """The fields of a type that have one value, and those that are left out: name -> why."""
        found, left_out = list[Column](), dict[str, str]()

        def walk(descriptor: Any, path: tuple[Any, ...], above: tuple[str, ...]) -> None:
            for field in descriptor.fields:
                name = ".".join(one.name for one in (*path, field))
                if field.is_repeated:
                    left_out[name] = "repeated"
                elif field.type == self._kinds.TYPE_BYTES:
                    left_out[name] = "bytes"
                elif field.message_type is None or _is_value(field.message_type):
                    found.append(Column(name, (*path, field)))
                elif field.message_type.full_name in above:
                    left_out[name] = "a message within itself"
                else:
                    walk(field.message_type, (*path, field), (*above, field.message_type.full_name))

        walk(kind.DESCRIPTOR, (), (kind.DESCRIPTOR.full_name,))
        return found, left_out

    def parse(self, kind: Any, raw: bytes) -> Any:
        """A message of a type.

        Raises:
            ValueError: the bytes are none.
        """
        try:
            return kind.FromString(raw)
        except self._decode_error as error:
            raise ValueError(str(error)) from None


def row(message: Any, columns: list[Column]) -> dict[str, Any]:
    """The values of a message; None where a field that can be left out is."""
    found: dict[str, Any] = {}
    for name, path in columns:
        value: Any = message
        for field in path:
            value = None if field.has_presence and not value.HasField(field.name) else getattr(value, field.name)
            if value is None:
                break
        found[name] = None if value is None else _value(path[-1], value)
    return found


def tree(message: Any) -> dict[str, Any]:
    """A message as dictionaries and lists, without fields that are not set where that can be known; an enumeration is
    its number."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is None:
                found[field.name] = [_value(field, one) for one in value]
            elif not field.message_type.GetOptions().map_entry:
                found[field.name] = [_branch(field, one) for one in value]
        else:
            found[field.name] = _branch(field, value)
    return found


def _branch(field: Any, value: Any) -> Any:
    kind = field.message_type
    if field.enum_type is not None:
        return value
    return tree(value) if kind is not None and not _is_value(kind) else _value(field, value)


def _is_value(kind: Any) -> bool:
    return kind.full_name in (_TIMESTAMP, _DURATION) or kind.full_name in _WRAPPED


def _value(field: Any, value: Any) -> Any:
    """A number, a truth value or text."""
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.ToJsonString()
    if field.message_type.full_name == _DURATION:
        return value.seconds + value.nanos / 1e9
    return value.value
