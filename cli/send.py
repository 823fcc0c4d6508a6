"""`busway send`: messages by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from cli.places import Folder, Place, place_named


def send(
    place: Annotated[str, typer.Argument(metavar="CONNECTION/ENTITY", help="A queue, topic or event hub.")],
    bodies: Annotated[list[str], typer.Argument(metavar="BODY...", help="The text of each message.")],
    *,
    identity: Annotated[str | None, typer.Option("--id", help="Id of the message; of several ID-1, ID-2, …")] = None,
    session: Annotated[str | None, typer.Option(help="Session id of the messages.")] = None,
    key: Annotated[str | None, typer.Option(help="Partition key of the messages.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="An application property; digits alone are a number."),
    ] = None,
    config: Folder = Path("config"),
) -> None:
    """
    Send a message for each BODY, all in one batch, with Microsoft's SDK.

    The connection is one of connections.yaml and its app setting, a connection string, is taken from the environment:
    `. build/start/settings` sets both as `busway start` has them. Example:

    busway send west/events hello --id a --property colour=red
    """
    named = dict(_property(text) for text in properties or [])
    ids = [identity] if len(bodies) == 1 or identity is None else [f"{identity}-{n + 1}" for n in range(len(bodies))]
    messages = [
        {"body": body, "message_id": ids[index % len(ids)], "properties": named} for index, body in enumerate(bodies)
    ]
    with place_named(place, config) as entity:
        if entity.is_hub:
            _send_events(entity, messages, key)
        else:
            _send_messages(entity, messages, session, key)
    typer.echo(f"{len(bodies)} sent to {place}")


def _property(text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is no property, expected NAME=VALUE", param_hint="--property")
    return name, int(value) if value.isdecimal() else value


def _send_messages(place: Place, messages: Sequence[Mapping[str, Any]], session: str | None, key: str | None) -> None:
    with (
        ServiceBusClient.from_connection_string(place.connection_string) as client,
        # The SDK's two kinds of sender differ in the name of this argument only.
        client.get_queue_sender(place.path) as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(
                    each["body"],
                    message_id=each["message_id"],
                    session_id=session,
                    partition_key=key,
                    application_properties=each["properties"],
                )
                for each in messages
            ]
        )


def _send_events(place: Place, messages: Sequence[Mapping[str, Any]], key: str | None) -> None:
    producer = EventHubProducerClient.from_connection_string(place.connection_string, eventhub_name=place.path)
    events: list[EventData | AmqpAnnotatedMessage] = []
    for each in messages:
        event = EventData(each["body"])
        event.message_id = each["message_id"]
        event.properties = dict(each["properties"])
        events.append(event)
    with producer:
        producer.send_batch(events, partition_key=key)
