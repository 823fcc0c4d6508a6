"""The cases of the editors for body formats: transcode, compress, decompress, validate with Avro, cloudevents."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import brotli
import cbor2
import fastavro
import msgpack
import zstandard
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.message_factory import GetMessageClass

from benchmarks.order import TASK, Case, edited_order, order, replace_body
from shared.amqp.values import string
from shared.editors.cloudevents import CloudEventsStep
from shared.editors.compress import CompressStep
from shared.editors.decompress import DecompressStep
from shared.editors.options import FOLDER
from shared.editors.transcode import TranscodeStep
from shared.editors.validate import ValidateStep
from shared.message.message import Message
from shared.protocols import Editor


def transcode_json_to(after: object, bare: Callable[[Any], bytes], name: str) -> Callable[[], Case]:
    """Return the case of the transcode editor from JSON, against the standard library's reader and *bare*."""

    def made() -> Case:
        editor = _transcode("json", after)
        return Case(
            f"transcode json to {name}",
            editor,
            order(),
            partial(replace_body, lambda content: bare(json.loads(content)), name),
        )

    return made


def transcode_to_json(before: object, bare: Callable[[bytes], object], name: str) -> Callable[[], Case]:
    """Return the case of the transcode editor to JSON, against *bare* and the standard library's writer."""

    def made() -> Case:
        there = edited_order(_transcode("json", before))

        def both(content: bytes) -> bytes:
            return json.dumps(bare(content), ensure_ascii=False, separators=(",", ":"), default=str).encode()

        return Case(f"transcode {name} to json", _transcode(before, "json"), there, partial(replace_body, both, "json"))

    return made


def compress(encoding: str, bare: Callable[[bytes], bytes]) -> Callable[[], Case]:
    """Return the case of the compress editor."""

    def made() -> Case:
        editor = CompressStep.model_validate({"compress": {"encoding": encoding}}).editor(TASK)
        return Case(f"compress {encoding}", editor, order(), partial(_encoded, bare, encoding))

    return made


def decompress(encoding: str, bare: Callable[[bytes], bytes]) -> Callable[[], Case]:
    """Return the case of the decompress editor."""

    def made() -> Case:
        packed = edited_order(CompressStep.model_validate({"compress": {"encoding": encoding}}).editor(TASK))
        editor = DecompressStep.model_validate({"decompress": {}}).editor(TASK)
        return Case(f"decompress {encoding}", editor, packed, partial(_encoded, bare, None))

    return made


def validate_avro() -> Case:
    """Return the case of the validate editor with an Avro schema."""
    packed = edited_order(_transcode("json", SINGLE_OBJECT))
    content = (packed.body or b"")[10:]
    step = ValidateStep.model_validate(
        {"validate": {"avro": "order.avsc", "as": "single_object"}}, context={FOLDER: _folder()}
    )
    bare = partial(_avro_read, content)
    return Case("validate avro", step.editor(TASK), packed, lambda _: bare())


def cloudevents() -> Case:
    """Return the case of the cloudevents editor, against reading the order and writing it in an envelope."""
    editor = CloudEventsStep.model_validate({"cloudevents": {"to": "structured", "type": "order"}}).editor(TASK)
    envelope = {"specversion": "1.0", "type": "order", "source": "/west/orders", "id": "4711", "time": "2030-03-17"}

    def bare(content: bytes) -> bytes:
        return json.dumps({**envelope, "data": json.loads(content)}).encode()

    return Case("cloudevents to structured", editor, order(), partial(replace_body, bare, "cloudevents"))


def cloudevents_to_binary() -> Case:
    """Return the case of the cloudevents editor back, against reading the envelope and writing the order."""
    step = CloudEventsStep.model_validate({"cloudevents": {"to": "structured", "type": "order"}})
    packed = edited_order(step.editor(TASK))
    editor = CloudEventsStep.model_validate({"cloudevents": {"to": "binary"}}).editor(TASK)

    def bare(message: Message) -> None:
        event = json.loads(message.body or b"")
        message.body = json.dumps(event.pop("data")).encode()
        message.content_type = event.pop("datacontenttype")
        message.set_properties({f"cloudEvents_{name}": string(value) for name, value in event.items()})

    return Case("cloudevents to binary", editor, packed, bare)


