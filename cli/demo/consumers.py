"""The applications that receive, with Microsoft's SDK."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from cli.concurrency import together
from cli.demo.exact_types import encoded
from cli.demo.messages import Pattern
from cli.demo.observations import APPLICATION, AUXILIARY, EVENTS, JOBS, PAYMENTS, Observations, Place, Receipt
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import visited_sites

_BATCH_MESSAGES = 50
_WAIT_SECONDS = 1.0
# How long a session may be empty before the next one, and how long to wait for a session.
_SILENT_SECONDS = 0.5
_SESSION_WAIT_SECONDS = 5.0
_SESSIONS_AT_ONCE = 8
# Without prefetch the SDK releases messages that arrive between two calls, and the next call may get a later one first.
_PREFETCHED = 50
_COUNTED = 10


class Consumers:
    """The applications of one site."""

    def __init__(self, site: str, connection_string: str, observations: Observations) -> None:
        """Receive at *site* and record the messages in *observations*."""
        self._site = site
        self._connection_string = connection_string
        self._observations = observations

    async def run(self) -> None:
        """Receive until cancelled; raises TargetUnavailable if the broker fails."""
        try:
            async with ServiceBusClient.from_connection_string(self._connection_string) as client:
                payments = client.get_subscription_receiver(Pattern.ACTIVE_PASSIVE, APPLICATION)
                await together(
                    *(self._take_sessions(client) for _ in range(_SESSIONS_AT_ONCE)),
                    self._take_all(payments, PAYMENTS, self._complete),
                    self._take_all(client.get_queue_receiver(JOBS), JOBS, self._work),
                    self._take_all(client.get_queue_receiver(AUXILIARY), AUXILIARY, self._complete),
                )
        except AzureError as error:
            raise TargetUnavailable(f"{self._site}: receive failed, {type(error).__name__}: {error}") from error

    async def _take_sessions(self, client: ServiceBusClient) -> None:
        """Receive one session after the other, each until it is empty."""
        while True:
            receiver = client.get_subscription_receiver(
                Pattern.ALL_ACTIVE,
                APPLICATION,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=_SESSION_WAIT_SECONDS,
                prefetch_count=_PREFETCHED,
            )
            with contextlib.suppress(OperationTimeoutError):
                async with receiver:
                    while messages := await receiver.receive_messages(_BATCH_MESSAGES, max_wait_time=_SILENT_SECONDS):
                        await asyncio.gather(*(self._complete(receiver, EVENTS, message) for message in messages))

    async def _take_all(
        self,
        receiver: ServiceBusReceiver,
        entity: str,
        take: Callable[[ServiceBusReceiver, str, ServiceBusReceivedMessage], Awaitable[None]],
    ) -> None:
        async with receiver:
            while True:
                messages = await receiver.receive_messages(_BATCH_MESSAGES, max_wait_time=_WAIT_SECONDS)
                await asyncio.gather(*(take(receiver, entity, message) for message in messages))
                # A receiver that has lost its link can return at once, and must not block the others.
                await asyncio.sleep(0)

    async def _complete(self, receiver: ServiceBusReceiver, entity: str, message: ServiceBusReceivedMessage) -> None:
        place = Place(self._site, entity)
        self._observations.note(
            Receipt(place, str(message.message_id), Message.received(encoded(message), Origin(*place)))
        )
        await receiver.complete_message(message)

    async def _work(self, receiver: ServiceBusReceiver, entity: str, message: ServiceBusReceivedMessage) -> None:
        """Do a job, or fail on as many sites as the message demands."""
        message_id = str(message.message_id)
        sample = self._observations.samples.get(message_id)
        visited = visited_sites(Message.received(encoded(message), Origin(self._site, entity)))
        if sample is None or len(visited) >= sample.failures:
            await self._complete(receiver, entity, message)
            return
        await receiver.abandon_message(message)
        self._observations.note_failure(message_id, self._site, time.time_ns() // 1_000_000)


async def set_aside(site: str, connection_string: str) -> list[str]:
    """Return a line for each queue of rejects and dead letters that is not empty."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        receivers = [client.get_queue_receiver(f"{pattern}-rejected") for pattern in Pattern]
        receivers.append(client.get_queue_receiver(JOBS, sub_queue=ServiceBusSubQueue.DEAD_LETTER))
        receivers += [
            client.get_subscription_receiver(topic, APPLICATION, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
            for topic in (Pattern.ALL_ACTIVE, Pattern.ACTIVE_PASSIVE)
        ]
        try:
            counts = await asyncio.gather(*map(_waiting, receivers))
        except AzureError as error:
            raise TargetUnavailable(f"{site}: receiving the rejects failed, {type(error).__name__}: {error}") from error
    return [
        f"{site}/{receiver.entity_path}: {count} messages{' or more' * (count == _COUNTED)}, expected none"
        for receiver, count in zip(receivers, counts, strict=True)
        if count
    ]


async def _waiting(receiver: ServiceBusReceiver) -> int:
    # Not peeked: the SDK decodes what it peeks, and its decoder fails on some types.
    async with receiver:
        return len(await receiver.receive_messages(_COUNTED, max_wait_time=_WAIT_SECONDS))
