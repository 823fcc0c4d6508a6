"""The transcode editor: which formats, which content types, and what it reports about a body that cannot be written."""

import io
import json
from pathlib import Path
from typing import Any

import cbor2
import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pydantic import ValidationError

from shared.amqp.codec import encode
from shared.amqp.values import string
from shared.codecs.avro import AvroSchema
from shared.codecs.avro_container import write_container
from shared.config.files import load
from shared.editors.options import FOLDER
from shared.editors.transcode import TranscodeStep
from shared.errors import ConfigError, MessageRejected
from tests.fakes import task_facts
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


def length(content: bytes) -> bytes:
    size = len(content) << 1
    assert size < 2**21
    return bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("config")
    (made / "order.avsc").write_text(json.dumps(ORDER))
    (made / "node.avsc").write_text(json.dumps(NODE))
    (made / "nothing.avsc").write_text('{"type": "array", "items": "null"}')
    (made / "broken.avsc").write_text('{"type": "record"')
    (made / "strange.avsc").write_text('{"type": "strange"}')
    (made / "order.desc").write_bytes(descriptors())
    (made / "broken.desc").write_bytes(b"broken")
    return made


@pytest.fixture(scope="module")
def editor(folder: Path) -> Any:
    return lambda before, after, **options: step(folder, before, after, **options).editor(task_facts())


AVRO = {"format": "avro", "schema": "order.avsc"}
RAW = {**AVRO, "as": "raw"}
SINGLE = {**AVRO, "as": "single_object"}
PROTOBUF = {"format": "protobuf", "descriptors": "order.desc", "message": "acme.Order"}


def step(folder: Path, before: Any, after: Any, **options: Any) -> Any:
    document = {"transcode": {"from": before, "to": after, **options}}
    return TranscodeStep.model_validate(document, context={FOLDER: folder})


def made(editor: Any, body: Any, content_type: str | None = None) -> Any:
    (found,) = editor.edit(message(body=body, content_type=content_type))
    return found


def rejection(editor: Any, body: Any, content_type: str | None = None) -> tuple[str, str]:
    with pytest.raises(MessageRejected) as caught:
        editor.edit(message(body=body, content_type=content_type))
    assert SECRET not in str(caught.value)
    return caught.value.reason, caught.value.description.removeprefix("transcode: ")


@pytest.mark.parametrize(
    ("after", "content_type"),
    [
        ("cbor", "application/cbor"),
        ("messagepack", "application/vnd.msgpack"),
        (AVRO, "application/avro"),
        (RAW, "avro/binary"),
        (SINGLE, "avro/binary"),
        (PROTOBUF, "application/protobuf"),
    ],
    ids=str,
)
def test_the_content_type_follows_the_format_there_and_back(editor: Any, after: Any, content_type: str) -> None:
    there = made(editor("json", after), b'{"id": "4711", "count": 3}', "application/json; charset=utf-8")
    assert there.content_type == content_type
    back = made(editor(after, "json"), there.body, there.content_type)
    assert back.content_type == "application/json"
    assert json.loads(back.body) | {"id": "4711", "count": 3} == json.loads(back.body)


def test_what_names_and_orders_a_message_stays(editor: Any) -> None:
    received = message(body=b'{"id": "4711"}')
    received.session_id = "s"
    (edited,) = editor("json", "cbor").edit(received)
    assert (edited.message_id.payload, edited.session_id, edited.arrival) == ("m-1", "s", received.arrival)


@pytest.mark.parametrize(
    "content_type", [None, "application/octet-stream", "application/vnd.order+json", "TEXT/JSON ; x=y"]
)
def test_a_content_type_that_does_not_contradict_is_taken(editor: Any, content_type: str | None) -> None:
    assert made(editor("json", "cbor"), b"[]", content_type).body == b"\x80"


def test_a_content_type_that_contradicts_is_rejected_unless_the_task_says_otherwise(editor: Any) -> None:
    expected = ("WrongContentType", "has a content type that is not of the format json")
    assert rejection(editor("json", "cbor"), b"[]", "text/plain") == expected
    assert made(editor("json", "cbor", ignore_content_type=True), b"[]", "text/plain").body == b"\x80"


def test_the_result_may_have_a_media_type_of_its_own(editor: Any) -> None:
    assert (
        made(editor("json", "cbor", content_type="application/order+cbor"), b"[]").content_type
        == "application/order+cbor"
    )


def test_other_programs_read_what_is_written(editor: Any) -> None:
    body = b'{"id": "4711", "count": 3, "price": 10.10, "raw": "3q2+7w=="}'
    plain = {"id": "4711", "count": 3, "price": 10.1, "raw": "3q2+7w=="}
    assert cbor2.loads(made(editor("json", "cbor"), body).body) == plain
    assert msgpack.unpackb(made(editor("json", "messagepack"), body).body) == plain
    (record,) = fastavro.reader(io.BytesIO(made(editor("json", AVRO), body).body))
    assert record == plain | {"raw": bytes.fromhex("deadbeef")}


