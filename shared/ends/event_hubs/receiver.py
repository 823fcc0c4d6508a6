"""
Connections to the partitions of an event hub, with the credential of azure-eventhub.

tests/contracts/test_receive_seam.py checks the private names of the SDK.
"""

import asyncio
from datetime import datetime
from typing import Any

from azure.eventhub._utils import event_position_selector
from azure.eventhub.aio import EventHubConsumerClient

from shared.access.identity import async_credential
from shared.amqp.values import described, long, string, symbol
from shared.ends.azure_amqp.raw_connection import Peer, RawConnection
from shared.ends.azure_amqp.raw_link import RawLink, refused_or_closed
from shared.ends.event_hubs.clients import consumer_of
from shared.ends.namespace import Namespace, tls
from shared.errors import TargetRefused

_OPEN_SECONDS = 30.0
_SCOPE = "https://eventhubs.azure.net//.default"
_SELECTOR = "apache.org:selector-filter:string"

type Position = str | int | datetime
"""Where to start: after an offset (text; `-1` is the start, `@latest` the end) or sequence number, or at a time."""


class EventHub:
    """An event hub as one consumer group sees it."""

    def __init__(self, namespace: Namespace, name: str, consumer_group: str) -> None:
        """Prepare the SDK's client; nothing is opened yet."""
        self.name = name
        self.consumer_group = consumer_group
        self._namespace = namespace
        self._credential = async_credential() if namespace.connection_string is None else None

    @property
    def connection_name(self) -> str:
        """Return the app setting of the connection."""
        return self._namespace.name

    @property
    def namespace(self) -> str:
        """Return the host name of the namespace."""
        return self._namespace.host_name

    @property
    def where(self) -> str:
        """Return the hub's name for errors and logs."""
        return f"{self.name}/{self.consumer_group}"

    async def partition_ids(self) -> list[str]:
        """Return the hub's partitions; raises TargetUnavailable and TargetRefused."""
        client = self._client()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return list(await client.get_partition_ids())
        except Exception as error:  # errors of the SDK, azure-core or the socket
            failure = refused_or_closed(self.where, error)
            if isinstance(failure, TargetRefused):
                # The SDK drops why a token is refused: this names it.
                raw = await RawConnection.open(self.where, *self._place(client))
                await raw.close()
            raise failure from error
        finally:
            await client.close()

    @staticmethod
    def _place(client: Any) -> tuple[Peer, str]:
        config, address = client._config, client._address
        peer = Peer(address.hostname, tls() if config.use_tls else None, client._credential, _SCOPE)
        return peer, address.path.removeprefix("/")

    async def open(
        self, partition_id: str, position: Position, prefetch: int, *, epoch: int | None = None
    ) -> "PartitionConnection":
        """
        Return an open link to a partition that delivers the events after *position*.

        With an *epoch* it disconnects other readers of its consumer group with the same or a lower one.
        """
        client: Any = self._client()
        peer, path = self._place(client)
        wanted = {"com.microsoft:timeout": long(0)} | ({} if epoch is None else {"com.microsoft:epoch": long(epoch)})
        selector = event_position_selector(position, isinstance(position, datetime)).decode()
        raw = None
        try:
            raw = await RawConnection.open(f"{self.where}/{partition_id}", peer, path)
            link = await raw.attach(
                f"{path}/ConsumerGroups/{self.consumer_group}/Partitions/{partition_id}",
                wanted,
                prefetch,
                filters={_SELECTOR: described(symbol(_SELECTOR), string(selector))},
                capabilities=("com.microsoft:georeplication",),
                is_settled=True,
            )
        except BaseException:
            if raw is not None:
                await raw.close()
            await client.close()
            raise
        return PartitionConnection(raw, link, client)

    async def close(self) -> None:
        """Close the credential."""
        if self._credential is not None:
            await self._credential.close()

    def _client(self) -> EventHubConsumerClient:
        return consumer_of(self._namespace, self.name, self.consumer_group, self._credential)


class PartitionConnection:
    """An open link to one partition; `EventHub.open` makes it."""

    def __init__(self, raw: RawConnection, link: RawLink, client: EventHubConsumerClient) -> None:
        """Keep what `close` closes."""
        self.raw = raw
        self.link = link
        self._client = client

    async def close(self) -> None:
        """Close link and connection."""
        await self.raw.close()
        await self._client.close()
