"""
The trigger of a storage queue, whose messages the host delivers one by one.

The body is declared binary: of a text that is a JSON object, such as an envelope, the host would put the fields into
the trigger metadata, where its `id` replaced that of the message.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import azure.functions as func

from shared.message.text_messages import text_message

# The host reports a message that never expires with the last time that it knows.
_FOR_EVER = datetime(9999, 1, 1, tzinfo=UTC)


def queue_content(message: func.QueueMessage) -> bytes:
    """Return a message of a storage queue as an encoded AMQP message; ValueError if the host did not describe it."""
    identity, enqueued, deliveries = message.id, message.insertion_time, message.dequeue_count
    if not identity or enqueued is None:
        raise ValueError("trigger data: got a queue message without id or insertion time, expected both")
    expires = None if message.expiration_time is None else _in_utc(message.expiration_time)
    end = None if expires is None or expires >= _FOR_EVER else _milliseconds(expires)
    return text_message(identity, message.get_body(), _milliseconds(_in_utc(enqueued)), end, deliveries or 1)


def queue_trigger(app: func.FunctionApp, queue: str, setting: str) -> Callable[[object], object]:
    """Return the decorator that declares the trigger of *queue* in the account of the app setting *setting*."""
    decorator: Callable[[object], object] = app.queue_trigger(
        arg_name="messages", queue_name=queue, connection=setting, data_type=func.DataType.BINARY
    )
    return decorator


def _in_utc(time: datetime) -> datetime:
    # The host sends its UTC times without a zone.
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