def test_what_other_programs_write_is_read(editor: Any) -> None:
    stream = io.BytesIO()
    record = {"id": "4711", "count": 3, "price": None, "raw": b"\xff"}
    fastavro.writer(stream, fastavro.parse_schema(ORDER), [record], codec="deflate")
    expected = {"id": "4711", "count": 3, "price": None, "raw": "/w=="}
    for before in ("avro", AVRO):
        assert json.loads(made(editor(before, "json"), stream.getvalue()).body) == expected
    older = {**ORDER, "fields": ORDER["fields"][:1]}
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(older), [{"id": "4711"}])
    resolved = json.loads(made(editor(AVRO, "json"), stream.getvalue()).body)
    assert (resolved["id"], resolved["count"], resolved["price"]) == ("4711", 1, None)


def test_an_order_in_protobuf_is_as_protojson_has_it(editor: Any) -> None:
    body = (
        b'{"id": "4711", "wide_count": "9007199254740993", "kind": "RUSH", "placed": "2030-03-17T17:46:40Z",'
        b' "parts": [{"count": 2}], "byName": {"a": 1}}'
    )
    packed = made(editor("json", PROTOBUF), body).body
    assert json.loads(made(editor(PROTOBUF, "json"), packed).body) == {
        "id": "4711",
        "wideCount": "9007199254740993",
        "kind": "RUSH",
        "placed": "2030-03-17T17:46:40Z",
        "parts": [{"count": 2}],
        "byName": {"a": 1},
    }
    assert cbor2.loads(made(editor(PROTOBUF, "cbor"), packed).body)["wideCount"] == 9007199254740993


def test_fields_that_are_not_known_are_dropped_if_they_may(editor: Any) -> None:
    body = b"\x0a\x014" + b"\xf8\x01\x05"
    assert rejection(editor(PROTOBUF, "json"), body) == (
        "NotProtobuf",
        "body has a field that is not in the descriptor set",
    )
    assert made(editor({**PROTOBUF, "unknown_fields": "drop"}, "json"), body).body == b'{"id":"4"}'


@pytest.mark.parametrize(
    ("body", "after", "expected"),
    [
        (b'{"id": "s3cr3t"', "cbor", "body is not JSON, line 1 column 16: expecting ',' delimiter"),
        (b'{"a": 1, "a": 2}', "cbor", "body is JSON with a duplicate name in an object"),
        (b"\xff", "cbor", "body is not UTF-8 at byte 0, expected JSON in UTF-8"),
        (b"[" * 101 + b"]" * 101, "cbor", "body is nested more than 100 deep"),
        (
            b'{"a": [0, "\\ud800"]}',
            "cbor",
            "body has half a character (a lone surrogate) at $.*[1], which CBOR cannot represent",
        ),
        (
            b"[18446744073709551616]",
            "messagepack",
            "body has a number out of range at $[0], which MessagePack cannot represent",
        ),
        (b"[1e400]", "messagepack", "body has a value of a type at $[0], which MessagePack cannot represent"),
        (b'{"id": 5}', RAW, "$.id: got a whole number, expected text"),
        (b"{}", RAW, "$: has no id"),
        (b'{"id": "a", "s3cr3t": 1}', RAW, "$: has a name that is not a field of the schema"),
        (
            b'{"id": "a", "count": 2147483648}',
            RAW,
            "$.count: got a number out of range, expected a whole number of 32 bits",
        ),
        (b'{"id": "a", "count": 1.5}', RAW, "$.count: got a number, expected a whole number of 32 bits"),
        (b'{"id": "a", "price": 9007199254740993}', RAW, "$.price: got a number with more digits than a double has"),
        (b'{"id": "a", "raw": "s3cr3t!"}', RAW, "$.raw: got a text that is not Base64, expected bytes"),
        (b'{"id": 5}', PROTOBUF, "$.id: got another kind of value, expected text"),
        (b'{"s3cr3t": 5}', PROTOBUF, "$: has a name that is not a field of acme.Order"),
        (b'{"wideCount": 1, "wide_count": 1}', PROTOBUF, "$.wide_count: is present twice, under both of its names"),
        (
            b'{"parts": [{}, {"count": "s3cr3t"}]}',
            PROTOBUF,
            "$.parts[1].count: got another kind of value, expected a whole number",
        ),
        (b'{"kind": "s3cr3t"}', PROTOBUF, "$.kind: got another kind of value, expected a name of the enum"),
        (
            b'{"placed": "s3cr3t"}',
            PROTOBUF,
            "$.placed: got another kind of value, expected what ProtoJSON has for Timestamp",
        ),
        (
            b'{"byName": {"s3cr3t": "s3cr3t"}}',
            PROTOBUF,
            "$.by_name.*: got another kind of value, expected a whole number",
        ),
        (b"[]", PROTOBUF, "$: got another kind of value, expected a mapping"),
    ],
    ids=range(22),
)
def test_what_cannot_be_written_is_reported_with_its_path_and_not_quoted(
    editor: Any, body: bytes, after: Any, expected: str
) -> None:
    assert rejection(editor("json", after), body)[1] == expected


