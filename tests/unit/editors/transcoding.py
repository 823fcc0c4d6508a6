"""A transcode editor with schemas for an order."""

import json
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2

from shared.editors.options import FOLDER
from shared.editors.transcode import TranscodeStep
from tests import editing
from tests.editing import edited
from tests.messages import message

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
    ],
}

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}]}
SECRET = "s3cr3t"


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="o.proto", package="acme", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    order = file.message_type.add(name="Order")
    fields = (
        ("id", 9, 1, ""),
        ("count", 5, 1, ""),
        ("wide_count", 3, 1, ""),
        ("kind", 14, 1, ".acme.Order.Kind"),
        ("placed", 11, 1, ".google.protobuf.Timestamp"),
        ("parts", 11, 3, ".acme.Order"),
        ("by_name", 11, 3, ".acme.Order.ByNameEntry"),
    )
    for number, (name, kind, label, of) in enumerate(fields, 1):
        camel = name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:])
        order.field.add(name=name, json_name=camel, number=number, type=kind, label=label, type_name=of or None)
    order.enum_type.add(name="Kind").value.extend(
        [
            descriptor_pb2.EnumValueDescriptorProto(name="NONE", number=0),
            descriptor_pb2.EnumValueDescriptorProto(name="RUSH", number=1),
        ]
    )
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    return descriptor_pb2.FileDescriptorSet(file=[known, file]).SerializeToString()


AVRO = {"format": "avro", "schema": "order.avsc"}
RAW = {**AVRO, "as": "raw"}
SINGLE = {**AVRO, "as": "single_object"}
PROTOBUF = {"format": "protobuf", "descriptors": "order.desc", "message": "acme.Order"}


def step(folder: Path, before: Any, after: Any, **options: Any) -> Any:
    document = {"transcode": {"from": before, "to": after, **options}}
    return TranscodeStep.model_validate(document, context={FOLDER: folder})


def made(editor: Any, body: Any, content_type: str | None = None) -> Any:
    return edited(editor, message(body=body, content_type=content_type))


def rejection(editor: Any, body: Any, content_type: str | None = None) -> tuple[str, str]:
    found = editing.rejection(editor, message(body=body, content_type=content_type))
    assert SECRET not in str(found)
    return found


def write_schemas(folder: Path) -> None:
    (folder / "order.avsc").write_text(json.dumps(ORDER))
    (folder / "node.avsc").write_text(json.dumps(NODE))
    (folder / "nothing.avsc").write_text('{"type": "array", "items": "null"}')
    (folder / "broken.avsc").write_text('{"type": "record"')
    (folder / "strange.avsc").write_text('{"type": "strange"}')
    (folder / "order.desc").write_bytes(descriptors())
    (folder / "broken.desc").write_bytes(b"broken")
