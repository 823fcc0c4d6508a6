"""A rejected message in `rejects`: as it was received, with properties that say why."""

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.line.routing import Target
from shared.line.states import Rejection
from shared.message.arrival import Arrival
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

WRAPPED_CONTENT_TYPE = "application/vnd.busway.amqp-message"

_PART = PART.encode()
_LONGEST_NUMBER = 9


def set_aside(
    rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection, part: int | None = None
) -> Outgoing:
    """
    Return the received *content* as a message for *rejects*; wrapped if its sections cannot be read.

    *part* is the number of the only part that is rejected, None if it is the whole message.
    """
    try:
        message = Message.received(content, arrival.origin)
        message.set_properties(_properties(rejection, arrival, part))
        return rejects.outgoing(message)
    except MessageRejected:
        return wrapped(rejects, content, arrival, rejection, part)


def wrapped(
    rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection, part: int | None = None
) -> Outgoing:
    """Return a message whose body is the whole received *content*, for what no target takes as it is."""
    message = Message(Sections(), arrival)
    message.body = content
    message.content_type = WRAPPED_CONTENT_TYPE
    message.set_properties(_properties(rejection, arrival, part))
    identity = deterministic_id(arrival)
    message.message_id = None if identity is None else string(identity)
    return rejects.outgoing(message)


def requested_part(content: bytes, arrival: Arrival, task: str) -> int | None:
    """
    Return the only part to send of a received message that was in `rejects`, None if all are to be sent.

    That is the part which the target of the same *task* had refused; the others have been sent.
    """
    if content.find(_PART) < 0:
        return None
    try:
        message = Message.received(content, arrival.origin)
        part, rejected_by = message.application_property(PART), message.application_property(TASK)
    except MessageRejected:
        return None
    if rejected_by is None or rejected_by.payload != task or part is None or not isinstance(part.payload, str):
        return None
    text = part.payload
    return int(text) if len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdecimal() else None


def _properties(rejection: Rejection, arrival: Arrival, part: int | None) -> dict[str, Value | None]:
    origin, number = arrival.origin, arrival.sequence_number
    place = f"{origin.site}/{origin.entity}" + ("" if origin.partition is None else f"/Partitions/{origin.partition}")
    return {
        REASON: string(rejection.error.reason),
        DESCRIPTION: string(rejection.error.description),
        STAGE: string(rejection.stage.value),
        TASK: string(rejection.task),
        SOURCE: string(place),
        SEQUENCE: None if number is None else string(str(number)),
        PART: None if part is None else string(str(part)),
    }
