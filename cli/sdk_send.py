"""What `busway send` sends, with Microsoft's SDK."""

from collections.abc import Sequence
from typing import Any, TypedDict

from azure.eventhub import EventData
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.servicebus import ServiceBusMessage

from cli.places import Place
from cli.sdk_clients import producer_client, service_bus_client


class Content(TypedDict):
    """One message to send: its text, its id and its application properties."""

    body: str
    message_id: str | None
    properties: dict[Any, Any]


def send(place: Place, contents: Sequence[Content], session: str | None, key: str | None) -> None:
    """Send *contents* to *place* in one batch."""
    if place.is_hub:
        _send_events(place, contents, key)
    else:
        _send_messages(place, contents, session, key)


def _send_messages(place: Place, contents: Sequence[Content], session: str | None, key: str | None) -> None:
    with (
        service_bus_client(place) as client,
        # The SDK's two kinds of sender differ only in the name of this argument. Without keep-alive: its thread checks
        # once a second whether the sender is closed, and close() waits for it.
        client.get_queue_sender(place.path, keep_alive=0) as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(
                    content["body"],
                    message_id=content["message_id"],
                    session_id=session,
                    partition_key=key,
                    application_properties=content["properties"],
                )
                for content in contents
            ]
        )


def _send_events(place: Place, contents: Sequence[Content], key: str | None) -> None:
    events: list[EventData | AmqpAnnotatedMessage] = []
    for content in contents:
        event = EventData(content["body"])
        if content["message_id"] is not None:
            event.message_id = content["message_id"]
        event.properties = dict(content["properties"])
        events.append(event)
    with producer_client(place) as producer:
        producer.send_batch(events, partition_key=key)
