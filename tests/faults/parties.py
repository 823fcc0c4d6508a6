"""Who sends to the source and who reads from the target: applications with Microsoft's SDKs."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.aio import EventHubConsumerClient
from azure.servicebus import ServiceBusClient as SyncServiceBusClient
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from tests.faults.conservation import Copy
from tests.faults.routes import CONSUMER_GROUP, Kind, Route

_READ_SECONDS = 20
# What the SDK takes into one batch of 1 MB, and the broker into one event.
_BATCH_BYTES = 900_000


@dataclass(frozen=True)
class Letter:
    """A message to be sent: its key, its name among all, how large it is, and what is special about it."""

    key: str
    name: str
    size: int = 100
    is_withheld: bool = False
    time_to_live: timedelta | None = None

    @property
    def body(self) -> str:
        """Return the name, and filling up to the size."""
        return f"{self.name} ".ljust(self.size, ".")

    @property
    def copy(self) -> Copy:
        """Return it as the oracle knows it."""
        return Copy(self.key, self.name)


def letters(
    route: Route, prefix: str = "", *, keys: int = 3, each: int = 12, size: int = 100, life: timedelta | None = None
) -> list[Letter]:
    """
    Return *each* letters of every key in turn, and among them one to be withheld and one too large for the target.

    *prefix* tells the names of one mailing from those of another.
    """
    mail = [
        Letter(f"k{key}", f"{prefix}k{key}-{number}", size, time_to_live=life)
        for number in range(each)
        for key in range(keys)
    ]
    middle = len(mail) // 2
    odd = [Letter("k0", f"{prefix}k0-withheld", is_withheld=True)]
    if route.too_large is not None:
        odd.append(Letter("k1", f"{prefix}k1-too-large", route.too_large))
    return [*mail[:middle], *odd, *mail[middle:]]


def name_of(body: bytes) -> str:
    """Return the name of the letter with this body."""
    return body.split(b" ", 1)[0].decode()


def send(connection_string: str, route: Route, mail: Sequence[Letter]) -> None:
    """Send *mail* to the source of *route* in order; it is accepted once this returns."""
    if route.source is Kind.HUB:
        _publish(connection_string, route.source_path, mail)
        return
    with SyncServiceBusClient.from_connection_string(connection_string) as client:
        is_queue = route.source is Kind.QUEUE
        sender = client.get_queue_sender(route.source_path) if is_queue else client.get_topic_sender("orders")
        with sender:
            for batch in _batches(mail):
                sender.send_messages([_message(letter) for letter in batch])


def _batches(mail: Iterable[Letter]) -> list[list[Letter]]:
    batches: list[list[Letter]] = [[]]
    size = 0
    for letter in mail:
        size += letter.size + 200
        if size > _BATCH_BYTES:
            batches.append([])
            size = letter.size + 200
        batches[-1].append(letter)
    return batches


def _message(letter: Letter) -> ServiceBusMessage:
    return ServiceBusMessage(
        letter.body,
        message_id=letter.name,
        session_id=letter.key,
        time_to_live=letter.time_to_live,
        application_properties={"skip": 1} if letter.is_withheld else None,
    )


def _publish(connection_string: str, hub: str, mail: Sequence[Letter]) -> None:
    with EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub) as producer:
        for key in sorted({letter.key for letter in mail}):
            for batch in _batches(letter for letter in mail if letter.key == key):
                producer.send_batch([_event(letter) for letter in batch], partition_key=key)


def _event(letter: Letter) -> EventData:
    event = EventData(letter.body)
    event.message_id = letter.name
    if letter.is_withheld:
        event.properties = {"skip": 1}
    return event


async def read_queue(client: ServiceBusClient, queue: str, count: int, session_id: str | None = None) -> list[str]:
    """Take *count* messages out of a queue, or of one of its sessions, and return their names in order."""
    names: list[str] = []
    if count == 0:
        return names
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver(queue, session_id=session_id, receive_mode=mode) as receiver:
        while len(names) < count:
            more = await receiver.receive_messages(count - len(names), max_wait_time=_READ_SECONDS)
            assert more, f"{queue} {session_id}: {len(names)} of {count} messages could be received"
            names += [name_of(str(message).encode()) for message in more]
    return names


async def read_sessions(client: ServiceBusClient, queue: str, counts: Mapping[str, int]) -> list[Copy]:
    """Take so many messages as *counts* says out of each session of a queue, all sessions at a time."""
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
