"""The cloudevents editor: both modes of the AMQP binding, and events that are invalid."""

import json
from typing import Any
from uuid import UUID

import pytest

from shared.amqp.values import (
    Value,
    binary,
    boolean,
    described,
    double,
    int_,
    long,
    string,
    symbol,
    timestamp,
    ulong,
    uuid,
)
from shared.message.message import Message
from tests import editing
from tests.messages import ENQUEUED, message

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "acme.paid"}
STRUCTURED = "application/cloudevents+json"


def order(body: bytes = b'{"total": 12.50}', content_type: str | None = "application/json", **options: Any) -> Message:
    return message(body=body, content_type=content_type, **options)


def test_an_event_from_kafka_whose_record_has_no_value_has_no_data() -> None:
    received = message(named={f"cloudEvents_{name}": string(text) for name, text in REQUIRED.items()})
    received.sections.body = b"\x00\x53\x77\x40"
    structured = edited(received.copy(), to="structured")
    assert json.loads(structured.body or b"") == REQUIRED
    assert edited(received, to="binary").sections.body == b"\x00\x53\x77\x40"


def edited(received: Message, **options: Any) -> Any:
    return editing.edited(editing.editor("cloudevents", **options), received)


def properties(received: Message) -> dict[str, Any]:
    return {name: value.payload for name, value in received.application_properties()}


def event(data: dict[str, Any] | None = None, content_type: str | None = STRUCTURED, **attributes: Any) -> Message:
    return order(json.dumps({**REQUIRED, **attributes, **(data or {})}).encode(), content_type)


def rejection(received: Message, **options: Any) -> str:
    _, description = editing.rejection(editing.editor("cloudevents", **options), received)
    assert "s3cr3t" not in description
    return description


def test_a_message_becomes_an_event_with_its_id_time_and_source() -> None:
    made = json.loads(edited(order(subject=string("order placed")), to="structured").body)
    assert made == {
        "specversion": "1.0",
        "id": "m-1",
        "source": "/west/orders",
        "type": "order placed",
        "time": "2030-03-17T17:46:40.123Z",
        "datacontenttype": "application/json",
        "data": {"total": 12.5},
    }
    options = {"type": "acme.placed", "source": "https://shop.example/orders", "dataschema": "https://shop.example/s"}
    made = json.loads(edited(order(subject=string("4711")), to="structured", **options).body)
    assert made["subject"] == "4711"
    assert {name: made[name] for name in options} == options


def test_an_event_without_a_message_id_has_the_same_id_at_every_delivery() -> None:
    first, second = (edited(order(message_id=None), to="binary", type="t") for _ in range(2))
    assert properties(first)["cloudEvents_id"] == properties(second)["cloudEvents_id"]
    assert not first.has_message_id


@pytest.mark.parametrize(
    ("identity", "expected"),
    [(ulong(5), "5"), (uuid(UUID(int=1)), "00000000-0000-0000-0000-000000000001"), (binary(b"\xff"), "/w==")],
)
def test_a_message_id_of_any_type_becomes_text(identity: Value, expected: Any) -> None:
    received = edited(order(message_id=identity), to="binary", type="t")
    assert properties(received)["cloudEvents_id"] == expected
    assert received.message_id == identity


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/xml", "image/png", None])
@pytest.mark.parametrize("separator", ["_", ":"])
def test_conversion_to_an_event_and_back_restores_the_message(content_type: str | None, separator: str) -> None:
    body = b'{"total": 12.50, "n": 12345678901234567.89}' if content_type == "application/json" else "Köln €".encode()
    received = order(body, content_type, named={"tenant": string("t")}, subject=string("s"))
    binary_mode = edited(
        order(body, content_type, named={"tenant": string("t")}), to="binary", type="t", separator=separator
    )
    before = binary_mode.encode()
    there = edited(binary_mode, to="structured")
    assert there.content_type == f"{STRUCTURED}; charset=utf-8"
    assert properties(there) == {"tenant": "t"}
    assert edited(there, to="binary", separator=separator).encode() == before
    original = received.encode()
    assert edited(edited(received, to="structured"), to="plain").encode() == original
    assert edited(edited(received, to="binary"), to="plain").encode() == original


