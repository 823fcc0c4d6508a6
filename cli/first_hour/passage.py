"""Marked messages on their way through one task from a queue or subscription to a queue."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Self

from azure.servicebus import ServiceBusMessage

from cli.smoke.watches import EntityWatch, Sight
from cli.topology.sites import Access, open_client
from shared.amqp import sections
from shared.amqp.codec import decode_all
from shared.ends.service_bus.clients import synchronous_client
from shared.resend.places import Place, entity_named
from shared.tasks.files import Configuration
from shared.tasks.models import Source, TaskFile

MARK = "busway-first-hour"
LIFE = timedelta(hours=4)
SESSIONS = 10
_BATCH = 100
_DELIVERY_COUNT = 4


class Passage:
    """The way of one task, with what was sent on it."""

    def __init__(self, configuration: Configuration, task: TaskFile, access: Access) -> None:
        """Use the first route of *task*, from a queue or subscription to a queue of Service Bus."""
        self.task = task
        self._access = access
        self._configuration = configuration
        self.run = uuid.uuid4().hex[:8]
        self.sent = 0
        source = task.source
        self.source = entity_named(f"{source.connection}/{source.entity}", configuration)
        target = next(iter(task.branches())).target
        self.target = entity_named(f"{target.connection}/{target.queue}", configuration)
        self._target = Source(connection=target.connection, queue=target.queue)

    @classmethod
    def of(cls, configuration: Configuration, task: TaskFile, access: Access) -> Self | str:
        """Return the way of *task*, or why it cannot be used."""
        target = next(iter(task.branches())).target
        ends = (configuration.connections[each].end for each in (task.source.connection, target.connection))
        if task.source.hub is not None or target.queue is None or not all(end.has_dead_letters for end in ends):
            return f"{task.task}: expected a way from a queue or subscription to a queue of Service Bus"
        if task.source.dead_letter:
            return f"{task.task}: nobody can send to its source, a dead-letter queue"
        return cls(configuration, task, access)

    def send(self, count: int) -> None:
        """Send *count* marked messages to the source, in SESSIONS sessions if it has sessions; raises AzureError."""
        namespace = self.source.connection(self._access.settings)
        entity = self.task.source.queue or self.task.source.topic or ""
        with (
            synchronous_client(namespace) as client,
            # Queues and topics have the same senders, except for the name of this argument.
            client.get_queue_sender(entity, keep_alive=0) as sender,
        ):
            for first in range(0, count, _BATCH):
                numbers = range(self.sent, self.sent + min(_BATCH, count - first))
                sender.send_messages([self._message(number) for number in numbers])
                self.sent += len(numbers)

    def _message(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(
            "{}",
            message_id=f"{MARK}-{self.run}-{number}",
            session_id=f"{MARK}-{number % SESSIONS}" if self.task.source.sessions else None,
            application_properties={MARK: self.run},
            time_to_live=LIFE,
        )

    async def at_source(self) -> list[Sight]:
        """Return the marked messages that wait at the source."""
        return await self._seen(self.source)

    async def given_up(self) -> list[Sight]:
        """Return the marked messages among the dead letters of the source."""
        return await self._seen(self.source.dead_letters())

    async def arrived(self) -> Counter[str]:
        """Return how often each marked message is at the target."""
        return Counter(str(sight.letter.message_id) for sight in await self._seen(self.target))

    async def all_arrived(self, seconds: float) -> Counter[str]:
        """Return what has arrived once everything has, or after *seconds*."""
        limit = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.arrived()
            if len(found) >= self.sent or asyncio.get_running_loop().time() >= limit:
                return found
            await asyncio.sleep(min(1.0, seconds / 10))

    def set_target(self, status: str) -> None:
        """Give the target queue a status: Active, SendDisabled; raises AzureError."""
        connection = self._configuration.connections[self._target.connection]
        with open_client(self._target.connection, connection, self._access) as client:
            queue = client.get_queue(str(self._target.queue))
            queue.status = status
            client.update_queue(queue)

    async def _seen(self, place: Place) -> list[Sight]:
        watch = EntityWatch(place, self._access.settings)
        try:
            found = await watch.look()
        finally:
            await watch.close()
        return [sight for sight in found if self._is_ours(sight)]

    def _is_ours(self, sight: Sight) -> bool:
        mark = None if sight.letter.message is None else sight.letter.message.application_property(MARK)
        return mark is not None and mark.payload == self.run


def most_deliveries(sights: Iterable[Sight]) -> int:
    """Return the largest number of earlier deliveries of *sights*, 0 without any."""
    return max(map(_deliveries, sights), default=0)


def _deliveries(sight: Sight) -> int:
    header = sections.split(sight.letter.content).header
    fields: Sequence[bytes] = list(sections.fields_of(header)) if header else []
    found = decode_all(fields[_DELIVERY_COUNT]).payload if len(fields) > _DELIVERY_COUNT else None
    return found if isinstance(found, int) else 0
