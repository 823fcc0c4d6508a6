"""What `busway send` sends, with Microsoft's SDK."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.places import Place
from cli.sdk_clients import producer_client, service_bus_client
from shared.errors import ConfigError, Problem, TargetUnavailable

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
        _within(_ANSWER_SECONDS, str(place), work)
    except (ValueError, TypeError) as error:
        # The SDK's text can quote a body.
        problem = f"the SDK refuses a message ({type(error).__name__})"
        hint = "expected ids of at most 128 characters, and all bodies together within the limit of the entity"
        raise ConfigError([Problem(str(place), problem, hint)]) from error


def _within(seconds: float, where: str, work: Callable[[], None]) -> None:
    """Do *work*, and raise its error; the SDK waits forever for a service that accepts a connection and is silent."""
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except queue.Empty:
        text = f"{where}: no answer in {seconds:.0f} s; whether it has taken the messages is not known"
        raise TargetUnavailable(text) from None
    if error is not None:
        raise error


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
