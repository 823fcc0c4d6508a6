"""
Sends texts to the queues of a storage account.

1. A message is one request, many at a time: a storage queue keeps no order, so nothing waits for its predecessor.
2. A request whose answer is lost may have been carried out. It is sent again, because the queue recognizes nothing; a
   duplicate may follow.
"""

import asyncio
from collections.abc import Callable, Sequence

from azure.core.exceptions import AzureError
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from shared.clock import Clock, SystemClock
from shared.ends.conditions import INVALID, as_error
from shared.ends.storage_queue.errors import sending_error
from shared.errors import BuswayError, ConfigError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

_MOST_IN_FLIGHT = 64
_FOR_EVER = -1
_LONGEST_VISIBILITY = 7 * 24 * 60 * 60
_SECOND = 1000


class StorageQueueOutput:
    """Sends to the queues of one storage account, over a client that is opened at the first send and kept."""

    def __init__(self, site: str, open_service: Callable[[], QueueServiceClient], clock: Clock | None = None) -> None:
        """Use *site* as the account's name in errors."""
        self._site = site
        self._open_service = open_service
        self._clock = clock or SystemClock()
        self._service: QueueServiceClient | None = None
        self._queues: dict[str, QueueClient] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue, beside other calls; see `shared.protocols.Output`."""
        where = f"{self._site}/{entity}"
        try:
            queue = self._queue(entity)
        except ConfigError as error:
            return [TargetRefused(f"{where}: {error}")] * len(messages)
        answers: list[BuswayError | None] = [None] * len(messages)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        left = iter(enumerate(messages))
        stop: BuswayError | None = None

        async def send_some() -> None:
            nonlocal stop
            for position, message in left:
                answer = stop or await self._send(queue, where, message, deadline)
                answers[position] = answer
                if isinstance(answer, TargetUnavailable | TargetRefused):
                    stop = stop or answer

        await asyncio.gather(*(send_some() for _ in range(min(_MOST_IN_FLIGHT, len(messages)))))
        return answers

    async def close(self) -> None:
        """Close the connections."""
        service, self._service = self._service, None
        self._queues.clear()
        if service is not None:
            await service.close()

    def _queue(self, name: str) -> QueueClient:
        if self._service is None:
            self._service = self._open_service()
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._service.get_queue_client(name)
        return queue

    async def _send(self, queue: QueueClient, where: str, message: Outgoing, deadline: float) -> BuswayError | None:
        try:
            text = message.content.decode()
        except UnicodeDecodeError as error:
            return as_error(INVALID, where, "it is not text", error)
        delay = self._seconds_until(message.scheduled_time)
        # The queue counts the time to live from the arrival, and refuses a message that would be hidden until its end.
        life = (delay or 0) + _seconds(message.time_to_live) if message.time_to_live else _FOR_EVER
        try:
            async with asyncio.timeout_at(deadline):
                await queue.send_message(text, visibility_timeout=delay, time_to_live=life)
        except (AzureError, TimeoutError, OSError) as error:
            return sending_error(where, error)
        return None

    def _seconds_until(self, due: int | None) -> int | None:
        """Return the seconds after which a scheduled message may be received, None for at once."""
        if due is None:
            return None
        seconds = _seconds(due - round(self._clock.now().timestamp() * _SECOND))
        return min(seconds, _LONGEST_VISIBILITY) if seconds > 0 else None


def _seconds(milliseconds: int) -> int:
    """Return whole seconds, rounded up: a message must neither expire nor be received before its time."""
    return -(-milliseconds // _SECOND)
