"""
What each editor costs for a message with an order of 1 KB, against the bare library call that it wraps.

The bare call takes what it needs out of the message and puts back what comes of it, as any caller would have to, and
checks nothing.

Both get the message as it has just arrived. They take turns within a round, so that what slows down the machine slows
down both.
"""

import gzip
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import brotli
import cbor2
import fastavro
import jmespath
import msgpack
import zstandard
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.message_factory import GetMessageClass
from jsonschema import Draft202012Validator

from benchmarks.measurement import Measurement, report
from shared.amqp.sections import Sections, data
from shared.amqp.values import double, long, string
from shared.azure.secrets import open_secrets
from shared.clock import SystemClock
from shared.editors.cloudevents import CloudEventsStep
from shared.editors.compress import CompressStep
from shared.editors.decompress import DecompressStep
from shared.editors.filter import FilterStep
from shared.editors.options import FOLDER, TaskFacts
from shared.editors.partition import PartitionStep
from shared.editors.properties import PropertiesStep
from shared.editors.python import PythonStep
from shared.editors.reduce import ReduceStep
from shared.editors.route import RouteStep
from shared.editors.transcode import TranscodeStep
from shared.editors.transform import TransformStep
from shared.editors.validate import ValidateStep
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import Editor
from shared.rules.rule import parse_action, parse_filter

ROUNDS, CALLS = 60, 50
MOST = 1.5

LINES = [
    {"article": f"A-{100 + number}", "name": "Hexagon bolt M8 x 40, zinc plated", "count": number, "price": 10.5}
    for number in range(1, 10)
]
ORDER = {
    "id": "4711",
    "placed": "2030-03-17T17:46:40Z",
    "customer": {"id": "c-1", "name": "Blue Yonder", "address": {"city": "Köln", "country": "DE", "code": "50667"}},
    "lines": LINES,
    "total": 472.5,
    "note": None,
}
CONTENT = json.dumps(ORDER, ensure_ascii=False).encode()


TASK = TaskFacts("orders", Origin("west", "orders"), {}, open_secrets({}), SystemClock())


class Case(NamedTuple):
    """An editor, the message that it edits, and the library call that it wraps, done to the same message."""

    name: str
    editor: Editor
    message: Message
    bare: Callable[[Message], object]


def order(content: bytes = CONTENT) -> Message:
    """Return a message of a sender of orders."""
    message = Message(Sections(body=data(content)), Arrival(Origin("west", "orders"), 1, None, 1_900_000_000_123))
    message.message_id = string("4711")
    message.content_type = "application/json"
    message.session_id = "c-1"
    message.set_properties(
        {"country": string("DE"), "priority": long(7), "tenant": string("blue"), "kind": string("o")}
    )
    return message


def filter_() -> Case:
    """Return the case of the filter editor."""
    text = "country = 'DE' AND priority > 5 AND tenant LIKE 'b%'"
    rule = parse_filter(text)
    editor = FilterStep.model_validate({"filter": text}).editor(TASK)
    return Case("filter", editor, order(), lambda message: rule.matches(RuleProperties(message)))


def validate() -> Case:
    """Return the case of the validate editor with a JSON Schema."""
    schema = {
        "type": "object",
        "required": ["id", "lines"],
        "properties": {
            "id": {"type": "string"},
            "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
            "lines": {
                "items": {"properties": {"article": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}}
            },
        },
    }
    with TemporaryDirectory() as folder:
        Path(folder, "order.json").write_text(json.dumps(schema), encoding="utf-8")
        step = ValidateStep.model_validate({"validate": {"schema": "order.json"}}, context={FOLDER: Path(folder)})
    validator = Draft202012Validator(schema)
    return Case("validate", step.editor(TASK), order(), lambda _: list(validator.iter_errors(json.loads(CONTENT))))


def transform() -> Case:
    """Return the case of the transform editor, which reshapes the order and computes a sum."""
    text = (
        "{id: id, customer: customer.name, lines: lines[].{article: article, count: count}, total: sum(lines[].price)}"
    )
    editor = TransformStep.model_validate({"transform": {"expression": text}}).editor(TASK)
    expression = jmespath.compile(text)
    return Case("transform", editor, order(), lambda _: _dumped(expression.search(json.loads(CONTENT))))


def reduce() -> Case:
    """Return the case of the reduce editor, against an expression that keeps the same."""
    keep = ["id", "customer.name", "customer.address.country", "lines[].article", "lines[].count", "total"]
    editor = ReduceStep.model_validate({"reduce": {"keep": keep}}).editor(TASK)
    expression = jmespath.compile(
        "{id: id, customer: {name: customer.name, address: {country: customer.address.country}},"
        " lines: lines[].{article: article, count: count}, total: total}"
    )
    return Case("reduce", editor, order(), lambda _: _dumped(expression.search(json.loads(CONTENT))))


def route() -> Case:
    """Return the case of the route editor, which lifts two values."""
    options = {"country": {"value": "customer.address.country"}, "total": {"value": "total", "type": "double"}}
    editor = RouteStep.model_validate({"route": options}).editor(TASK)
    country, total = jmespath.compile("customer.address.country"), jmespath.compile("total")

    def bare(message: Message) -> None:
        body = json.loads(CONTENT)
        found = {"country": string(country.search(body)), "total": double(total.search(body))}
        message.set_properties(found)

    return Case("route", editor, order(), bare)


