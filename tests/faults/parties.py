"""The applications that send to the source and read from the target, with Microsoft's SDKs."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.aio import EventHubConsumerClient
from azure.servicebus import ServiceBusClient as SyncServiceBusClient
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from tests.faults.conservation import Copy
from tests.faults.routes import CONSUMER_GROUP, Kind, Route

_READ_SECONDS = 20
# The SDK accepts this in one batch of 1 MB, and the broker in one event.
_BATCH_BYTES = 900_000


@dataclass(frozen=True)
class Draft:
    """A message to be sent: its key, its unique name, its size, and its options."""

    key: str
    name: str
    size: int = 100
    is_withheld: bool = False

    @property
    def body(self) -> str:
        """Return the name, padded to the size."""
        return f"{self.name} ".ljust(self.size, ".")

    @property
    def copy(self) -> Copy:
        """Return its copy for the oracle."""
        return Copy(self.key, self.name)


def drafts(route: Route, prefix: str = "", *, keys: int = 3, each: int = 12, size: int = 100) -> list[Draft]:
    """
    Return *each* messages of every key in turn, and in the middle one to be withheld and one too large for the target.

    *prefix* makes the names of one call unique.
    """
    messages = [Draft(f"k{key}", f"{prefix}k{key}-{number}", size) for number in range(each) for key in range(keys)]
    middle = len(messages) // 2
    odd = [Draft("k0", f"{prefix}k0-withheld", is_withheld=True)]
    if route.too_large is not None:
        odd.append(Draft("k1", f"{prefix}k1-too-large", route.too_large))
    return [*messages[:middle], *odd, *messages[middle:]]


def name_of(body: bytes) -> str:
    """Return the name of the message with this body."""
    return body.split(b" ", 1)[0].decode()


def send(connection_string: str, route: Route, messages: Sequence[Draft]) -> None:
    """Send *messages* to the source of *route* in order; it is accepted once this returns."""
    if route.source is Kind.HUB:
        _publish(connection_string, route.source_path, messages)
        return
    with SyncServiceBusClient.from_connection_string(connection_string) as client:
        is_queue = route.source is Kind.QUEUE or bool(route.from_queue)
        sender = client.get_queue_sender(route.source_path) if is_queue else client.get_topic_sender("orders")
        with sender:
            for batch in _batches(messages):
                sender.send_messages([_message(draft) for draft in batch])


def _batches(messages: Iterable[Draft]) -> list[list[Draft]]:
    batches: list[list[Draft]] = [[]]
    size = 0
    for draft in messages:
        size += draft.size + 200
        if size > _BATCH_BYTES:
            batches.append([])
            size = draft.size + 200
        batches[-1].append(draft)
    return batches


def _message(draft: Draft) -> ServiceBusMessage:
    return ServiceBusMessage(
        draft.body,
        message_id=draft.name,
        session_id=draft.key,
        application_properties={"skip": 1} if draft.is_withheld else None,
    )


def _publish(connection_string: str, hub: str, messages: Sequence[Draft]) -> None:
    with EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub) as producer:
        for key in sorted({draft.key for draft in messages}):
            for batch in _batches(draft for draft in messages if draft.key == key):
                producer.send_batch([_event(draft) for draft in batch], partition_key=key)


def _event(draft: Draft) -> EventData:
    event = EventData(draft.body)
    event.message_id = draft.name
    if draft.is_withheld:
        event.properties = {"skip": 1}
    return event


async def read_queue(client: ServiceBusClient, queue: str, count: int, session_id: str | None = None) -> list[str]:
    """Receive *count* messages of a queue, or of one of its sessions, and return their names in order."""
    names: list[str] = []
    if count == 0:
        return names
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    topic, _, subscription = queue.partition("/Subscriptions/")
    if subscription:
        opened = client.get_subscription_receiver(topic, subscription, session_id=session_id, receive_mode=mode)
    else:
        opened = client.get_queue_receiver(queue, session_id=session_id, receive_mode=mode)
    async with opened as receiver:
        while len(names) < count:
            more = await receiver.receive_messages(count - len(names), max_wait_time=_READ_SECONDS)
            assert more, f"{queue} {session_id}: {len(names)} of {count} messages could be received"
            names += [name_of(str(message).encode()) for message in more]
    return names


async def read_sessions(client: ServiceBusClient, queue: str, counts: Mapping[str, int]) -> list[Copy]:
    """Receive the number of messages in *counts* from each session of a queue, concurrently."""
    read = await asyncio.gather(*(read_queue(client, queue, count, key) for key, count in counts.items()))
    return [Copy(key, name) for key, names in zip(counts, read, strict=True) for name in names]


async def read_hub(connection_string: str, hub: str) -> list[Copy]:
    """Return all events of a hub, partition by partition."""
    client = EventHubConsumerClient.from_connection_string(connection_string, CONSUMER_GROUP, eventhub_name=hub)
    async with client:
        partitions = await client.get_partition_ids()
        read = await asyncio.gather(*(_read_partition(client, partition) for partition in partitions))
    return [copy for copies in read for copy in copies]


async def _read_partition(client: EventHubConsumerClient, partition: str) -> list[Copy]:
    properties = await client.get_partition_properties(partition)
    found: list[Copy] = []
    if properties["is_empty"]:
        return found
    is_read = asyncio.Event()

    async def take(_: object, events: Sequence[EventData]) -> None:
        found.extend(
            Copy((event.partition_key or b"").decode(), name_of(event.body_as_str().encode())) for event in events
        )
        if events and events[-1].sequence_number == properties["last_enqueued_sequence_number"]:
            is_read.set()

    reading = asyncio.create_task(client.receive_batch(take, partition_id=partition, starting_position="-1"))
    try:
        async with asyncio.timeout(_READ_SECONDS):
            await is_read.wait()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return found
