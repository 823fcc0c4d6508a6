"""What event hubs hold: the first and last sequence number of each partition."""

import asyncio
from collections.abc import Callable, Mapping

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.eventhub.aio import EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from shared.ends.look_error import NO_PERMISSION, look_error
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.waiting import PartitionEnd

_SECONDS = 6.0


class HubSite:
    """
    Looks at the partitions of the hubs of one namespace.

    Raises: TargetRefused if it may not look or the hub is missing, TargetUnavailable if the namespace does not answer.
    """

    def __init__(self, site: str, open_client: Callable[[str], EventHubProducerClient]) -> None:
        """Open a client for each hub when it is needed."""
        self._site = site
        self._open_client = open_client
        self._clients: dict[str, EventHubProducerClient] = {}

    async def partitions(self, hub: str) -> Mapping[str, PartitionEnd]:
        """Return the partitions of a hub by their id."""
        client = self._clients.get(hub)
        try:
            async with asyncio.timeout(_SECONDS):
                if client is None:
                    client = self._clients[hub] = self._open_client(hub)
                opened = client
                names = await opened.get_partition_ids()
                found = await asyncio.gather(*(opened.get_partition_properties(name) for name in names))
        except (AzureError, EventHubError, OSError, TimeoutError, ValueError) as error:
            broken = self._clients.pop(hub, None)
            if broken is not None:
                await broken.close()
            raise _translated(f"{self._site}/{hub}", error) from error
        return {
            str(each["id"]): PartitionEnd(
                int(each["beginning_sequence_number"]),
                int(each["last_enqueued_sequence_number"]),
                None if each["is_empty"] else round(each["last_enqueued_time_utc"].timestamp() * 1000),
                bool(each["is_empty"]),
            )
            for each in found
        }

    async def close(self) -> None:
        """Close everything."""
        for client in self._clients.values():
            await client.close()


def _translated(where: str, error: Exception) -> TargetRefused | TargetUnavailable:
    if isinstance(error, AuthenticationError | ClientAuthenticationError):
        return TargetRefused(f"{where}: {NO_PERMISSION}")
    return look_error(where, error)
