"""Bodies whose bytes, declaration and content type name different character sets, and Avro of another schema."""

import base64
import json
from typing import Any

import pytest

from shared.amqp.codec import encode
from shared.amqp.values import string
from shared.errors import MessageRejected
from shared.message.message import Message
from tests import editing
from tests.messages import message

DECLARED = '<?xml version="1.0" encoding="{}"?><r>Küche €</r>'
ISO = DECLARED.format("ISO-8859-15")


def text_message(text: str, content_type: str | None) -> Message:
    """Return a message whose body is a string, as JavaScript and Java send it."""
    made = message(content_type=content_type)
    made.sections.body = b"\x00\x53\x77" + encode(string(text))
    return made


def edited(step: dict[str, Any], received: Message, folder: Any = None) -> Any:
    (verb,) = step
    return editing.edited(editing.editor(verb, folder=folder, **step[verb]), received)


def as_json(received: Message) -> Any:
    return json.loads(edited({"transcode": {"from": "xml", "to": "json"}}, received).body or b"")


@pytest.mark.parametrize("name", ["ISO-8859-1", "utf-16", "utf-8", "windows-1252", "shift_jis", "unknown-1"])
@pytest.mark.parametrize("content_type", ["application/xml", "text/xml; charset=iso-8859-1", None])
def test_xml_in_a_string_keeps_its_letters_whatever_it_declares(name: str, content_type: str | None) -> None:
    assert as_json(text_message(DECLARED.format(name), content_type)) == {"r": "Küche €"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (ISO.encode("iso-8859-15"), "application/xml"),
        (ISO.encode("iso-8859-15"), "text/xml;charset=iso-8859-15"),
        (DECLARED.format("utf-8").encode("iso-8859-15"), 'text/xml; charset="ISO-8859-15"'),
        (ISO.encode(), "application/atom+xml; charset=utf-8"),
        (ISO.encode("utf-16"), "text/xml; charset=utf-16"),
        (DECLARED.format("utf-16").encode("utf-16"), "application/xml"),
        # The mark counts more than the content type (RFC 7303).
        (ISO.encode("utf-8-sig"), "text/xml; charset=iso-8859-1"),
    ],
)
def test_xml_in_bytes_is_read_by_mark_content_type_and_declaration(body: bytes, content_type: str) -> None:
    assert as_json(message(body=body, content_type=content_type)) == {"r": "Küche €"}


@pytest.mark.parametrize("name", ["unknown-1", "idna", "utf-7"])
def test_an_unknown_character_set_is_rejected(name: str) -> None:
    with pytest.raises(MessageRejected, match="WrongContentType: names an unknown character set"):
        as_json(message(body=b"<r/>", content_type=f"text/xml; charset={name}"))


def test_json_in_another_character_set_is_read_in_that() -> None:
    step = {"transcode": {"from": "json", "to": "cbor"}}
    # As UTF-8 these bytes are other letters.
    latin = message(body='"Ã¼"'.encode("latin-1"), content_type="application/json; charset=iso-8859-1")
    assert edited(step, latin).body == b"\x64" + "Ã¼".encode()
    assert edited(step, text_message('"ü"', "application/json; charset=utf-16")).body == b"\x62" + "ü".encode()


def test_a_string_becomes_an_event_in_the_character_set_that_its_content_type_names() -> None:
    options = {"source": "/a", "type": "b"}
    for content_type, text in (("text/plain; charset=iso-8859-15", "Küche €"), ("application/xml", ISO)):
        binary = edited({"cloudevents": {"to": "binary", **options}}, text_message(text, content_type))
        assert (binary.body, binary.content_type) == (text.encode("iso-8859-15"), content_type)
        structured = edited({"cloudevents": {"to": "structured", **options}}, text_message(text, content_type))
        event = json.loads(structured.body or b"")
        assert base64.b64decode(event["data_base64"]).decode("iso-8859-15") == text
        again = edited({"cloudevents": {"to": "plain"}}, structured)
        assert (again.body, again.content_type) == (binary.body, content_type)
    with pytest.raises(MessageRejected, match="NotWritable"):
        edited({"cloudevents": {"to": "binary", **options}}, text_message("Ж", "text/plain; charset=iso-8859-1"))


@pytest.mark.parametrize(
    ("declared", "data", "body"),
    [
        ("application/xml", ISO, ISO.encode("iso-8859-15")),
        ("text/plain; charset=iso-8859-15", "€", b"\xa4"),
        ("application/json; charset=iso-8859-15", "€", b'"\xa4"'),
        ("application/json", "€", '"€"'.encode()),
    ],
)
def test_text_of_an_event_becomes_bytes_that_its_content_type_describes(declared: str, data: str, body: bytes) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/", "type": "t", "datacontenttype": declared, "data": data}
    text = json.dumps(event, ensure_ascii=False).encode()
    made = edited({"cloudevents": {"to": "binary"}}, message(body=text, content_type="application/cloudevents+json"))
    assert (made.body, made.content_type) == (body, declared)


SCHEMA = {"type": "record", "name": "P", "fields": [{"name": name, "type": "string"} for name in ("first", "last")]}
PERSON = b"\x06Ada\x10Lovelace"
OWN, OTHER = "1" * 32, "2" * 32


@pytest.mark.parametrize(
    ("options", "content_type", "problem"),
    [
        ({"schema_id": OWN}, f"avro/binary+{OWN}", None),
        ({"schema_id": OWN.upper()}, f"Avro/Binary+{OWN}; a=b", None),
        ({"schema_id": OWN}, "avro/binary", None),
        ({}, "avro/binary", None),
        ({}, None, None),
        ({"schema_id": OWN}, f"avro/binary+{OTHER}", f"names another schema of the registry than {OWN}"),
        ({}, f"avro/binary+{OTHER}", "names a schema of a registry by its id, expected `schema_id`"),
    ],
)
def test_avro_of_another_schema_of_a_registry_is_not_decoded_with_this_one(
    tmp_path: Any, options: dict[str, str], content_type: str | None, problem: str | None
) -> None:
    (tmp_path / "p.avsc").write_text(json.dumps(SCHEMA))
    avro = {"format": "avro", "schema": "p.avsc", "as": "raw", **options}
    steps: list[dict[str, Any]] = [
        {"transcode": {"from": avro, "to": "json"}},
        {"validate": {"avro": "p.avsc", "as": "raw", **options}},
    ]
    for step in steps:
        received = message(body=PERSON, content_type=content_type)
        if problem is None:
            assert edited(step, received, tmp_path).body in (b'{"first":"Ada","last":"Lovelace"}', PERSON)
        else:
            with pytest.raises(MessageRejected, match=problem):
                edited(step, received, tmp_path)


def test_avro_is_written_with_the_id_of_its_schema(tmp_path: Any) -> None:
    (tmp_path / "p.avsc").write_text(json.dumps(SCHEMA))
    avro = {"format": "avro", "schema": "p.avsc", "as": "raw", "schema_id": OWN}
    received = message(body=b'{"first":"Ada","last":"Lovelace"}', content_type="application/json")
    made = edited({"transcode": {"from": "json", "to": avro}}, received, tmp_path)
    assert (made.body, made.content_type) == (PERSON, f"avro/binary+{OWN}")
