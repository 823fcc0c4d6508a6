"""The lines that `busway receive` prints, read with Microsoft's SDK."""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from cli.places import Place
from cli.sdk_clients import consumer_client, service_bus_client
from shared.ends.kind import Holds
from shared.errors import ConfigError, Problem
from shared.printable import printable

_DEAD_LETTERS = "/$deadletterqueue"
_SUBSCRIPTION_SEGMENT = "/subscriptions/"
# After the first message: stop when no other has arrived for this long.
_QUIET_SECONDS = 1.0
_BATCH = 100
_POLL_SECONDS = 0.1
_LONGEST_READ_SECONDS = 30.0
# In the text of Azure's answer and of the local broker's; the condition is one of many meanings.
_NEEDS_SESSION = "requires sessions"


def lines(
    place: Place, session: str | None, wait: float, dead_letter: str | None, *, is_peek: bool, with_position: bool
) -> Iterator[str]:
    """
    Yield one line for each message of *place*, which is completed, dead-lettered or left as the options say.

    Raises: ConfigError if the entity has sessions and *session* is None.
    """
    if place.connection.end.holds is Holds.RECORDS:
        from cli.kafka_receive import records

        yield from records(place, wait)
        return
    if place.is_hub:
        yield from _events(place, wait, with_position=with_position)
        return
    try:
        yield from _messages(place, session, wait, dead_letter, is_peek=is_peek)
    except ServiceBusError as error:
        if session is None and _NEEDS_SESSION in str(error):
            raise ConfigError([Problem(str(place), "has sessions", "name one: --session ID")]) from error
        raise


def _messages(
    place: Place, session: str | None, wait: float, dead_letter: str | None, *, is_peek: bool
) -> Iterator[str]:
    with (
        service_bus_client(place) as client,
        _receiver(client, place.path, session) as receiver,
    ):
        if is_peek:
            # Fewer than asked for need not be all: of a partitioned entity one peek has those of one partition.
            after = 0
            while messages := receiver.peek_messages(_BATCH, sequence_number=after + 1):
                yield from map(_message_line, messages)
                after = max(message.sequence_number or after for message in messages)
            return
        while messages := receiver.receive_messages(_BATCH, max_wait_time=wait):
            for message in messages:
                yield _message_line(message)
                if dead_letter is None:
                    receiver.complete_message(message)
                else:
                    receiver.dead_letter_message(message, reason=dead_letter)
            wait = _QUIET_SECONDS


def _receiver(client: ServiceBusClient, path: str, session: str | None) -> ServiceBusReceiver:
    options: dict[str, Any] = {} if session is None else {"session_id": session}
    if path.lower().endswith(_DEAD_LETTERS):
        options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
        path = path[: -len(_DEAD_LETTERS)]
    middle = path.lower().find(_SUBSCRIPTION_SEGMENT)
    if middle < 0:
        return client.get_queue_receiver(path, **options)
    return client.get_subscription_receiver(path[:middle], path[middle + len(_SUBSCRIPTION_SEGMENT) :], **options)


def _message_line(message: ServiceBusReceivedMessage) -> str:
    system: dict[str, object] = {
        "message_id": message.message_id,
        "session_id": message.session_id,
        # In a session the partition key is the session id.
        "partition_key": message.partition_key if message.session_id is None else None,
        "time_to_live": message.time_to_live,
    }
    return _line(str(message), system, message.application_properties or {})


def _events(place: Place, wait: float, *, with_position: bool) -> Iterator[str]:
    """Yield the events of all partitions, in order within each partition."""
    lines: dict[str, list[str]] = {}
    complete = threading.Event()
    with consumer_client(place, "$Default") as consumer:
        last = _last_numbers(consumer, wait)
        if not last:
            return

        def collect(context: Any, event: EventData | None) -> None:  # noqa: ANN401 - the SDK has no public name for its type
            partition = context.partition_id
            if event is not None and event.sequence_number is not None:
                lines.setdefault(partition, []).append(_event_line(partition, event, with_position=with_position))
                if event.sequence_number >= last.get(partition, -1):
                    last.pop(partition, None)
                if not last:
                    complete.set()

        reading = threading.Thread(target=consumer.receive, args=(collect,), kwargs={"starting_position": "-1"})
        reading.start()
        complete.wait(_LONGEST_READ_SECONDS)
    reading.join()
    for _, each in sorted(lines.items()):
        yield from each


def _last_numbers(consumer: EventHubConsumerClient, wait: float) -> dict[str, int]:
    """Return the last sequence number of each partition with events, once no others arrive; {} after *wait* seconds."""
    deadline = time.monotonic() + wait
    seen: dict[str, int] = {}
    changed = time.monotonic()
    while (not seen and time.monotonic() < deadline) or (seen and time.monotonic() < changed + _QUIET_SECONDS):
        partitions = [consumer.get_partition_properties(each) for each in consumer.get_partition_ids()]
        found = {each["id"]: each["last_enqueued_sequence_number"] for each in partitions if not each["is_empty"]}
        if found != seen:
            seen, changed = found, time.monotonic()
        time.sleep(_POLL_SECONDS)
    return seen


def _event_line(partition: str, event: EventData, *, with_position: bool) -> str:
    key = event.partition_key
    system: dict[str, object] = {
        "partition": partition,
        "message_id": event.message_id,
        "partition_key": key.decode() if isinstance(key, bytes) else key,
    }
    if with_position:
        enqueued = event.enqueued_time
        system |= {
            "sequence_number": event.sequence_number,
            "offset": event.offset,
            "enqueued_time": None if enqueued is None else enqueued.isoformat(),
        }
    return _line(event.body_as_str(), system, event.properties or {})


def _line(body: str, system: Mapping[str, object], properties: Mapping[Any, object]) -> str:
    named = {_text(name): value for name, value in properties.items()}
    present = {name: value for name, value in system.items() if value is not None}
    pairs = [*present.items(), *sorted(named.items())]
    return printable("  ".join([body, " ".join(f"{name}={_text(value)}" for name, value in pairs)]).rstrip())


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