@pytest.mark.parametrize(
    ("before", "body", "expected"),
    [
        ("cbor", b"", "body is CBOR that is cut off"),
        ("cbor", b"\x01\x02", "body has bytes after the end of its CBOR"),
        ("cbor", bytes.fromhex("5b7fffffffffffffff"), "body is CBOR that is cut off"),
        ("cbor", bytes.fromhex("d81c81d81d00"), "body is CBOR with an unsupported tag"),
        ("cbor", bytes.fromhex("d90100826161d81900"), "body is CBOR with an unsupported tag"),
        ("cbor", bytes.fromhex("a10102"), "body has a key that is not text"),
        (
            "cbor",
            bytes.fromhex("f97e00"),
            "body has a number that is infinite, NaN or too long at $, which JSON cannot represent",
        ),
        ("cbor", bytes.fromhex("81f7"), "body has a value of a type at $[0], which JSON cannot represent"),
        ("cbor", b"\x81" * 200 + b"\x01", "body is not CBOR, is nested too deeply, or has a map with a duplicate key"),
        ("messagepack", b"\xc1", "body is not MessagePack, or is cut off"),
        ("messagepack", b"\xdd\xff\xff\xff\xff", "body is not MessagePack, or is cut off"),
        ("messagepack", b"\x91" * 2000, "body is nested more than 100 deep"),
        ("messagepack", b"\x91" * 101 + b"\xc0", "body is nested more than 100 deep"),
        ("messagepack", b"\xd4\x05a", "body has an extension other than the timestamp"),
        ("messagepack", b"\x81\xc4\x01a\x01", "body has a key that is not text"),
        ("messagepack", b"\x01\x02", "body has bytes after the end of its MessagePack"),
        ("avro", b"PK", "body is not an Avro container, expected it to begin with Obj and 01"),
        ("avro", b"Obj\x01", "body is an Avro container that is damaged or cut off"),
        (SINGLE, b"\xc3\x01" + bytes(9), "body has the fingerprint of another schema"),
        (SINGLE, b"\x02a", "body is not an Avro single object, expected it to begin with c301"),
        (RAW, b"\x02a", "body is not Avro of the schema, or is cut off"),
        (RAW, b"\x02a\x02\x00\x00\x00", "body has bytes after the end of its Avro"),
        (RAW, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "body is not Avro of the schema, or is cut off"),
        (
            {"format": "avro", "schema": "node.avsc", "as": "raw"},
            b"\x02" * 1_000_000,
            "body is nested too deeply to be read",
        ),
        (PROTOBUF, b"\xff", "body is not such a message, or is nested too deeply"),
        (PROTOBUF, b"\x0a\x01\xff", "body is not such a message, or is nested too deeply"),
        ("xml", b"<a>", "body is not XML, line 1 column 4: no element found"),
        ("xml", b"<a>" * 200, "body is nested more than 100 deep"),
        ("xml", b"<!DOCTYPE a><a/>", "body is XML with a document type declaration, which is not accepted"),
        ("xml", b"<a>&s3cr3t;</a>", "body is not XML, line 1 column 4: undefined entity"),
        ("xml", b"<a>s3cr3t<b/></a>", "body is XML with text between elements, which JSON cannot represent"),
    ],
    ids=range(31),
)
def test_a_body_that_differs_from_its_declared_format_is_reported(
    editor: Any, before: Any, body: Any, expected: str
) -> None:
    assert rejection(editor(before, "json"), body)[1] == expected


def test_a_container_with_a_harmful_codec_or_schema_is_rejected(editor: Any) -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(ORDER), [{"id": "a", "raw": b""}], codec="bzip2")
    assert rejection(editor("avro", "json"), stream.getvalue())[1].startswith(
        "body is an Avro container with an unsupported codec"
    )
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema({"type": "array", "items": "null"}), [[None]])
    assert rejection(editor("avro", "json"), stream.getvalue()) == ("NotAvro", "body has a schema that cannot be used")
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema("bytes"), [bytes(70 * 2**20)], codec="deflate")
    assert rejection(editor("avro", "json"), stream.getvalue())[0] == "BodyTooLarge"


