"""The route editor: which values of a body become properties, and of which type."""

from typing import Any

import pytest

from shared.amqp.values import NULL, boolean, double, long, string, timestamp
from shared.testing import edited, message


def lifted(body: Any, properties: Any = None, **options: Any) -> Any:
    received = message(body, properties=properties)
    return edited({"route": {"found": {"value": "v", **options}}}, received)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("string", b'{"v": "DE"}', string("DE")),
        ("string", b'{"v": ""}', string("")),
        ("string", b'{"v": "' + b"x" * 32768 + b'"}', string("x" * 32768)),
        ("long", b'{"v": 5}', long(5)),
        ("long", b'{"v": 1E3}', long(1000)),
        ("long", b'{"v": -9223372036854775808}', long(-9223372036854775808)),
        ("double", b'{"v": 10.10}', double(10.1)),
        ("double", b'{"v": 3}', double(3.0)),
        ("boolean", b'{"v": false}', boolean(payload=False)),
        ("timestamp", b'{"v": "2030-03-17T17:46:40.123Z"}', timestamp(1_900_000_000_123)),
        ("timestamp", b'{"v": "1969-12-31T23:59:59.999+00:00"}', timestamp(-1)),
    ],
)
def test_a_value_becomes_a_property_of_its_type(kind: str, body: bytes, expected: Any) -> None:
    sent = lifted(body, type=kind).message
    assert dict(sent.raw.application_properties())["found"] == expected
    assert sent.body == body


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("string", each) for each in (b"5", b"[]", b"true", b'"\\ud83d"', b'"' + b"x" * 32769 + b'"')),
        *(("long", each) for each in (b"5.5", b'"5"', b"true", b"1E400", b"1E999999999")),
        *(("long", each) for each in (b"9223372036854775808", b"-9223372036854775809")),
        *(("double", each) for each in (b'"1"', b"false", b"1E400", b"-1E400")),
        *(("boolean", each) for each in (b"1", b'"true"')),
        *(("timestamp", each) for each in (b"5", b'"yesterday"', b'"2030-03-17T17:46:40"')),
        ("timestamp", b'"9999-12-31T23:59:59-23:59"'),
    ],
)
def test_a_value_of_another_type_rejects_the_message(kind: str, value: Any) -> None:
    (reason,) = lifted(b'{"v": ' + value + b"}", type=kind).reasons
    assert reason == f"WrongType: route: the value for found is not a {kind}, or is out of range"


@pytest.mark.parametrize("body", [b"{}", b'{"v": null}', b"5", b"[]"])
def test_a_missing_value_rejects_the_message_or_unsets_the_property(body: bytes) -> None:
    assert lifted(body).reasons == ["ValueMissing: route: there is no value for found, expected a string"]
    assert lifted(body, {"FOUND": "forged", "a": 1}, missing="unset").message.properties == {"a": 1}


def test_an_existing_property_keeps_its_spelling_and_gets_the_new_value() -> None:
    sent = lifted(b'{"v": "x"}', {"Found": NULL, "b": 1}).message
    assert sent.properties == {"Found": "x", "b": 1}
