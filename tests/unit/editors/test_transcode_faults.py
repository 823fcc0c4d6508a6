"""Bodies that the transcode editor rejects, each with a reason that does not quote them."""

import io
import json
from typing import Any

import fastavro
import pytest

from shared.codecs.avro import AvroSchema
from shared.codecs.avro_container import write_container
from shared.errors import MessageRejected
from tests.unit.editors.transcoding import NODE, ORDER, PROTOBUF, RAW, SINGLE, made, rejection

CONFLUENT = (
    "; it begins with 00 and four bytes, as serializers of Confluent write the id of a schema: let an editor python"
    " remove these five bytes"
)
DOTNET = (
    "; it begins as the DataContractSerializer of .NET writes it: let the sender pass a stream or bytes to"
    " BrokeredMessage"
)
KIND = "got another kind of value, expected"
NODES = {"format": "avro", "schema": "node.avsc", "as": "raw"}
UNUSABLE = ("NotAvro", "body has a schema that cannot be used")
RANGE = "a number out of range"
LONE = "body has half a character (a lone surrogate) at"


def length(content: bytes) -> bytes:
    size = len(content) << 1
    assert size < 2**21
    return bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + content


def test_unknown_protobuf_fields_are_dropped_if_configured(transcode: Any) -> None:
    body = b"\x0a\x014" + b"\xf8\x01\x05"
    problem = "body has a field that is not in the descriptor set"
    assert rejection(transcode(PROTOBUF, "json"), body) == ("NotProtobuf", problem)
    assert made(transcode({**PROTOBUF, "unknown_fields": "drop"}, "json"), body).body == b'{"id":"4"}'


@pytest.mark.parametrize(
    ("body", "after", "expected"),
    [
        (b'{"id": "s3cr3t"', "cbor", "body is not JSON, line 1 column 16: expecting ',' delimiter"),
        (b'{"a": 1, "a": 2}', "cbor", "body is JSON with a duplicate name in an object"),
        (b"\xff", "cbor", "body is not UTF-8 at byte 0, expected JSON in UTF-8"),
        (b"\x00\x00\x00\x00\x07{}", "cbor", "body is not JSON, line 1 column 1: expecting value" + CONFLUENT),
        (
            b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x9a\x01x",
            "cbor",
            "body is not UTF-8 at byte 61, expected JSON in UTF-8" + DOTNET,
        ),
        (b"[" * 101 + b"]" * 101, "cbor", "body is nested more than 100 deep"),
        (b'{"a": [0, "\\ud800"]}', "cbor", f"{LONE} $.*[1], which CBOR cannot represent"),
        (b"[18446744073709551616]", "messagepack", f"body has {RANGE} at $[0], which MessagePack cannot represent"),
        (b"[1e400]", "messagepack", "body has a value of a type at $[0], which MessagePack cannot represent"),
        (b'{"id": 5}', RAW, "$.id: got a whole number, expected text"),
        (b"{}", RAW, "$: has no id"),
        (b'{"id": "a", "s3cr3t": 1}', RAW, "$: has a name that is not a field of the schema"),
        (b'{"id": "a", "count": 2147483648}', RAW, f"$.count: got {RANGE}, expected a whole number of 32 bits"),
        (b'{"id": "a", "count": 1.5}', RAW, "$.count: got a number, expected a whole number of 32 bits"),
        (b'{"id": "a", "price": 9007199254740993}', RAW, "$.price: got a number with more digits than a double has"),
        (b'{"id": "a", "raw": "s3cr3t!"}', RAW, "$.raw: got a text that is not Base64, expected bytes"),
        (b'{"id": 5}', PROTOBUF, f"$.id: {KIND} text"),
        (b'{"s3cr3t": 5}', PROTOBUF, "$: has a name that is not a field of acme.Order"),
        (b'{"wideCount": 1, "wide_count": 1}', PROTOBUF, "$.wide_count: is present twice, under both of its names"),
        (b'{"parts": [{}, {"count": "s3cr3t"}]}', PROTOBUF, f"$.parts[1].count: {KIND} a whole number"),
        (b'{"kind": "s3cr3t"}', PROTOBUF, f"$.kind: {KIND} a name of the enum"),
        (b'{"placed": "s3cr3t"}', PROTOBUF, f"$.placed: {KIND} what ProtoJSON has for Timestamp"),
        (b'{"byName": {"s3cr3t": "s3cr3t"}}', PROTOBUF, f"$.by_name.*: {KIND} a whole number"),
        (b"[]", PROTOBUF, f"$: {KIND} a mapping"),
    ],
    ids=range(24),
)
def test_a_value_that_a_format_cannot_hold_is_reported(transcode: Any, body: bytes, after: Any, expected: str) -> None:
    assert rejection(transcode("json", after), body)[1] == expected


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
            b"\xf9\x7e\x00",
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
        (NODES, b"\x02" * 1_000_000, "body is nested too deeply to be read"),
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
def test_a_body_of_another_format_is_reported(transcode: Any, before: Any, body: Any, expected: str) -> None:
    assert rejection(transcode(before, "json"), body)[1] == expected


def test_a_container_with_a_harmful_codec_or_schema_is_rejected(transcode: Any) -> None:
    def found(schema: Any, value: Any, codec: str = "null") -> tuple[str, str]:
        stream = io.BytesIO()
        fastavro.writer(stream, fastavro.parse_schema(schema), [value], codec=codec)
        return rejection(transcode("avro", "json"), stream.getvalue())

    assert found(ORDER, {"id": "a", "raw": b""}, "bzip2")[1].startswith("body is an Avro container with an unsupported")
    assert found({"type": "array", "items": "null"}, [None]) == UNUSABLE
    assert found("bytes", bytes(70 * 2**20), "deflate")[0] == "BodyTooLarge"


@pytest.mark.parametrize(("leaf", "names"), [("null", "ab"), ("string", "a")])
def test_a_schema_of_many_nested_records_is_rejected(transcode: Any, leaf: str, names: str) -> None:
    records = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}]
    for number in range(4000 if leaf == "string" else 40):
        fields = [{"name": name, "type": f"R{number}"} for name in names]
        records.append({"type": "record", "name": f"R{number + 1}", "fields": fields})
    head = write_container(AvroSchema(b'"null"'), [None])
    body = head.replace(b'\x0c"null"', length(json.dumps(records).encode()))
    assert rejection(transcode("avro", "json"), body) == UNUSABLE


def test_avro_of_a_schema_that_contains_itself_is_read_up_to_a_depth() -> None:
    schema = AvroSchema(json.dumps(NODE).encode())
    value = schema.read(b"\x02" * 199 + b"\x00")
    for _ in range(199):
        value = value["next"]
    assert value == {"next": None}
    with pytest.raises(MessageRejected, match="NotAvro: body is nested too deeply to be read"):
        schema.read(b"\x02" * 200 + b"\x00")


@pytest.mark.parametrize("form", [RAW, SINGLE, PROTOBUF], ids=["raw", "single object", "protobuf"])
def test_a_body_with_the_bytes_of_confluent_or_dotnet_is_named_whatever_the_format(transcode: Any, form: Any) -> None:
    for head, name in (
        (b"\x00\x00\x00\x00\x07\xff\xff", "Confluent"),
        (b"@\x05Order\x08Xhttp://schemas.datacontract.org/2004/07/Shop\xff", "DataContractSerializer"),
    ):
        assert name in rejection(transcode(form, "json"), head)[1]
