"""What waits in the queues of a storage account: the number of messages, and the age of the oldest that is visible."""

import asyncio

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.queue.aio import QueueServiceClient

from shared.ends.storage_queue.clients import POISON_SUFFIX
from shared.ends.storage_queue.errors import source_error
from shared.message.waiting import DEAD_LETTERS, Waiting

_SECONDS = 6.0


class StorageQueueSite:
    """Looks into the queues of one account; raises as `shared.ends.service_bus.site.ServiceBusSite`."""

    def __init__(self, site: str, service: QueueServiceClient) -> None:
        """Look with *service*."""
        self._site = site
        self._service = service

    async def waiting(self, entity: str) -> Waiting:
        """Return what waits in a queue; its poison queue takes the place of a dead-letter queue."""
        is_poison = entity.endswith(DEAD_LETTERS)
        name = entity.removesuffix(DEAD_LETTERS) + POISON_SUFFIX if is_poison else entity
        queue, where = self._service.get_queue_client(name), f"{self._site}/{name}"
        try:
            async with asyncio.timeout(_SECONDS):
                count = (await queue.get_queue_properties()).approximate_message_count or 0
                first = await queue.peek_messages(1) if count else []
        except (AzureError, OSError, TimeoutError) as error:
            if is_poison and isinstance(error, ResourceNotFoundError):  # the host creates it with its first message
                return Waiting(0)
            raise source_error(where, "count messages", error) from error
        enqueued = first[0].inserted_on if first else None
        # The count includes messages that a receiver has, and those that have just expired.
        return Waiting(count, oldest=None if enqueued is None else round(enqueued.timestamp() * 1000))

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()
