"""Messages that commands compose, with any AMQP type."""

from collections.abc import Mapping

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Outgoing

_IDS = frozenset(("message_id", "correlation_id"))


def composed(
    body: bytes | None,
    properties: Mapping[str, Value],
    *,
    partition_key: str | None = None,
    time_to_live: int | None = None,
    **texts: str | None,
) -> Message:
    """Return a message with these application properties, and *texts* by the names of its properties."""
    message = Message(Sections(), Arrival(Origin("", "")))
    if body is not None:
        message.body = body
    for name, text in texts.items():
        if text is not None:
            setattr(message, name, string(text) if name in _IDS else text)
    if partition_key is not None:
        message.set_annotations({"x-opt-partition-key": string(partition_key)})
    message.time_to_live = time_to_live
    message.set_properties(properties)
    return message


def outgoing(message: Message) -> Outgoing:
    """Return *message* as it is sent."""
    return Outgoing(message.encode(), *message.envelope())
