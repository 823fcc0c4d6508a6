"""Peek at the messages of a queue or subscription: read them, encoded, without taking or locking any."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from shared.ends.look_error import FORWARDS
from shared.ends.service_bus.management import ManagementConnection
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.peeked import PeekedMessage

MESSAGES_AT_ONCE = 250
_TIMEOUT_SECONDS = 30.0
# Somebody waits: an entity that has not answered by then is reported.
_FIRST_TIMEOUT_SECONDS = 8.0
_LASTING = (FORWARDS, "unauthorized", "not-found")
"""In the texts of refusals that stay: see `shared.ends.look_error`."""


class CannotBePeeked(TargetUnavailable):
    """The entity shows nothing until a person acts: it forwards, does not exist, or does not let this one look."""


class Peeker:
    """Peeks at one entity over an open connection."""

    def __init__(self, connection: ManagementConnection, origin: Origin) -> None:
        """Peek at the entity of *origin*."""
        self._connection = connection
        self._origin = origin
        self._timeout_seconds = _FIRST_TIMEOUT_SECONDS

    async def peek(self, first: int, count: int = MESSAGES_AT_ONCE) -> list[PeekedMessage]:
        """Return up to *count* messages from sequence number *first* on; raises TargetUnavailable."""
        try:
            contents = await self._connection.peek(first, count, self._timeout_seconds)
        except (AzureError, OSError) as error:
            where = f"{self._origin.site}/{self._origin.entity}"
            reason = "it forwards its messages" if FORWARDS in str(error) else type(error).__name__
            kind = CannotBePeeked if any(each in str(error).lower() for each in _LASTING) else TargetUnavailable
            raise kind(f"{where}: it cannot be peeked, {reason}") from error
        self._timeout_seconds = _TIMEOUT_SECONDS
        return [PeekedMessage.of(content, self._origin) for content in contents]

    async def peek_all(self) -> AsyncGenerator[list[PeekedMessage]]:
        """Yield all messages of the entity, MESSAGES_AT_ONCE at most at a time; raises TargetUnavailable."""
        last = 0
        while messages := await self.peek(last + 1):
            yield messages
            highest = max(
                (message.sequence_number for message in messages if message.sequence_number is not None), default=last
            )
            if highest <= last:
                break
            last = highest


@asynccontextmanager
async def peeker(client: ServiceBusClient, origin: Origin) -> AsyncIterator[Peeker]:
    """Open a connection to the entity of *origin*, and close it at the end."""
    connection = ManagementConnection.to(client, origin.entity)
    try:
        yield Peeker(connection, origin)
    finally:
        await connection.close()


def peeker_opener(
    open_client: Callable[[], ServiceBusClient], origin: Origin
) -> Callable[[], AbstractAsyncContextManager[Peeker]]:
    """Return what opens a client and a `Peeker` on it, each time that it is called."""

    @asynccontextmanager
    async def open_peeker() -> AsyncIterator[Peeker]:
        async with open_client() as client, peeker(client, origin) as opened:
            yield opened

    return open_peeker