def test_bytes_that_are_not_text_are_encoded_in_base64() -> None:
    there = edited(order(b"\xff\x00", "text/plain"), to="structured", type="t")
    assert json.loads(there.body)["data_base64"] == "/wA="
    assert edited(there, to="plain").body == b"\xff\x00"


def test_to_plain_does_not_change_a_message_that_is_not_an_event() -> None:
    received = order()
    before = received.encode()
    assert edited(received, to="plain").encode() == before


def test_attributes_are_read_from_properties_of_every_type_that_the_binding_allows() -> None:
    named = {f"cloudEvents:{name}": string(value) for name, value in REQUIRED.items()} | {
        "cloudEvents:time": timestamp(ENQUEUED),
        "cloudEvents:flag": boolean(True),
        "cloudEvents:count": int_(-5),
        "cloudEvents:raw": binary(b"\xff"),
        "cloudEvents:source": described(symbol("com.microsoft:uri"), string("https://shop.example")),
    }
    made = json.loads(edited(order(named=named), to="structured").body)
    assert {name: made[name] for name in ("time", "flag", "count", "raw", "source")} == {
        "time": "2030-03-17T17:46:40.123Z",
        "flag": True,
        "count": -5,
        "raw": "/w==",
        "source": "https://shop.example",
    }


def test_attributes_become_properties_of_the_matching_amqp_type() -> None:
    received = edited(event(flag=True, count=5, time="2030-03-17T17:46:40.123456+01:00"), to="binary")
    found = dict(received.application_properties())
    assert (found["cloudEvents_flag"].kind, found["cloudEvents_count"].kind) == ("boolean", "long")
    assert found["cloudEvents_time"].payload == "2030-03-17T17:46:40.123456+01:00"