@pytest.mark.parametrize(("leaf", "names"), [("null", "ab"), ("string", "a")])
def test_a_schema_of_many_records_in_one_another_is_rejected(editor: Any, leaf: str, names: str) -> None:
    records = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}]
    for number in range(4000 if leaf == "string" else 40):
        fields = [{"name": name, "type": f"R{number}"} for name in names]
        records.append({"type": "record", "name": f"R{number + 1}", "fields": fields})
    head = write_container(AvroSchema(b'"null"'), [None])
    body = head.replace(b'\x0c"null"', length(json.dumps(records).encode()))
    assert rejection(editor("avro", "json"), body) == ("NotAvro", "body has a schema that cannot be used")


def test_times_and_numbers_keep_what_they_say_between_formats(editor: Any) -> None:
    moment = msgpack.packb(msgpack.Timestamp(1900000000, 1))
    assert made(editor("messagepack", "json"), moment).body == b'"2030-03-17T17:46:40.000000001Z"'
    fraction = bytes.fromhex("c48221196ab3")
    assert made(editor("cbor", "json"), fraction).body == b"273.15"
    exact = b"[12345678901234567.89,123456789012345678901234567890]"
    assert made(editor("cbor", "json"), made(editor("json", "cbor"), exact).body).body == exact


def test_text_changes_its_character_set_and_its_content_type_says_so(editor: Any) -> None:
    recode = editor({"format": "text", "charset": "windows-1252"}, {"format": "text", "charset": "utf-8"})
    for before, after in {
        None: "text/plain; charset=utf-8",
        'text/csv; header=present; charset="CP1252"': "text/csv; header=present; charset=utf-8",
        "application/json": "application/json; charset=utf-8",
    }.items():
        edited = made(recode, "5 €".encode("cp1252"), before)
        assert (edited.body, edited.content_type) == ("5 €".encode(), after)
    assert rejection(recode, b"\x81") == ("NotText", "body is not in the character set windows-1252 at byte 0")
    received = message(body=b"")
    received.sections.body = b"\x00\x53\x77" + encode(string("5 €"))
    with pytest.raises(MessageRejected, match="the body is not data"):
        recode.edit(received)
    back = editor({"format": "text", "charset": "utf-8"}, {"format": "text", "charset": "ascii"})
    assert rejection(back, "s3cr3t €".encode()) == (
        "NotWritable",
        "body has a character at position 7 that ascii does not have",
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("json", "xml", "XML can only be read"),
        ("json", "yaml", "unknown format, expected json, cbor"),
        ("json", {"format": "text", "charset": "utf-8"}, "has text on one side only, expected it on both"),
        (
            {"format": "text", "charset": "klingon"},
            {"format": "text", "charset": "utf-8"},
            "unknown character set klingon",
        ),
        (
            {"format": "text", "charset": "utf-7"},
            {"format": "text", "charset": "utf-8"},
            "utf-7, which is not a character set",
        ),
        ("json", "avro", "writes avro, expected a mapping with a schema"),
        ({"format": "avro", "as": "raw"}, "json", "raw needs a schema"),
        ("json", {**AVRO, "schema": "none.avsc"}, "none.avsc: the file is missing"),
        ("json", {**AVRO, "schema": "../order.avsc"}, "expected one below the folder"),
        ("json", {**AVRO, "schema": "broken.avsc"}, "broken.avsc: the schema is not JSON, line 1 column 18"),
        ("json", {**AVRO, "schema": "strange.avsc"}, "strange.avsc: is not a usable Avro schema"),
        ("json", {**AVRO, "schema": "nothing.avsc"}, "array of items that take no bytes"),
        ("json", {**AVRO, "kind": "raw"}, "Extra inputs are not permitted"),
        ("json", {**PROTOBUF, "message": "acme.Nope"}, "has no message acme.Nope"),
        ("json", {**PROTOBUF, "descriptors": "broken.desc"}, "is not a descriptor set"),
    ],
    ids=range(15),
)
def test_invalid_options_are_reported_at_load(folder: Path, before: Any, after: Any, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        step(folder, before, after)


def test_a_fault_in_a_task_file_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/orders.yaml").write_text(
        "task: orders\nsource: {connection: west, queue: a}\n"
        "editors:\n  - transcode: {from: json, to: {format: avro, schema: none.avsc}}\n"
        "routes: [{target: {connection: west, queue: b}}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    (problem,) = caught.value.problems
    assert str(problem).endswith("orders.yaml: editors[0].transcode.to.schema: none.avsc: the file is missing")


def test_avro_of_a_schema_that_contains_itself_is_read_up_to_a_depth() -> None:
    schema = AvroSchema(json.dumps(NODE).encode())
    value = schema.read(b"\x02" * 199 + b"\x00")
    for _ in range(199):
        value = value["next"]
    assert value == {"next": None}
    with pytest.raises(MessageRejected, match="NotAvro: body is nested too deeply to be read"):
        schema.read(b"\x02" * 200 + b"\x00")
