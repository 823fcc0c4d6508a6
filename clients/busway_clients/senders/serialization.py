"""
A message as text and back, so that the SDK encodes the same message after a restart as it would have before.

What the SDK would put on the wire says less than what the application gave: an integer whose type it wraps
(`{"TYPE": "LONG", ...}`) comes back as a bare one, which is sent as another type or not at all. So the parts are kept
as the application gave them.
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
    """Return the arguments that make a message such as *raw*, which shares its body with it and nothing else."""
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
    """Return parts of a message as text, the same for equal parts; WrongUse for a value that no message can hold."""
    return json.dumps(
        {name: _frozen(value, name) for name, value in sorted(values.items())}, separators=(",", ":")
    ).encode()


def thaw(text: bytes) -> AmqpAnnotatedMessage:
    """Return the message whose parts were frozen."""
    return AmqpAnnotatedMessage(**{name: _thawed(value) for name, value in json.loads(text).items()})


def _frozen(value: object, where: str) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            # An enum of the SDK that is text, such as a type's name, is what its text says.
            return str(value.value) if hasattr(value, "value") else value
        case bytes() | bytearray() | memoryview():
            return {"b": base64.b64encode(value).decode()}
        case UUID():
            return {"u": value.hex}
        case datetime():
            return {"d": value.isoformat()}
        case tuple():
            return {"t": [_frozen(each, where) for each in value]}
        case list():
            return [_frozen(each, where) for each in value]
        case Mapping():
            pairs = [[_frozen(key, where), _frozen(each, f"{where}.{key!s}")] for key, each in value.items()]
            return {"m": sorted(pairs, key=lambda pair: json.dumps(pair[0]))}
    expected = "None, bool, int, float, str, bytes, UUID, datetime, list, tuple or dict"
    raise WrongUse(f"{where} of a message: is a {type(value).__name__}, expected {expected}")


def _thawed(value: Any) -> Any:  # noqa: ANN401 - any value that AMQP knows
    match value:
        case {"b": str(text)}:
            return base64.b64decode(text)
        case {"u": str(text)}:
            return UUID(hex=text)
        case {"d": str(text)}:
            return datetime.fromisoformat(text)
        case {"t": list(values)}:
            return tuple(_thawed(each) for each in values)
        case {"m": list(pairs)}:
            return {_thawed(key): _thawed(each) for key, each in pairs}
        case list(values):
            return [_thawed(each) for each in values]
    return value
