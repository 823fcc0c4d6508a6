"""
Opening a connection to an event hub through azure-eventhub, for `raw_connection` to read.

One connection serves one partition. tests/contracts/test_receive_seam.py checks the private names of the SDK.
"""

import asyncio
from datetime import datetime
from typing import Any

from azure.eventhub._constants import EPOCH_SYMBOL, GEOREPLICATION_SYMBOL, TIMEOUT_SYMBOL
from azure.eventhub._pyamqp._decode import decode_frame
from azure.eventhub._pyamqp.constants import ReceiverSettleMode, SenderSettleMode
from azure.eventhub._utils import event_position_selector
from azure.eventhub.aio import EventHubConsumerClient

from shared.azure.identity import async_credential
from shared.azure.receivers.connection import Connection
from shared.azure.receivers.raw_connection import OPEN_VALUES, MicrosoftSasl, RawConnection
from shared.azure.receivers.raw_link import RawLink, refused_or_closed

_OPEN_SECONDS = 30.0

type Position = str | int | datetime
"""Where to start: after an offset (text; `-1` is the start, `@latest` the end) or sequence number, or at a time."""


class EventHub:
    """An event hub as one consumer group sees it."""

    def __init__(self, connection: Connection, name: str, consumer_group: str) -> None:
        """Prepare the SDK's client; nothing is opened yet."""
        self.name = name
        self.consumer_group = consumer_group
        self._connection = connection
        self._credential = async_credential() if connection.connection_string is None else None

    @property
    def connection_name(self) -> str:
        """Return the app setting of the connection."""
        return self._connection.name

    @property
    def namespace(self) -> str:
        """Return the host name of the namespace."""
        return self._connection.host_name

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
            raise refused_or_closed(self.where, error) from error
        finally:
            await client.close()

    async def open(
        self, partition_id: str, position: Position, prefetch: int, *, epoch: int | None = None
    ) -> "PartitionConnection":
        """
        Return an open link to a partition that delivers the events after *position*.

        With an *epoch* it disconnects other readers of its consumer group with the same or a lower one.
        """
        where = f"{self.where}/{partition_id}"
        client: Any = self._client()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                auth = await client._create_auth_async()  # noqa: SLF001 - the seam, see above
                amqp = client._amqp_transport.create_mgmt_client(client._address, auth, client._config)  # noqa: SLF001
                amqp._auth.sasl = MicrosoftSasl()  # noqa: SLF001
                for name, value in OPEN_VALUES.items():
                    setattr(amqp, f"_{name}", value)
                await amqp.open_async()
                while not await amqp.auth_complete_async():
                    pass  # each call reads from the socket
        except Exception as error:
            await client.close()
            raise refused_or_closed(where, error) from error
        raw = await RawConnection.take_over(where, amqp, decode_frame)
        address = client._address  # noqa: SLF001
        path = f"{address.path}/ConsumerGroups/{self.consumer_group}/Partitions/{partition_id}"
        source = client._amqp_transport.create_source(  # noqa: SLF001
            f"amqps://{address.hostname}{path}",
            position,
            event_position_selector(position, isinstance(position, datetime)),
        )
        wanted = {TIMEOUT_SYMBOL: 0} if epoch is None else {TIMEOUT_SYMBOL: 0, EPOCH_SYMBOL: epoch}
        properties = client._amqp_transport.create_link_properties(wanted)  # noqa: SLF001
        try:
            link = await raw.attach(
                source,
                properties,
                prefetch,
                is_settled=True,
                send_settle_mode=SenderSettleMode.Unsettled,
                rcv_settle_mode=ReceiverSettleMode.First,
                desired_capabilities=[GEOREPLICATION_SYMBOL],
            )
        except BaseException:
            await raw.close()
            await client.close()
            raise
        return PartitionConnection(raw, link, client)

    async def close(self) -> None:
        """Close the credential."""
        if self._credential is not None:
            await self._credential.close()

    def _client(self) -> EventHubConsumerClient:
        if self._connection.connection_string is not None:
            return EventHubConsumerClient.from_connection_string(
                self._connection.connection_string, self.consumer_group, eventhub_name=self.name
            )
        namespace = str(self._connection.fully_qualified_namespace)
        assert self._credential is not None  # noqa: S101 - a connection has one of the two
        return EventHubConsumerClient(namespace, self.name, self.consumer_group, self._credential)


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
