"""
Converts messages to JSON and back, so that the SDK encodes the same message after a restart.

Decoding the SDK's own encoding would lose types: an integer with an explicit type (`{"TYPE": "LONG", ...}`) is decoded
as a plain one, which is then sent as another type or not at all. So the parts are stored as the application gave them.
"""

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from busway_clients.errors import WrongUse

_BODIES = {
    AmqpMessageBodyType.DATA: "data_body",
    AmqpMessageBodyType.SEQUENCE: "sequence_body",
    AmqpMessageBodyType.VALUE: "value_body",
}


def parts(raw: AmqpAnnotatedMessage) -> dict[str, Any]:
    """Return the arguments that create a message equal to *raw*; only the body is shared with it."""
    body = raw.body if raw.body_type is AmqpMessageBodyType.VALUE else [*raw.body]
    return {
        _BODIES[raw.body_type]: body,
        "header": raw.header and dict(raw.header.items()),
        "properties": raw.properties and dict(raw.properties.items()),
        "application_properties": raw.application_properties and dict(raw.application_properties),
        "annotations": raw.annotations and dict(raw.annotations),
        "delivery_annotations": raw.delivery_annotations and dict(raw.delivery_annotations),
        "footer": raw.footer and dict(raw.footer),
    }


def freeze(values: Mapping[str, Any]) -> bytes:
    """Return the parts of a message as JSON, the same for equal parts; raises WrongUse for an unsupported value."""
    return json.dumps(
        {name: _to_json(value, name) for name, value in sorted(values.items())}, separators=(",", ":")
    ).encode()


def thaw(text: bytes) -> AmqpAnnotatedMessage:
    """Return the message that `freeze` serialized."""
    return AmqpAnnotatedMessage(**{name: _from_json(value) for name, value in json.loads(text).items()})


def _to_json(value: object, where: str) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            # Some text is an enum of the SDK, such as the name of a type.
            return str(value.value) if hasattr(value, "value") else value
        case bytes() | bytearray() | memoryview():
            return {"b": base64.b64encode(value).decode()}
        case UUID():
            return {"u": value.hex}
        case datetime():
            return {"d": value.isoformat()}
        case tuple():
            return {"t": [_to_json(each, where) for each in value]}
        case list():
            return [_to_json(each, where) for each in value]
        case Mapping():
            pairs = [[_to_json(key, where), _to_json(each, f"{where}.{key!s}")] for key, each in value.items()]
            return {"m": sorted(pairs, key=lambda pair: json.dumps(pair[0]))}
    expected = "None, bool, int, float, str, bytes, UUID, datetime, list, tuple or dict"
    raise WrongUse(f"{where} of a message: got a {type(value).__name__}, expected {expected}")


def _from_json(value: Any) -> Any:  # noqa: ANN401 - any AMQP value
    match value:
        case {"b": str(text)}:
            return base64.b64decode(text)
        case {"u": str(text)}:
            return UUID(hex=text)
        case {"d": str(text)}:
            return datetime.fromisoformat(text)
        case {"t": list(values)}:
            return tuple(_from_json(value) for value in values)
        case {"m": list(pairs)}:
            return {_from_json(key): _from_json(each) for key, each in pairs}
        case list(values):
            return [_from_json(value) for value in values]
    return value