def test_data_becomes_a_body_as_datacontenttype_requires() -> None:
    assert edited(event({"data": "text"}), to="binary").body == b'"text"'
    assert edited(event({"data": "text"}), to="binary").content_type == "application/json"
    assert edited(event({"data": "Köln"}, datacontenttype="text/plain"), to="binary").body == "Köln".encode()
    latin = event({"data": "Köln"}, datacontenttype="text/plain; charset=iso-8859-1")
    assert edited(latin, to="binary").body == "Köln".encode("latin-1")
    assert edited(event({"data_base64": "/w=="}, datacontenttype="image/png"), to="binary").body == b"\xff"
    assert edited(event({"data": None}), to="binary").body == b"null"
    assert edited(event(), to="binary").body == b""
    assert edited(event(subject=None), to="binary").content_type is None


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (order(b"s3cr3t", STRUCTURED), "body is not JSON, line 1 column 1: expecting value"),
        (order(b"[]", STRUCTURED), "body is not a JSON object, expected an event"),
        (order(b"{}", STRUCTURED), "event has no specversion, id, source, type"),
        (
            order(b"[]", "application/cloudevents-batch+json"),
            "body is a batch of events, expected one (split it first)",
        ),
        (order(b"x", "application/cloudevents+avro"), f"event is in another format, expected {STRUCTURED}"),
        (event(specversion="0.3"), "specversion: expected 1.0"),
        (event(id=""), "id: expected text that is not empty"),
        (event(id=5), "id: expected text"),
        (event(type=""), "type: expected text that is not empty"),
        (event(source=""), "source: expected a URI reference"),
        (event(source="s3cr3t\ud800"), "source: has a character that is not allowed in attributes"),
        (event(source=1.5), "source: expected text"),
        (event(time="s3cr3t"), "time: expected a time as in RFC 3339"),
        (event(time="2030-02-30T00:00:00Z"), "time: expected a time as in RFC 3339"),
        (event(time="2030-03-17T17:46:40"), "time: expected a time as in RFC 3339"),
        (event(datacontenttype="s3cr3t"), "datacontenttype: expected a media type"),
        (event(subject="a\nb"), "subject: has a character that is not allowed in attributes"),
        (event(s3cr3t_=1), "event has an attribute with an invalid name, expected a to z and 0 to 9, and not data"),
        (event(extension=[]), "an extension attribute: expected text, a boolean or a number"),
        (event({"data": 1, "data_base64": "AA=="}), "event has data and data_base64, expected one"),
        (event({"data_base64": "s3cr3t!"}), "data_base64: expected Base64"),
        (event({"data": 1}, datacontenttype="text/plain"), "data: expected text, as datacontenttype is not JSON"),
    ],
    ids=range(22),
)
def test_a_document_that_is_not_an_event_is_reported_without_quoting_it(received: Message, expected: Any) -> None:
    assert rejection(received, to="binary") == expected


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ({"dataschema": "#"}, {}),  # Event Grid, of every event of Azure Storage
        ({"dataschema": "/relative"}, {}),
        ({"dataschema": "https://a.example/ä"}, {"dataschema": "https://a.example/%C3%A4"}),
        ({"dataschema": "", "subject": "", "time": ""}, {}),
        ({"source": "/Büro/ä b/%zz%41"}, {"source": "/B%C3%BCro/%C3%A4%20b/%25zz%41"}),
        ({"time": "2019-11-18T15:13:39.4589254Z"}, {"time": "2019-11-18T15:13:39.4589254Z"}),
        ({"time": "2019-11-18 15:13:39Z"}, {"time": "2019-11-18T15:13:39Z"}),
        ({"specversion": "1.0.2"}, {}),
        ({"traceParent": "00-1"}, {"traceparent": "00-1"}),
        ({"extension": 1.5, "large": 2**31}, {"extension": "1.5", "large": str(2**31)}),
    ],
)
def test_what_common_producers_send_is_read_and_written_as_the_specification_says(
    sent: dict[str, Any], written: dict[str, Any]
) -> None:
    found = properties(edited(event({"data": 1}, **sent), to="binary"))
    assert found == {f"cloudEvents_{name}": each for name, each in (REQUIRED | written).items()}
    again = edited(edited(event({"data": 1}, **sent), to="binary"), to="structured")
    assert json.loads(again.body or b"") == {**REQUIRED, **written, "datacontenttype": "application/json", "data": 1}


def test_attributes_in_properties_are_read_as_those_of_documents() -> None:
    named = {f"cloudEvents_{name}": string(each) for name, each in REQUIRED.items()}
    received = order(named={**named, "cloudEvents_source": string("/Büro"), "cloudEvents_dataschema": string("#")})
    made = edited(received, to="structured")
    assert json.loads(made.body or b"")["source"] == "/B%C3%BCro"
    assert "dataschema" not in json.loads(made.body or b"")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"cloudEvents_id": string("1")}, "event has no source, type"),
        ({"cloudEvents:id": string("1")}, "event has properties with _ and with :, expected one of them"),
        ({"cloudEvents_flag": double(1.5)}, "a property of the event is a double, which no attribute can be"),
        ({"cloudEvents_count": long(2**40)}, "event has no id, source, type"),
        (
            {"cloudEvents_datacontenttype": string("a/b")},
            "event has datacontenttype as a property, expected the content type",
        ),
    ],
)
def test_properties_that_do_not_form_an_event_are_reported(named: Any, expected: Any) -> None:
    assert rejection(order(named={"cloudEvents_specversion": string("1.0")} | named), to="structured") == expected


def test_a_message_that_cannot_become_an_event_is_reported() -> None:
    assert rejection(order(), to="binary") == "event would have no type: the message has no subject"
    assert (
        rejection(order(b"s3cr3t"), to="structured", type="t") == "body is not JSON, line 1 column 1: expecting value"
    )
