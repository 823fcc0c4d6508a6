"""The drill's applications: one that publishes numbered messages, and one consumer for each session."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from busway_clients.aio.endpoints.receiver import FollowingReceiver
from busway_clients.aio.endpoints.sender import FollowingSender
from busway_clients.aio.endpoints.watch import EndpointWatch
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.file import FileSource
from cli.failover.drill.observations import Delivery, Observations
from shared.ends.namespace import tls
from shared.tasks.failover import RECEIVE, SEND

TOPIC = "orders"
SUBSCRIPTION = "application"
ENTITY = f"{TOPIC}/Subscriptions/{SUBSCRIPTION}"
SESSIONS = ("s0", "s1", "s2", "s3")

# As often as the drill's document may be read: its time to live is 2 seconds.
_SHORTEST_SECONDS = 1.0
_SEND_SECONDS = 5.0
_RETRY_SECONDS = 0.2
_WAIT_SECONDS = 1.0
_DRAIN_SECONDS = 5.0
_BATCH = 20


@dataclass
class Applications:
    """A publisher and consumers that follow the endpoint document; the seconds of the drill start with it."""

    document: Path
    connection_strings: Mapping[str, str]
    observations: Observations
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # The drill itself reports the outage.
        for name in ("azure", "busway_clients"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def second(self) -> float:
        """Return the second of the drill."""
        return time.monotonic() - self.started

    async def publish(self, first: int, count: int, rate: float) -> None:
        """Publish *count* messages from number *first* on, *rate* per second; retry each until it is accepted."""
        async with self._watch(SEND) as watch:
            sender = FollowingSender(watch, self._connect, lambda client: client.get_topic_sender(TOPIC))
            async with sender:
                due = time.monotonic()
                for number in range(first, first + count):
                    await self._publish(sender, number)
                    due = max(due + 1 / rate, time.monotonic() - 1 / rate)
                    await asyncio.sleep(max(due - time.monotonic(), 0))

    async def _publish(self, sender: FollowingSender, number: int) -> None:
        session = SESSIONS[number % len(SESSIONS)]
        message = ServiceBusMessage(f"order {number}", message_id=str(number), session_id=session)
        while True:
            try:
                await sender.send_messages(message, timeout=_SEND_SECONDS)
            except (AzureError, OSError, ValueError):
                self.observations.failed_sends.append(self.second())
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                assert sender.endpoint is not None  # noqa: S101 - it has sent
                self.observations.accepted[number] = (_site(sender.endpoint), self.second())
                return

    async def consume(self) -> None:
        """Consume all sessions until cancelled."""
        async with self._watch(RECEIVE) as watch, asyncio.TaskGroup() as consumers:
            for session in SESSIONS:
                consumers.create_task(self._consume(watch, session))

    async def _consume(self, watch: EndpointWatch, session: str) -> None:
        receiver = FollowingReceiver(
            watch,
            self._connect,
            lambda client: client.get_subscription_receiver(TOPIC, SUBSCRIPTION, session_id=session, prefetch_count=50),
            drain_seconds=_DRAIN_SECONDS,
        )
        async with receiver:
            while True:
                try:
                    messages = await receiver.receive_messages(_BATCH, _WAIT_SECONDS)
                except (AzureError, OSError, ValueError):
                    await receiver.release()
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                assert receiver.endpoint is not None  # noqa: S101 - it has received
                site = _site(receiver.endpoint)
                for message in messages:
                    # Processed first, then completed: a message that cannot be completed is delivered again.
                    self.observations.note(Delivery(int(str(message.message_id)), session, site, self.second()))
                    with contextlib.suppress(AzureError, OSError, ValueError):
                        await receiver.complete_message(message)

    def _watch(self, role: str) -> EndpointWatch:
        cache = EndpointCache(shortest_seconds=_SHORTEST_SECONDS, retry_seconds=_SHORTEST_SECONDS)
        return EndpointWatch(FileSource(self.document, role), cache=cache)

    def _connect(self, endpoint: Endpoint) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.connection_strings[_site(endpoint)], retry_total=1, retry_backoff_factor=0.1, ssl_context=tls()
        )


def _site(endpoint: Endpoint) -> str:
    return endpoint.namespace.partition("-")[0]
