"""A type of Protocol Buffers in a descriptor set, as protoc would write it, and messages of it by the library alone."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf import timestamp_pb2 as timestamps
from google.protobuf import wrappers_pb2 as wrappers

FILE = {
    "name": "plant.proto",
    "package": "plant",
    "syntax": "proto3",
    "dependency": ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "place.proto"],
}
Kind = descriptor_pb2.FieldDescriptorProto
METER = [  # name, type, type name, repeated, optional
    ("ds", Kind.TYPE_MESSAGE, ".google.protobuf.Timestamp", False, False),
    ("y", Kind.TYPE_DOUBLE, "", False, False),
    ("count", Kind.TYPE_INT64, "", False, True),
    ("state", Kind.TYPE_ENUM, ".plant.State", False, False),
    ("kw", Kind.TYPE_MESSAGE, ".google.protobuf.DoubleValue", False, False),
    ("place", Kind.TYPE_MESSAGE, ".plant.Place", False, False),
    ("phases", Kind.TYPE_DOUBLE, "", True, False),
    ("raw", Kind.TYPE_BYTES, "", False, False),
]


def descriptor_set(imports: bool = True) -> bytes:
    """plant.Meter, which has a plant.Place of another file; `imports`: with the files of Google."""
    place = descriptor_pb2.FileDescriptorProto(name="place.proto", package="plant", syntax="proto3")
    kind = place.message_type.add(name="Place")
    kind.field.add(name="floor", number=1, type=Kind.TYPE_SINT32, label=Kind.LABEL_OPTIONAL)
    kind.field.add(name="within", number=2, type=Kind.TYPE_MESSAGE, type_name=".plant.Place", label=Kind.LABEL_OPTIONAL)
    meter = descriptor_pb2.FileDescriptorProto(**FILE)
    states = meter.enum_type.add(name="State")
    states.value.add(name="OFF", number=0)
    states.value.add(name="ON", number=1)
    kind = meter.message_type.add(name="Meter")
    for at, (name, form, type_name, repeated, optional) in enumerate(METER):
        label = Kind.LABEL_REPEATED if repeated else Kind.LABEL_OPTIONAL
        field = kind.field.add(name=name, number=at + 1, type=form, label=label)
        if type_name:
            field.type_name = type_name
        if optional:
            kind.oneof_decl.add(name=f"_{name}")
            field.oneof_index, field.proto3_optional = 0, True
    files = descriptor_pb2.FileDescriptorSet(file=[meter, place])  # an import may come behind what needs it
    if imports:
        for module in (timestamps, wrappers):
            files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    return files.SerializeToString()


def meter() -> Any:
    """The class of plant.Meter, by the library alone."""
    files, pool = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()), descriptor_pool.DescriptorPool()
    order = {file.name: file for file in files.file}
    for name in ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "place.proto", "plant.proto"):
        pool.Add(order[name])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Meter"))