def partition() -> Case:
    """Return the case of the partition editor, which takes a key from the body."""
    editor = PartitionStep.model_validate({"partition": {"value": "customer.id"}}).editor(TASK)
    expression = jmespath.compile("customer.id")
    message = order()
    message.session_id = None

    def bare(message: Message) -> None:
        if message.session_id or message.partition_key:
            raise SystemExit("the message has a key already, expected none")
        message.set_annotations({"x-opt-partition-key": string(expression.search(json.loads(CONTENT)))})

    return Case("partition", editor, message, bare)


def properties() -> Case:
    """Return the case of the properties editor with an action of a rule, against the action itself."""
    text = "SET region = 'eu'; SET priority = priority + 1; REMOVE kind"
    editor = PropertiesStep.model_validate({"properties": {"action": text}}).editor(TASK)
    action = parse_action(text)
    return Case("properties", editor, order(), lambda message: action.apply(RuleProperties(message)))


def renaming() -> Case:
    """Return the case of the properties editor that renames and removes, against an action that does the same."""
    options = {"remove": ["kind"], "rename": {"tenant": "customer"}}
    editor = PropertiesStep.model_validate({"properties": options}).editor(TASK)
    action = parse_action("REMOVE kind; SET customer = tenant; REMOVE tenant")
    return Case("properties, renaming", editor, order(), lambda message: action.apply(RuleProperties(message)))


def python() -> Case:
    """Return the case of the python editor, against the function that it calls."""
    editor = PythonStep.model_validate({"python": "benchmarks.editors:with_tax"}).editor(TASK)
    return Case("python", editor, order(), with_tax)


def with_tax(message: Message) -> Message:
    """Return an order with its tax, as a function of a user's may do it."""
    body = json.loads(message.body or b"")
    message.body = _dumped({**body, "tax": body["total"] * 0.19})
    message.set_properties({"taxed": string("yes")})
    return message


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def transcode_json_to(after: object, bare: Callable[[Any], bytes], name: str) -> Callable[[], Case]:
    """Return the case of the transcode editor from JSON, against the standard library's reader and *bare*."""

    def made() -> Case:
        editor = _transcode("json", after)
        return Case(
            f"transcode json to {name}",
            editor,
            order(),
            partial(_replaced, lambda content: bare(json.loads(content)), name),
        )

    return made


def transcode_to_json(before: object, bare: Callable[[bytes], object], name: str) -> Callable[[], Case]:
    """Return the case of the transcode editor to JSON, against *bare* and the standard library's writer."""

    def made() -> Case:
        there = _one(_transcode("json", before))

        def both(content: bytes) -> bytes:
            return json.dumps(bare(content), ensure_ascii=False, separators=(",", ":"), default=str).encode()

        return Case(f"transcode {name} to json", _transcode(before, "json"), there, partial(_replaced, both, "json"))

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
        packed = _one(CompressStep.model_validate({"compress": {"encoding": encoding}}).editor(TASK))
        editor = DecompressStep.model_validate({"decompress": {}}).editor(TASK)
        return Case(f"decompress {encoding}", editor, packed, partial(_encoded, bare, None))

    return made


def validate_avro() -> Case:
    """Return the case of the validate editor with an Avro schema."""
    packed = _one(_transcode("json", SINGLE_OBJECT))
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

    return Case("cloudevents to structured", editor, order(), partial(_replaced, bare, "cloudevents"))


def cloudevents_to_binary() -> Case:
    """Return the case of the cloudevents editor back, against reading the envelope and writing the order."""
    step = CloudEventsStep.model_validate({"cloudevents": {"to": "structured", "type": "order"}})
    packed = _one(step.editor(TASK))
    editor = CloudEventsStep.model_validate({"cloudevents": {"to": "binary"}}).editor(TASK)

    def bare(message: Message) -> None:
        event = json.loads(message.body or b"")
        message.body = json.dumps(event.pop("data")).encode()
        message.content_type = event.pop("datacontenttype")
        message.set_properties({f"cloudEvents_{name}": string(value) for name, value in event.items()})

    return Case("cloudevents to binary", editor, packed, bare)


def _replaced(change: Callable[[bytes], bytes], name: str, message: Message) -> None:
    """Change the body of *message* and call it by another format's name."""
    message.body = change(message.body or b"")
    message.content_type = f"application/{name}"


def _encoded(change: Callable[[bytes], bytes], encoding: str | None, message: Message) -> None:
    """Change the body of *message* and say how it is encoded."""
    message.body = change(message.body or b"")
    message.content_encoding = encoding


def _one(editor: Editor) -> Message:
    (edited,) = editor.edit(order())
    if isinstance(edited, str):
        raise SystemExit(f"{editor.name} has withheld the order: {edited}")
    return edited


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
    filter_,
    validate,
    transform,
    reduce,
    properties,
    renaming,
    route,
    partition,
    python,
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


def main() -> None:
    """Measure and report every editor's cost and how many times the bare call's that is."""
    measurements = []
    for make in CASES:
        case = make()
        edited, bare = _costs(case)
        measurements += [
            Measurement(f"editor {case.name}, an order of 1 KB", edited, "µs"),
            Measurement(f"editor {case.name} to the bare library call", edited / bare, "times", MOST),
        ]
    report(measurements)


def _costs(case: Case) -> tuple[float, float]:
    """Return the processor time of the editor and of the bare call in microseconds, the best of all rounds."""
    edited = bare = float("inf")
    for _ in range(ROUNDS):
        edited = min(edited, _cost(case.editor.edit, case.message))
        bare = min(bare, _cost(case.bare, case.message))
    return edited, bare


def _cost(call: Callable[[Message], object], message: Message) -> float:
    messages = [message.copy() for _ in range(CALLS)]
    started = time.process_time_ns()
    for each in messages:
        call(each)
    return (time.process_time_ns() - started) / CALLS / 1000


if __name__ == "__main__":
    main()
