"""
What waits in entities: the number of messages and the age of the oldest, without receiving or locking any.

The administration API counts any number of messages in one request, but needs the right to manage. Without it messages
are peeked, which needs the right to listen, and counted up to MOST_PEEKED. A peek goes partition by partition, so the
first messages of every partition are peeked for the oldest (docs/decisions/0089).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
from azure.servicebus.management import QueueRuntimeProperties, SubscriptionRuntimeProperties

from shared.ends.look_error import NO_PERMISSION, look_error
from shared.ends.service_bus.management import ManagementConnection
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.peeked import PeekedMessage
from shared.message.waiting import DEAD_LETTERS, TopicDeadLetters, Waiting

MOST_PEEKED = 1000
# A peek returns whole messages.
_MOST_BYTES = 4 * 1024 * 1024
_COUNTED_AT_ONCE = 16
# A peek opens a connection of its own: some ten round trips in which this side waits.
_CONNECTIONS_AT_ONCE = 48
_PEEKED_AT_ONCE = 250
_FIRST_PEEKED = 10
# The upper bits of a sequence number are the partition of a partitioned entity.
_PARTITION_BITS = 48
_HIGHEST_NUMBER = (1 << 63) - 1
_SECONDS = 6.0
# Of these; a partitioned entity gives one message a request. The rest is for the first message of each partition.
_COUNTING_SECONDS = 2.0
# A reader that stays open asks again after that time whether the administration API answers.
_SILENT_SECONDS = 60.0
_SHARED_SECONDS = 1.0
_DENIED = (401, 403)
_SUBSCRIPTIONS = "/Subscriptions/"
_ONLY_COUNTED = "dead letters of a topic are counted only by the administration API"

type _Properties = QueueRuntimeProperties | SubscriptionRuntimeProperties


class ServiceBusSite:
    """
    Looks into the entities of one namespace, and keeps its connections open for the next look.

    Raises: every method raises TargetRefused if it may not look or the entity is missing, TargetUnavailable if the
    namespace does not answer.
    """

    def __init__(
        self,
        site: str,
        open_client: Callable[[], ServiceBusClient],
        open_administration: Callable[[], ServiceBusAdministrationClient] | None = None,
        most_peeked: int | None = None,
    ) -> None:
        """Open the clients when they are needed; without *open_administration*, only peek."""
        self._most_peeked = MOST_PEEKED if most_peeked is None else most_peeked
        self._site = site
        self._open_client = open_client
        self._open_administration = open_administration
        self._client: ServiceBusClient | None = None
        self._administration: ServiceBusAdministrationClient | None = None
        self._connections: dict[str, ManagementConnection] = {}
        self._turns = asyncio.Semaphore(_COUNTED_AT_ONCE)
        self._peeks = asyncio.Semaphore(_CONNECTIONS_AT_ONCE)
        # A management connection takes one request at a time.
        self._locks: dict[str, asyncio.Lock] = {}
        self._asked: dict[str, tuple[float, asyncio.Task[_Properties]]] = {}
        self.without_counts: str | None = None
        """Why the administration API is not used, once that is known."""
        self._silent_until = 0.0

    async def waiting(self, entity: str) -> Waiting:
        """Return what waits in a queue, a subscription, or a dead-letter queue."""
        async with self._locks.setdefault(entity, asyncio.Lock()):
            async with self._turns:
                counted = await self._counted(entity)
            if counted == 0:
                return Waiting(0)
            try:
                async with self._peeks:
                    peeked = await self._peeked(entity, self._most_peeked if counted is None else _FIRST_PEEKED)
            except TargetUnavailable:
                if counted is None:
                    raise
                return Waiting(counted)  # only its age is unknown
            return peeked if counted is None else Waiting(counted, False, peeked.oldest)

    async def topic_dead_letters(self, topic: str) -> TopicDeadLetters:
        """Return the dead letters of each subscription of a topic."""
        async with self._turns:
            client = self._administered()
            if client is None:
                reason = self.without_counts or "an emulator does not have it at this address"
                raise TargetRefused(f"{_ONLY_COUNTED}: {reason}")
            try:
                async with asyncio.timeout(_SECONDS):
                    found = client.list_subscriptions_runtime_properties(topic)
                    return TopicDeadLetters(
                        {each.name: max(0, each.dead_letter_message_count or 0) async for each in found}
                    )
            except ResourceNotFoundError as error:
                raise TargetRefused(f"{self._site}/{topic}: it does not exist") from error
            except (AzureError, OSError, TimeoutError) as error:
                self._note_missing_counts(error)
                raise TargetRefused(f"{_ONLY_COUNTED}: {self.without_counts}") from error

    async def close(self) -> None:
        """Close everything."""
        # The SDK takes about a second for each.
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))
        if self._client is not None:
            await self._client.close()
        if self._administration is not None:
            await self._administration.close()

    def _administered(self) -> ServiceBusAdministrationClient | None:
        if self._open_administration is None:
            return None
        if self.without_counts is not None:
            if time.monotonic() < self._silent_until:
                return None
            self.without_counts = None
        if self._administration is None:
            self._administration = self._open_administration()
        return self._administration

    async def _counted(self, entity: str) -> int | None:
        """Return the number by the administration API, None where it cannot be used."""
        client = self._administered()
        if client is None:
            return None
        path, is_dead = entity.removesuffix(DEAD_LETTERS), entity.endswith(DEAD_LETTERS)
        if "/$" in path:
            return None  # a transfer dead-letter queue
        try:
            found = await self._properties(client, path)
        except ResourceNotFoundError as error:
            raise TargetRefused(f"{self._site}/{path}: it does not exist") from error
        except (AzureError, OSError, TimeoutError) as error:
            self._note_missing_counts(error)
            return None
        count = (found.dead_letter_message_count if is_dead else found.active_message_count) or 0
        # Counts lag, and have been negative (Azure/azure-service-bus issue 653): such a one says nothing.
        return None if count < 0 else count

    async def _properties(self, client: ServiceBusAdministrationClient, path: str) -> _Properties:
        """Return the properties of a queue or subscription: one request for its messages and its dead letters."""
        known = self._asked.get(path)
        if known is None or known[0] < time.monotonic():
            known = time.monotonic() + _SHARED_SECONDS, asyncio.ensure_future(_properties(client, path))
            self._asked[path] = known
        return await asyncio.shield(known[1])

    def _note_missing_counts(self, error: Exception) -> None:
        # A firewall may close this API and leave AMQP open, and the role of a receiver does not include it.
        status = error.status_code if isinstance(error, HttpResponseError) else None
        if status in _DENIED or isinstance(error, ClientAuthenticationError):
            self.without_counts, self._silent_until = "it needs the right to manage", float("inf")
        else:
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            self.without_counts = f"it does not answer, {type(error).__name__}"

    async def _peeked(self, entity: str, most: int) -> Waiting:
        origin = Origin(self._site, entity)
        seen = found = size = 0
        counted_until = time.monotonic() + _COUNTING_SECONDS
        end = counted_until + _SECONDS - 2 * _COUNTING_SECONDS
        first, count = 1, min(_PEEKED_AT_ONCE, most)
        is_minimum = False
        oldest: int | None = None
        async with self._translated(entity):
            if self._client is None:
                self._client = self._open_client()
            connection = self._connections.get(entity)
            if connection is None:
                connection = self._connections[entity] = ManagementConnection.to(self._client, entity)
            while first <= _HIGHEST_NUMBER:
                contents = await connection.peek(first, count, _SECONDS)
                peeked = [PeekedMessage.of(content, origin) for content in contents]
                active = [message.enqueued_time for message in peeked if message.is_active]
                found += len(active)
                oldest = min((time for time in (oldest, *active) if time is not None), default=None)
                seen += len(peeked)
                size += sum(map(len, contents))
                last = max(
                    (message.sequence_number for message in peeked if message.sequence_number is not None), default=-1
                )
                if last < first:
                    break
                first = last + 1
                if seen >= most or size >= _MOST_BYTES or time.monotonic() > counted_until:
                    # Enough for a count. The oldest may be the first message of any later partition.
                    is_minimum = True
                    if time.monotonic() > end:
                        break  # it is at least as old as what was seen
                    first = (last >> _PARTITION_BITS) + 1 << _PARTITION_BITS
                    count = 1 if size >= _MOST_BYTES else _FIRST_PEEKED
        return Waiting(found, is_minimum, oldest)

    @asynccontextmanager
    async def _translated(self, entity: str) -> AsyncGenerator[None]:
        where = f"{self._site}/{entity}"
        try:
            async with asyncio.timeout(_SECONDS):
                yield
        except (AzureError, OSError, TimeoutError, ValueError) as error:
            # A connection that failed is not used again.
            broken = self._connections.pop(entity, None)
            is_missing = False
            if broken is not None:
                if isinstance(error, TimeoutError | OperationTimeoutError) and _SUBSCRIPTIONS in entity:
                    is_missing = await broken.is_missing(_COUNTING_SECONDS)
                await broken.close()
            raise TargetRefused(f"{where}: it does not exist") if is_missing else _translated(where, error) from error


async def _properties(client: ServiceBusAdministrationClient, path: str) -> _Properties:
    topic, _, subscription = path.partition(_SUBSCRIPTIONS)
    async with asyncio.timeout(_SECONDS):
        if subscription:
            return await client.get_subscription_runtime_properties(topic, subscription)
        return await client.get_queue_runtime_properties(path)


_UNAUTHORIZED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError, ClientAuthenticationError)


def _translated(where: str, error: Exception) -> TargetRefused | TargetUnavailable:
    if isinstance(error, _UNAUTHORIZED):
        return TargetRefused(f"{where}: {NO_PERMISSION}")
    if isinstance(error, MessagingEntityNotFoundError | ResourceNotFoundError):
        return TargetRefused(f"{where}: it does not exist")
    if isinstance(error, MessagingEntityDisabledError):
        return TargetRefused(f"{where}: it is disabled")
    if isinstance(error, TimeoutError | OperationTimeoutError):
        # Others may receive from it at the same time (azure-sdk-for-go 26421).
        return TargetUnavailable(f"{where}: it cannot be peeked, {type(error).__name__}")
    return look_error(where, error)
