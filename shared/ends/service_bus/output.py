"""Sends encoded messages to Service Bus, in batches, through the azure-servicebus SDK."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from shared.ends.service_bus.link import SenderLink
from shared.ends.service_bus.place import Place
from shared.errors import BuswayError
from shared.protocols import Outgoing


class ServiceBusOutput:
    """Sends to the queues and topics of one namespace over one client, opened at the first send and kept."""

    def __init__(
        self,
        site: str,
        open_client: Callable[[], ServiceBusClient],
        open_link: Callable[[ServiceBusSender], Awaitable[SenderLink]] = SenderLink.open,
    ) -> None:
        """Use *site* as the namespace's name in errors."""
        self._site = site
        self._open_client = open_client
        self._open_link = open_link
        self._client: ServiceBusClient | None = None
        self._places: dict[str, Place] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue or topic in order, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        place = self._places.setdefault(entity, Place(f"{self._site}/{entity}", self._link_to(entity)))
        return await place.send(messages, deadline)

    async def close(self) -> None:
        """Close all links and the client."""
        places, self._places = self._places, {}
        for place in places.values():
            await place.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _link_to(self, entity: str) -> Callable[[], Awaitable[SenderLink]]:
        def open_link() -> Awaitable[SenderLink]:
            if self._client is None:
                self._client = self._open_client()
            # The SDK's queue and topic senders differ only in the name of this argument.
            return self._open_link(self._client.get_queue_sender(entity))

        return open_link
