"""A rejected message in `rejects`: as it was received, with the reason in its properties."""

from collections.abc import Sequence
from typing import NamedTuple

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.line.routing import Target
from shared.line.states import Rejection
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.protocols import Outgoing

REASON = "repl-reject-reason"
DESCRIPTION = "repl-reject-description"
STAGE = "repl-reject-stage"
TASK = "repl-reject-task"
SOURCE = "repl-reject-source"
SEQUENCE = "repl-reject-sequence"
PART = "repl-reject-part"
PARTS = "repl-reject-parts"
TARGET = "repl-reject-target"
SHARE = (PART, PARTS, TARGET, TASK, SOURCE)
"""What makes a task send a share of a message instead of all."""

WRAPPED_CONTENT_TYPE = "application/vnd.busway.amqp-message"

_PART, _TARGET = PART.encode(), TARGET.encode()
_PARTITION = "/Partitions/"
_LONGEST_NUMBER = 9
_BETWEEN = ";"


class Part(NamedTuple):
    """The number of a part, and the number of parts of its message."""

    number: int
    """From 0."""
    total: int


class Share(NamedTuple):
    """What of a message is rejected, or to be sent again: a part, what one target gets, or both; all of it if empty."""

    part: Part | None = None
    target: str | None = None
    """One of several targets, as site and entity; in a request there may be more, separated by semicolons."""


WHOLE = Share()


def set_aside(
    rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection, share: Share = WHOLE
) -> Outgoing:
    """Return the received *content* as a message for *rejects*; wrapped if its sections cannot be read."""
    try:
        message = Message.received(content, arrival.origin)
        message.set_properties(_properties(rejection, arrival, share))
        return rejects.outgoing(message)
    except MessageRejected:
        return wrapped(rejects, content, arrival, rejection, share)


def wrapped(rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection, share: Share = WHOLE) -> Outgoing:
    """Return a message whose body is the whole received *content*, for messages that no target accepts unwrapped."""
    message = Message(Sections(), arrival)
    message.body = content
    message.content_type = WRAPPED_CONTENT_TYPE
    message.set_properties(_properties(rejection, arrival, share))
    identity = deterministic_id(arrival)
    message.message_id = None if identity is None else string(identity)
    return rejects.outgoing(message)


def share_for(task: str, origin: Origin, targets: Sequence[str]) -> dict[str, str]:
    """Return the properties with which *task* sends a message from *origin* to some of its *targets* only."""
    return {TASK: task, SOURCE: _place(origin), TARGET: _BETWEEN.join(targets)}


def targets_in(requested: str, names: Sequence[str]) -> set[str] | None:
    """Return the targets that a text requests, None unless all are among *names*."""
    wanted = {requested} if requested in names else set(requested.split(_BETWEEN))
    return wanted if wanted <= set(names) else None


def requested_share(content: bytes, arrival: Arrival, task: str) -> Share:
    """
    Return what to send of a received message that was in `rejects`.

    That is what a target of the same *task* had refused; the rest has been sent. A producer can set any property, so
    these count only if they name this *task*, its source, and one of several parts or a target. The caller compares
    the number of parts and the targets, and records the rest as withheld.
    """
    if content.find(_PART) < 0 and content.find(_TARGET) < 0:
        return WHOLE
    try:
        message = Message.received(content, arrival.origin)
        values = [message.application_property(name) for name in (PART, PARTS, TARGET, TASK, SOURCE)]
    except MessageRejected:
        return WHOLE
    number, total, target, rejected_by, place = (None if value is None else value.payload for value in values)
    if rejected_by != task or not _is_of(place, arrival.origin):
        return WHOLE
    return Share(_part(_number(number), _number(total)), target if isinstance(target, str) else None)


def _part(number: int | None, total: int | None) -> Part | None:
    """Return one of several parts."""
    if number is None or total is None or number >= total or total == 1:
        return None
    return Part(number, total)


def _number(payload: object) -> int | None:
    """Return the number that a property contains as text."""
    if not isinstance(payload, str) or len(payload) > _LONGEST_NUMBER:
        return None
    return int(payload) if payload.isascii() and payload.isdecimal() else None


def _is_of(place: object, origin: Origin) -> bool:
    """Return whether *place* is the source of *origin*; a replayed event may be in another partition."""
    return isinstance(place, str) and place.partition(_PARTITION)[0] == _place(origin._replace(partition=None))


def _place(origin: Origin) -> str:
    return f"{origin.site}/{origin.entity}" + ("" if origin.partition is None else f"{_PARTITION}{origin.partition}")


def _properties(rejection: Rejection, arrival: Arrival, share: Share) -> dict[str, Value | None]:
    origin, number, part = arrival.origin, arrival.sequence_number, share.part
    return {
        REASON: string(rejection.error.reason),
        DESCRIPTION: string(rejection.error.description),
        STAGE: string(rejection.stage.value),
        TASK: string(rejection.task),
        SOURCE: string(_place(origin)),
        SEQUENCE: None if number is None else string(str(number)),
        PART: None if part is None else string(str(part.number)),
        PARTS: None if part is None else string(str(part.total)),
        TARGET: None if share.target is None else string(share.target),
    }
