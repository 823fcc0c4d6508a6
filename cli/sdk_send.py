"""What `busway send` sends, with Microsoft's SDK."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.places import Place
from cli.sdk_clients import producer_client, service_bus_client
from cli.time_limit import within
from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from azure.eventhub import EventData
    from azure.servicebus import ServiceBusMessage

_ANSWER_SECONDS = 30.0


def send(
    place: Place,
    messages: Sequence[tuple[str, str | None]],
    properties: Mapping[Any, Any],
    session: str | None,
    key: str | None,
) -> None:
    """
    Send *messages*, each a body and an id, to *place* in one batch.

    Raises: ConfigError for what the SDK refuses, such as a message that is too large; TargetUnavailable without an
            answer; and the SDK's own errors.
    """

    def work() -> None:
        if place.is_hub:
            with producer_client(place) as producer:
                producer.send_batch([_event(*message, properties) for message in messages], partition_key=key)
            return
        with (
            service_bus_client(place) as client,
            # The SDK's two kinds of sender differ only in the name of this argument. Without keep-alive: its thread
            # checks once a second whether the sender is closed, and close() waits for it.
            client.get_queue_sender(place.path, keep_alive=0) as sender,
        ):
            sender.send_messages([_message(*message, properties, session, key) for message in messages])

    try:
        late = f"{place}: no answer in {_ANSWER_SECONDS:.0f} s; whether it has taken the messages is not known"
        within(_ANSWER_SECONDS, late, work)
    except (ValueError, TypeError) as error:
        # The SDK's text can quote a body.
        problem = f"the SDK refuses a message ({type(error).__name__})"
        hint = "expected ids of at most 128 characters, and all bodies together within the limit of the entity"
        raise ConfigError([Problem(str(place), problem, hint)]) from error


def _message(
    body: str, identity: str | None, properties: Mapping[Any, Any], session: str | None, key: str | None
) -> "ServiceBusMessage":
    from azure.servicebus import ServiceBusMessage

    return ServiceBusMessage(
        body, message_id=identity, session_id=session, partition_key=key, application_properties={**properties}
    )


def _event(body: str, identity: str | None, properties: Mapping[Any, Any]) -> "EventData":
    from azure.eventhub import EventData

    event = EventData(body)
    if identity is not None:
        event.message_id = identity
    event.properties = {**properties}
    return event