def _encoded(change: Callable[[bytes], bytes], encoding: str | None, message: Message) -> None:
    """Change the body of *message* and set its content encoding."""
    message.body = change(message.body or b"")
    message.content_encoding = encoding


def _transcode(before: object, after: object) -> Editor:
    document = {"transcode": {"from": before, "to": after}}
    return TranscodeStep.model_validate(document, context={FOLDER: _folder()}).editor(TASK)


@cache
def _folder() -> Path:
    """Return a configuration folder with the schemas of the order."""
    folder = Path(_FOLDER.name)
    (folder / "order.avsc").write_text(json.dumps(AVRO_SCHEMA), encoding="utf-8")
    (folder / "order.desc").write_bytes(DESCRIPTORS)
    return folder


def _avro_read(content: bytes) -> object:
    return fastavro.schemaless_reader(BytesIO(content), PARSED_SCHEMA, None)


def _avro_written(value: object) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, PARSED_SCHEMA, value)
    return stream.getvalue()


def _descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="acme", syntax="proto3")
    kinds: Mapping[str, Sequence[tuple[str, int]]] = {
        "Address": [("city", 9), ("country", 9), ("code", 9)],
        "Customer": [("id", 9), ("name", 9), ("address", 11)],
        "Line": [("article", 9), ("name", 9), ("count", 5), ("price", 1)],
        "Order": [("id", 9), ("placed", 9), ("customer", 11), ("lines", 11), ("total", 1), ("note", 9)],
    }
    types = {"address": ".acme.Address", "customer": ".acme.Customer", "lines": ".acme.Line"}
    for message_name, fields in kinds.items():
        described = file.message_type.add(name=message_name)
        for number, (name, kind) in enumerate(fields, 1):
            label = descriptor_pb2.FieldDescriptorProto.Label.ValueType(3 if name == "lines" else 1)
            described.field.add(
                name=name,
                json_name=name,
                number=number,
                type=descriptor_pb2.FieldDescriptorProto.Type.ValueType(kind),
                label=label,
                type_name=types.get(name),
            )
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def _protobuf_class() -> type[ProtobufMessage]:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("acme.Order"))


AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "placed", "type": "string"},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [
                    {"name": "id", "type": "string"},
                    {"name": "name", "type": "string"},
                    {
                        "name": "address",
                        "type": {
                            "type": "record",
                            "name": "Address",
                            "fields": [{"name": name, "type": "string"} for name in ("city", "country", "code")],
                        },
                    },
                ],
            },
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "article", "type": "string"},
                        {"name": "name", "type": "string"},
                        {"name": "count", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}

PARSED_SCHEMA = fastavro.parse_schema(AVRO_SCHEMA)
SINGLE_OBJECT = {"format": "avro", "schema": "order.avsc", "as": "single_object"}
DESCRIPTORS = _descriptors()
PROTOBUF = {"format": "protobuf", "descriptors": "order.desc", "message": "acme.Order"}
PROTOBUF_CLASS = _protobuf_class()
_FOLDER = TemporaryDirectory()


CASES: Sequence[Callable[[], Case]] = (
    validate_avro,
    transcode_json_to(SINGLE_OBJECT, _avro_written, "avro"),
    transcode_to_json(SINGLE_OBJECT, lambda content: _avro_read(content[10:]), "avro"),
    transcode_json_to("cbor", cbor2.dumps, "cbor"),
    transcode_to_json("cbor", cbor2.loads, "cbor"),
    transcode_json_to("messagepack", msgpack.packb, "messagepack"),
    transcode_to_json("messagepack", msgpack.unpackb, "messagepack"),
    transcode_json_to(
        PROTOBUF, lambda value: json_format.ParseDict(value, PROTOBUF_CLASS()).SerializeToString(), "protobuf"
    ),
    transcode_to_json(
        PROTOBUF, lambda content: json_format.MessageToDict(PROTOBUF_CLASS.FromString(content)), "protobuf"
    ),
    compress("gzip", lambda content: gzip.compress(content, 6)),
    compress("zstd", zstandard.ZstdCompressor().compress),
    compress("brotli", lambda content: brotli.compress(content, quality=4)),
    decompress("gzip", gzip.decompress),
    decompress("zstd", zstandard.ZstdDecompressor().decompress),
    decompress("brotli", brotli.decompress),
    cloudevents,
    cloudevents_to_binary,
)
