"""The transcode editor: formats, content types, character sets and options."""

import io
import json
from pathlib import Path
from typing import Any

import cbor2
import fastavro
import msgpack
import pytest
from pydantic import ValidationError

from shared.amqp.codec import encode
from shared.amqp.values import string
from shared.codecs.avro import AvroSchema
from shared.errors import ConfigError, MessageRejected
from shared.tasks.files import load
from tests.messages import message
from tests.unit.editors.transcoding import AVRO, ORDER, PROTOBUF, RAW, SINGLE, made, rejection, step

UTF_8 = {"format": "text", "charset": "utf-8"}


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
def test_the_content_type_follows_the_format_there_and_back(transcode: Any, after: Any, content_type: str) -> None:
    there = made(transcode("json", after), b'{"id": "4711", "count": 3}', "application/json; charset=utf-8")
    assert there.content_type == content_type
    back = made(transcode(after, "json"), there.body, there.content_type)
    assert back.content_type == "application/json"
    assert json.loads(back.body) | {"id": "4711", "count": 3} == json.loads(back.body)


def test_message_id_session_and_arrival_are_not_changed(transcode: Any) -> None:
    received = message(body=b'{"id": "4711"}')
    received.session_id = "s"
    (edited,) = transcode("json", "cbor").edit(received)
    assert (edited.message_id.payload, edited.session_id, edited.arrival) == ("m-1", "s", received.arrival)


@pytest.mark.parametrize(
    "content_type", [None, "application/octet-stream", "application/vnd.order+json", "TEXT/JSON ; x=y"]
)
def test_a_content_type_that_fits_the_format_is_accepted(transcode: Any, content_type: str | None) -> None:
    assert made(transcode("json", "cbor"), b"[]", content_type).body == b"\x80"


def test_a_content_type_of_another_format_is_rejected_unless_the_options_ignore_it(transcode: Any) -> None:
    expected = ("WrongContentType", "has a content type that is not of the format json")
    assert rejection(transcode("json", "cbor"), b"[]", "text/plain") == expected
    assert made(transcode("json", "cbor", ignore_content_type=True), b"[]", "text/plain").body == b"\x80"


def test_the_options_can_set_the_content_type_of_the_result(transcode: Any) -> None:
    assert (
        made(transcode("json", "cbor", content_type="application/order+cbor"), b"[]").content_type
        == "application/order+cbor"
    )


def test_other_libraries_read_the_result(transcode: Any) -> None:
    body = b'{"id": "4711", "count": 3, "price": 10.10, "raw": "3q2+7w=="}'
    plain = {"id": "4711", "count": 3, "price": 10.1, "raw": "3q2+7w=="}
    assert cbor2.loads(made(transcode("json", "cbor"), body).body) == plain
    assert msgpack.unpackb(made(transcode("json", "messagepack"), body).body) == plain
    (record,) = fastavro.reader(io.BytesIO(made(transcode("json", AVRO), body).body))
    assert record == plain | {"raw": bytes.fromhex("deadbeef")}


def test_bodies_written_by_other_libraries_are_read(transcode: Any) -> None:
    stream = io.BytesIO()
    record = {"id": "4711", "count": 3, "price": None, "raw": b"\xff"}
    fastavro.writer(stream, fastavro.parse_schema(ORDER), [record], codec="deflate")
    expected = {"id": "4711", "count": 3, "price": None, "raw": "/w=="}
    for before in ("avro", AVRO):
        assert json.loads(made(transcode(before, "json"), stream.getvalue()).body) == expected
    older = {**ORDER, "fields": ORDER["fields"][:1]}
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(older), [{"id": "4711"}])
    resolved = json.loads(made(transcode(AVRO, "json"), stream.getvalue()).body)
    assert (resolved["id"], resolved["count"], resolved["price"]) == ("4711", 1, None)


KEY = {"type": "fixed", "name": "Key", "size": 3}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}


@pytest.mark.parametrize(
    ("union", "value", "branch"),
    [
        (["float", "double"], 0.1, 1),
        (["float", "int"], 5, 1),
        (["float", "string"], 0.1, 0),
        ([KEY, "string"], "AAAA", 1),
        (["bytes", "string"], "AAAA", 1),
        (["null", PRICE, {"type": "long", "logicalType": "time-micros"}], 26, 1),
    ],
)
def test_a_value_takes_the_branch_of_a_union_that_keeps_it(union: Any, value: object, branch: int) -> None:
    assert AvroSchema(json.dumps(union).encode()).write(value)[0] == 2 * branch


def test_protobuf_is_read_and_written_as_protojson(transcode: Any) -> None:
    body = (
        b'{"id": "4711", "wide_count": "9007199254740993", "kind": "RUSH", "placed": "2030-03-17T17:46:40Z",'
        b' "parts": [{"count": 2}], "byName": {"a": 1}}'
    )
    packed = made(transcode("json", PROTOBUF), body).body
    assert json.loads(made(transcode(PROTOBUF, "json"), packed).body) == {
        "id": "4711",
        "wideCount": "9007199254740993",
        "kind": "RUSH",
        "placed": "2030-03-17T17:46:40Z",
        "parts": [{"count": 2}],
        "byName": {"a": 1},
    }
    assert cbor2.loads(made(transcode(PROTOBUF, "cbor"), packed).body)["wideCount"] == 9007199254740993


def test_times_and_numbers_keep_their_values_between_formats(transcode: Any) -> None:
    moment = msgpack.packb(msgpack.Timestamp(1900000000, 1))
    assert made(transcode("messagepack", "json"), moment).body == b'"2030-03-17T17:46:40.000000001Z"'
    fraction = bytes.fromhex("c48221196ab3")
    assert made(transcode("cbor", "json"), fraction).body == b"273.15"
    exact = b"[12345678901234567.89,123456789012345678901234567890]"
    assert made(transcode("cbor", "json"), made(transcode("json", "cbor"), exact).body).body == exact


def test_a_changed_character_set_is_named_in_the_content_type(transcode: Any) -> None:
    recode = transcode({"format": "text", "charset": "windows-1252"}, {"format": "text", "charset": "utf-8"})
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
    back = transcode({"format": "text", "charset": "utf-8"}, {"format": "text", "charset": "ascii"})
    problem = "body has a character at position 7 that ascii does not have"
    assert rejection(back, "s3cr3t €".encode()) == ("NotWritable", problem)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("json", "xml", "XML can only be read"),
        ("json", "yaml", "unknown format, expected json, cbor"),
        ("json", UTF_8, "has text on one side only, expected it on both"),
        ({"format": "text", "charset": "klingon"}, UTF_8, "unknown character set klingon"),
        ({"format": "text", "charset": "utf-7"}, UTF_8, "utf-7, which is not a character set"),
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
def test_invalid_options_are_reported_at_load(schemas: Path, before: Any, after: Any, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        step(schemas, before, after)


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
