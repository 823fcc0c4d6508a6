"""
The four ways to settle a message: as the state of a disposition, and as a request to `$management`.

Source: AmqpReceiver.GetModifiedOutcome and GetRejectedOutcome (Azure/azure-sdk-for-net).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.amqp import performatives
from shared.amqp.codec import decode_all, encode, pairs_of
from shared.amqp.values import NULL, TRUE, Value, described, list_, map_, string, symbol, ulong
from shared.ends.service_bus.management import ManagementConnection

_REQUEST_SECONDS = 60.0
_DEAD_LETTER = "com.microsoft:dead-letter"
_ERROR = 0x1D


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome: its descriptor, its encoded state, and the request that has the same effect for a lock token."""

    code: int
    state: bytes
    request: Callable[[ManagementConnection, bytes], Awaitable[None]]


def completed() -> Outcome:
    """Return the outcome that removes the message."""
    return Outcome(
        performatives.ACCEPTED,
        _state(performatives.ACCEPTED),
        lambda node, tag: node.complete([tag], None, _REQUEST_SECONDS),
    )


def abandoned(properties: bytes = b"") -> Outcome:
    """Return the outcome that gives the message back; *properties*, an encoded map, change it."""
    return Outcome(
        performatives.MODIFIED,
        _state(performatives.MODIFIED, *([NULL, NULL, map_(_changes(properties))] if properties else ())),
        lambda node, tag: node.abandon([tag], _REQUEST_SECONDS),
    )


def deferred(properties: bytes = b"") -> Outcome:
    """Return the outcome after which the message is received by its number only."""
    changes = (map_(_changes(properties)),) if properties else ()
    return Outcome(
        performatives.MODIFIED,
        _state(performatives.MODIFIED, NULL, TRUE, *changes),
        lambda node, tag: node.defer([tag], None, _REQUEST_SECONDS),
    )


def dead_lettered(reason: str | None, description: str | None, properties: bytes = b"") -> Outcome:
    """Return the outcome that moves the message to the dead-letter queue."""
    texts = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    info = [(symbol(name), string(text)) for name, text in texts.items() if text is not None]
    info += _changes(properties)
    error = [described(ulong(_ERROR), list_([symbol(_DEAD_LETTER), NULL, map_(info)]))] if info else []
    return Outcome(
        performatives.REJECTED,
        _state(performatives.REJECTED, *error),
        lambda node, tag: node.dead_letter([tag], None, reason, description, _REQUEST_SECONDS),
    )


def _state(code: int, *fields: Value) -> bytes:
    return encode(described(ulong(code), list_(fields)))


def _changes(properties: bytes) -> list[tuple[Value, Value]]:
    if not properties:
        return []
    return [(symbol(str(key.payload)), value) for key, value in pairs_of(decode_all(properties))]


COMPLETED, ABANDONED = completed(), abandoned()
