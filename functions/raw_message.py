"""
The triggers: the raw bytes of a message of Service Bus or Event Hubs, and the messages of a storage queue.

The worker's extension point for SDK types makes the host send ModelBindingData, whose content is the whole encoded
message (for Service Bus after the 16 bytes of its lock token). One converter may be registered per binding and process,
so this module cannot live beside the packages azurefunctions-extensions-bindings-servicebus and -eventhub.

The host delivers the messages of a storage queue one by one, with a body that is declared binary: of a text that is a
JSON object, such as an envelope, it would put the fields into the trigger metadata, where its `id` replaced that of the
message.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
from azurefunctions.extensions.base import Datum, InConverter, SdkType

from shared.message.text_messages import text_message

SERVICE_BUS_SOURCE = "AzureServiceBusReceivedMessage"
EVENT_HUBS_SOURCE = "AzureEventHubsEventData"
LOCK_TOKEN_BYTES = 16


class RawMessage(SdkType):  # type: ignore[misc] # the package is not typed
    """An encoded AMQP message as the host handed it over; of a hub its partition, of Service Bus its lock token."""

    def __init__(
        self,
        content: bytes,
        partition: str | None = None,
        lock_token: bytes | None = None,
        session_locked_until: int | None = None,
    ) -> None:
        """Hold the encoded message, and the end of the lock of its session in milliseconds since 1970 UTC."""
        self.content = content
        self.partition = partition
        self.lock_token = lock_token
        self.session_locked_until = session_locked_until

    def get_sdk_type(self) -> "RawMessage":
        """Return itself; there is no richer type behind it."""
        return self


class _Converter(InConverter, binding=None):  # type: ignore[misc,call-arg] # the package is not typed
    @classmethod
    def check_input_type_annotation(cls, pytype: type) -> bool:
        return bool(cls.check_supported_type(pytype))

    @classmethod
    def decode(
        cls,
        data: Datum,
        *,
        trigger_metadata: Mapping[str, Datum],
        pytype: object = None,  # noqa: ARG003 - the worker's signature
    ) -> list[RawMessage] | RawMessage | None:
        if data is None or data.type is None:
            return None
        partition, locked_until = _partition(trigger_metadata), _session_locked_until(trigger_metadata)
        if data.type == "model_binding_data":
            return _raw_message(data.value, partition, locked_until)
        if data.type == "collection_model_binding_data":
            return [_raw_message(each, partition, locked_until) for each in data.value.model_binding_data]
        msg = f"trigger data: got {data.type!r}, expected ModelBindingData: this host has no SDK types for triggers"
        raise ValueError(msg)


class ServiceBusConverter(_Converter, binding="serviceBusTrigger", trigger="serviceBusTrigger"):  # type: ignore[call-arg] # the package is not typed
    """Registers `RawMessage` for Service Bus triggers."""


class EventHubsConverter(_Converter, binding="eventHubTrigger", trigger="eventHubTrigger"):  # type: ignore[call-arg] # the package is not typed
    """Registers `RawMessage` for Event Hubs triggers."""


def _raw_message(data: Any, partition: str | None, session_locked_until: int | None) -> RawMessage:
    content: bytes = data.content
    if data.source == SERVICE_BUS_SOURCE:
        token = content[:LOCK_TOKEN_BYTES]
        return RawMessage(content[LOCK_TOKEN_BYTES:], None, token, session_locked_until)
    if data.source == EVENT_HUBS_SOURCE:
        return RawMessage(content, partition)
    raise ValueError(f"trigger data: from {data.source!r}, expected {SERVICE_BUS_SOURCE!r} or {EVENT_HUBS_SOURCE!r}")


def _partition(trigger_metadata: Mapping[str, Datum] | None) -> str | None:
    """Return the partition of the batch, which its events do not name."""
    context = (trigger_metadata or {}).get("PartitionContext")
    if context is None:
        return None
    partition = json.loads(context.value).get("PartitionId")
    return None if partition is None else str(partition)


def _session_locked_until(trigger_metadata: Mapping[str, Datum] | None) -> int | None:
    """Return the end of the lock of the session that the messages are from; the messages do not have it."""
    actions = (trigger_metadata or {}).get("SessionActions")
    text = None if actions is None else json.loads(actions.value).get("SessionLockedUntil")
    return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)


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
