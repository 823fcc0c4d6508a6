"""Messages as a service delivers them: encoded, and as the pipeline receives them."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, TRUE, Value, long, string, symbol, timestamp, uint
from shared.message.arrival import Origin
from shared.message.message import Message

ORIGIN = Origin("west", "orders")
ENQUEUED = 1_900_000_000_123  # 2030-03-17T17:46:40.123Z
LOCK_MILLISECONDS = 60_000

_FIELDS = (
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("absolute_expiry_time", "creation_time", "session_id", "group_sequence", "reply_to_session_id"),
)


def header(*, time_to_live: int | None = None, delivery_count: int = 0) -> bytes:
    life = NULL if time_to_live is None else uint(time_to_live)
    return join_list(b"\x00\x53\x70", [encode(field) for field in (TRUE, NULL, life, NULL, uint(delivery_count))])


def annotations(values: Mapping[str, Value]) -> bytes:
    pairs = [encode(symbol(name)) + encode(value) for name, value in values.items()]
    return join_map(b"\x00\x53\x72", pairs, len(pairs)) if pairs else b""


def properties(**fields: Value) -> bytes:
    unknown = set(fields) - set(_FIELDS)
    assert not unknown, unknown
    return join_list(b"\x00\x53\x73", [encode(fields.get(name, NULL)) for name in _FIELDS]) if fields else b""


def application_properties(values: Mapping[str, Value] | Sequence[tuple[str | Value, Value]]) -> bytes:
    """Return the section; pairs may have a name twice, or one that is not text."""
    named = values.items() if isinstance(values, Mapping) else values
    pairs = [encode(name if isinstance(name, Value) else string(name)) + encode(value) for name, value in named]
    return join_map(b"\x00\x53\x74", pairs, len(pairs)) if pairs else b""


def delivered(
    number: int | None = 1,
    *,
    named: Mapping[str, Value] | Sequence[tuple[str | Value, Value]] | None = None,
    annotated: Mapping[str, Value] | None = None,
    body: bytes = b"body",
    enqueued: int = ENQUEUED,
    locked_until: int | None = None,
    time_to_live: int | None = None,
    delivery_count: int = 0,
    message_id: str | Value | None = "",
    session_id: str | Value | None = None,
    content_type: str | Value | None = None,
    content_encoding: str | Value | None = None,
    **fields: Any,
) -> bytes:
    """
    Return a delivered message with sequence number *number*; its id is m-NUMBER unless one (or None) is given.

    Shape:   the other properties of the message are Values by their names.
    """
    if message_id is not None:
        fields["message_id"] = message_id if isinstance(message_id, Value) else string(message_id or f"m-{number}")
    if session_id is not None:
        fields["session_id"] = session_id if isinstance(session_id, Value) else string(session_id)
    if content_type is not None:
        fields["content_type"] = content_type if isinstance(content_type, Value) else symbol(content_type)
    if content_encoding is not None:
        fields["content_encoding"] = (
            content_encoding if isinstance(content_encoding, Value) else symbol(content_encoding)
        )
    assigned: dict[str, Value] = {}
    if number is not None:
        until = enqueued + LOCK_MILLISECONDS if locked_until is None else locked_until
        assigned = {
            "x-opt-enqueued-time": timestamp(enqueued),
            "x-opt-sequence-number": long(number),
            "x-opt-locked-until": timestamp(until),
        }
    return Sections(
        header=header(time_to_live=time_to_live, delivery_count=delivery_count),
        message_annotations=annotations({**assigned, **(annotated or {})}),
        properties=properties(**fields),
        application_properties=application_properties(named or {}),
        body=data(body),
    ).encode()


def received(content: bytes, origin: Origin = ORIGIN) -> Message:
    """Return the message with these bytes as the pipeline receives it from *origin*."""
    return Message.received(content, origin)


def message(
    number: int | None = 1, *, body: bytes | str | Value | None = b"body", origin: Origin = ORIGIN, **options: Any
) -> Message:
    """
    Return a message as the pipeline receives it from *origin*; *options* are those of `delivered`.

    Shape:   a body of bytes is a data section, a text or a Value is an amqp-value section, None is no body.
    """
    made = received(delivered(number, **options), origin)
    match body:
        case bytes():
            made.sections.body = data(body)
        case None:
            made.sections.body = b""
        case _:
            made.sections.body = b"\x00\x53\x77" + encode(string(body) if isinstance(body, str) else body)
    return made
