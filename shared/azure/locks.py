"""
The locks on a batch from a queue or subscription, over a management connection of Busway's own.

The host that received the batch does not renew its locks, and it settles the whole batch or nothing. A client with a
lock token (or the session's id) may renew and settle over the entity's `$management` node as well.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionLockLostError,
)

from shared.azure.service_bus_internals import ManagementConnection
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

# A request must fit the frame size that the service announced, and one lost lock fails the whole request.
TOKENS_AT_ONCE = 100
# Of a dead-letter reason and description, each.
LONGEST_TEXT = 4096
_CLOSE_SECONDS = 1.0

_REFUSALS = (
    ClientAuthenticationError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)


class ServiceBusLocks:
    """The locks on one entity; see `shared.protocols.Locks`. The connection is opened when first needed and kept."""

    def __init__(
        self,
        site: str,
        entity: str,
        open_client: Callable[[], ServiceBusClient],
        *,
        sessions: bool,
        connect: Callable[[ServiceBusClient, str], ManagementConnection] = ManagementConnection.to,
    ) -> None:
        """Use the queue or subscription at the path *entity*; with *sessions*, sessions are locked, not messages."""
        self._where = f"{site}/{entity}"
        self._entity = entity
        self._open_client = open_client
        self._sessions = sessions
        self._connect = connect
        self._client: ServiceBusClient | None = None
        self._connection: ManagementConnection | None = None
        # One request at a time: the SDK's connection has a single reader.
        self._turn = asyncio.Lock()

    async def renew(self, tokens: Sequence[bytes], session_id: str | None, *, timeout_seconds: float) -> int:
        """Renew the locks; return when the first of them expires, in milliseconds since 1970 UTC."""
        if self._sessions:
            if session_id is None:
                raise TargetRefused(
                    f"{self._where}: the session lock cannot be renewed, no message of the batch has a session id"
                )
            return await self._request(
                lambda connection: connection.renew_session_lock(session_id, timeout_seconds), timeout_seconds
            )
        ends: list[int] = []
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            some = tokens[start : start + TOKENS_AT_ONCE]
            ends += await self._renew_some(some, timeout_seconds)
        return min(ends)

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, *, timeout_seconds: float
    ) -> None:
        """Move one message to the dead-letter queue of the source."""
        session = session_id if self._sessions else None
        reason, description = reason[:LONGEST_TEXT], description[:LONGEST_TEXT]
        await self._request(
            lambda connection: connection.dead_letter([token], session, reason, description, timeout_seconds),
            timeout_seconds,
        )

    async def abandon(self, tokens: Sequence[bytes], *, timeout_seconds: float) -> None:
        """Give messages back to the source at once; a session is given back by its receiver only."""
        if self._sessions:
            return
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            some = tokens[start : start + TOKENS_AT_ONCE]
            await self._request(partial(_abandon, some, timeout_seconds), timeout_seconds)

    async def close(self) -> None:
        """Close connection and client."""
        await self._disconnect()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _renew_some(self, tokens: Sequence[bytes], timeout_seconds: float) -> list[int]:
        return await self._request(lambda connection: connection.renew_locks(tokens, timeout_seconds), timeout_seconds)

    async def _request[T](self, request: Callable[[ManagementConnection], Awaitable[T]], timeout_seconds: float) -> T:
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                return await request(self._connected())
        except (MessageLockLostError, SessionLockLostError) as error:
            raise LockLost(f"{self._where}: the lock on the batch is lost, {type(error).__name__}") from error
        except (AzureError, OSError) as error:
            await self._disconnect()
            raise self._translated(error) from error
        except asyncio.CancelledError:
            await self._disconnect()  # half a frame may have been read
            raise

    def _connected(self) -> ManagementConnection:
        if self._connection is None:
            if self._client is None:
                self._client = self._open_client()
            self._connection = self._connect(self._client, self._entity)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The connection may have failed already; an error while closing it adds nothing to the one reported.
            with contextlib.suppress(AzureError, OSError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.close()

    def _translated(self, error: Exception) -> BuswayError:
        inner = error.inner_exception if isinstance(error, AzureError) else None
        if isinstance(error, _REFUSALS) or isinstance(inner, ClientAuthenticationError):
            return TargetRefused(f"{self._where}: access denied, {type(error).__name__}; expected a Listen claim")
        return TargetUnavailable(f"{self._where}: the source is unavailable, {type(error).__name__}")


async def _abandon(tokens: Sequence[bytes], timeout_seconds: float, connection: ManagementConnection) -> None:
    await connection.abandon(tokens, timeout_seconds)
