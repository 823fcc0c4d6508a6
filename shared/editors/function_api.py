"""
The API for functions of your own, which the python editor calls for each message.

    from decimal import Decimal

    from shared.editors.function_api import Message, json_of, put_json, reject


    def edit(message: Message) -> Message:
        order = json_of(message)
        if not isinstance(order, dict) or "total" not in order:
            reject("NoOrder", "expected an object with a total")
        put_json(message, {**order, "tax": order["total"] * Decimal("0.19")})
        return message

The function gets a message, which it may change, and returns it, several messages (each a `message.copy()`), or None to
withhold it. It runs between receipt and send: it must do no I/O, and keep no state between calls. It must not change
the id, the session, the partition key, the arrival, or properties that begin with `repl-`. If it raises an error, the
message is rejected. Several messages get the ids ID/0, ID/1 and so on. Test it with `shared.testing`.

It is called in a thread, one message after the other, and a new thread for each delivery. A module that several tasks
use is called by several threads at the same time: protect what they share with a lock. A call of more than a second
(ten times `limits.edit_time`) is abandoned and its message rejected. A search for a regular expression holds all
threads until it ends: avoid nested quantifiers.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import NoReturn, cast
from uuid import UUID

from shared.amqp import values
from shared.amqp.codec import plain
from shared.amqp.values import Value
from shared.codecs.json import ExactJson, read_exact, write
from shared.editors.content.body import content_of, put_content
from shared.errors import MessageRejected
from shared.message.message import Message

__all__ = [
    "Edit",
    "Message",
    "MessageRejected",
    "json_of",
    "properties_of",
    "put_json",
    "put_text",
    "reject",
    "set_property",
    "text_of",
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

type Edit = Callable[[Message], Message | Sequence[Message] | None]
"""The type of such a function."""


def reject(reason: str, description: str) -> NoReturn:
    """Reject the message with a reason (one word) and a description (a sentence), neither of which may quote it."""
    raise MessageRejected(reason, description)


def text_of(message: Message) -> str:
    """Return the body as text; raises MessageRejected if it is not UTF-8."""
    content = content_of(message)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MessageRejected("NotText", f"body is not UTF-8 at byte {error.start}") from None


def put_text(message: Message, text: str) -> None:
    """Make *text* the body."""
    put_content(message, text.encode())


def json_of(message: Message) -> ExactJson:
    """Return the body as JSON, with Decimals for numbers that are not integers; raises MessageRejected."""
    return read_exact(content_of(message))


def put_json(message: Message, value: object) -> None:
    """Make *value* the body, as JSON; raises MessageRejected for values that JSON does not have."""
    try:
        content = write(_finite(value))
    except RecursionError as error:
        raise MessageRejected("NotWritable", "the result is nested too deeply to be written as JSON") from error
    put_content(message, content)


def properties_of(message: Message) -> dict[str, object]:
    """
    Return the application properties as Python values: timestamps as datetime, decimals as bytes.

    A timestamp beyond the years 1 to 9999 stays a number of milliseconds since 1970.
    """
    properties = message.application_properties()
    return {name: _time(value) if value.kind == "timestamp" else plain(value) for name, value in properties}


def set_property(message: Message, name: str, value: object) -> None:
    """
    Set an application property from a text, boolean, number, datetime or UUID, with the AMQP type that Azure's SDKs
    use.

    An integer becomes a long. An AMQP value of `shared.amqp.values` stays as it is; `values.NULL` is null. None removes
    the property. Raises TypeError for a value of another type.
    """
    message.set_properties({name: None if value is None else _value(value)})


def _finite(value: object) -> ExactJson:
    """Return JSON without floats, of which NaN and the infinities would be written as null."""
    match value:
        case float():
            if not isfinite(value):
                raise MessageRejected("NotWritable", "the result has a number that is not finite")
            return Decimal(repr(value))
        case Decimal() if not value.is_finite():
            raise MessageRejected("NotWritable", "the result has a number that is not finite")
        case dict():
            if not all(isinstance(name, str) for name in value):
                raise MessageRejected("NotWritable", "the result has an object with a name that is not text")
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case None | str() | int() | Decimal():
            return value
        case _:
            problem = f"the result has a {type(value).__name__}, which JSON cannot represent"
            raise MessageRejected("NotWritable", problem)


def _time(value: Value) -> object:
    try:
        return _EPOCH + timedelta(milliseconds=cast("int", value.payload))
    except OverflowError:
        return value.payload


def _value(given: object) -> Value:
    match given:
        case Value():
            return given
        case bool():
            return values.boolean(given)
        case int():
            return values.long(given)
        case float():
            return values.double(given)
        case str():
            return values.string(given)
        case datetime():
            return values.timestamp(round((given.astimezone(UTC) - _EPOCH) / timedelta(milliseconds=1)))
        case UUID():
            return values.uuid(given)
    raise TypeError(f"got a {type(given).__name__}, expected text, number, boolean, time or UUID")
