"""What a message at fault looks like in `rejects`: as it arrived, plus why it was set aside."""

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.message import Arrival, Message
from shared.metadata import deterministic_id
from shared.protocols import Outgoing
from shared.routing import Target

REASON = "repl-reject-reason"
DESCRIPTION = "repl-reject-description"
TASK = "repl-reject-task"

WRAPPED_CONTENT_TYPE = "application/vnd.busway.amqp-message"


def set_aside(rejects: Target, content: bytes, arrival: Arrival, error: MessageRejected, task: str) -> Outgoing:
    """Return the message of the received *content* for *rejects*; in a wrapping when its sections cannot be read."""
    try:
        message = Message.received(content, arrival.origin)
        message.set_properties(_told(error, task))
        return rejects.outgoing(message)
    except MessageRejected:
        return wrapped(rejects, content, arrival, error, task)


def wrapped(rejects: Target, content: bytes, arrival: Arrival, error: MessageRejected, task: str) -> Outgoing:
    """Return a message whose body is the whole received *content*, for what no target takes as it is."""
    message = Message(Sections(), arrival)
    message.body = content
    message.content_type = WRAPPED_CONTENT_TYPE
    message.set_properties(_told(error, task))
    identity = deterministic_id(arrival)
    message.message_id = None if identity is None else string(identity)
    return rejects.outgoing(message)


def _told(error: MessageRejected, task: str) -> dict[str, Value | None]:
    return {REASON: string(error.reason), DESCRIPTION: string(error.description), TASK: string(task)}
