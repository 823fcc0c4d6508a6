"""What a message at fault looks like in `rejects`: as it arrived, plus why it was set aside."""

from enum import StrEnum
from typing import NamedTuple

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.line.routing import Target
from shared.message.message import Arrival, Message
from shared.message.metadata import deterministic_id
from shared.protocols import Outgoing

REASON = "repl-reject-reason"
DESCRIPTION = "repl-reject-description"
STAGE = "repl-reject-stage"
TASK = "repl-reject-task"
SOURCE = "repl-reject-source"
SEQUENCE = "repl-reject-sequence"

WRAPPED_CONTENT_TYPE = "application/vnd.busway.amqp-message"


class Stage(StrEnum):
    """The step of the line that objected to a message."""

    RECEIVED = "received"
    EDITED = "edited"
    STAMPED = "stamped"
    ROUTED = "routed"
    FITTED = "fitted"
    SENT = "sent"


class Rejection(NamedTuple):
    """Why a message was set aside, and by which step of which task."""

    error: MessageRejected
    stage: Stage
    task: str


def set_aside(rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection) -> Outgoing:
    """Return the message of the received *content* for *rejects*; in a wrapping when its sections cannot be read."""
    try:
        message = Message.received(content, arrival.origin)
        message.set_properties(_told(rejection, arrival))
        return rejects.outgoing(message)
    except MessageRejected:
        return wrapped(rejects, content, arrival, rejection)


def wrapped(rejects: Target, content: bytes, arrival: Arrival, rejection: Rejection) -> Outgoing:
    """Return a message whose body is the whole received *content*, for what no target takes as it is."""
    message = Message(Sections(), arrival)
    message.body = content
    message.content_type = WRAPPED_CONTENT_TYPE
    message.set_properties(_told(rejection, arrival))
    identity = deterministic_id(arrival)
    message.message_id = None if identity is None else string(identity)
    return rejects.outgoing(message)


def _told(rejection: Rejection, arrival: Arrival) -> dict[str, Value | None]:
    origin, number = arrival.origin, arrival.sequence_number
    place = f"{origin.site}/{origin.entity}" + ("" if origin.partition is None else f"/Partitions/{origin.partition}")
    return {
        REASON: string(rejection.error.reason),
        DESCRIPTION: string(rejection.error.description),
        STAGE: string(rejection.stage.value),
        TASK: string(rejection.task),
        SOURCE: string(place),
        SEQUENCE: None if number is None else string(str(number)),
    }
