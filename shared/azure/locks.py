"""
The locks on a batch of a queue or subscription, over a management connection of Busway's own.

The host that received the batch renews nothing and settles all of it or nothing. Whoever knows a lock token (or the
session's id) may renew and settle over the entity's `$management` as well: Microsoft Learn, "AMQP request/response
operations". The SDK offers that to its own receivers only; what it has for itself to list sessions, a connection
without a link to receive on, is used here. It is private to the SDK, touched in this module alone, and
tests/contracts/test_locks_seam.py fails when it changes.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    REQUEST_RESPONSE_RENEW_SESSION_LOCK_OPERATION,
    REQUEST_RESPONSE_RENEWLOCK_OPERATION,
    REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION,
)
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionLockLostError,
)

from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

# A request has to fit the frame that the service announced, and one lost lock fails all of its request.
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
    """The locks on one entity; see `shared.protocols.Locks`. The connection is opened at the first need and kept."""

    def __init__(self, site: str, entity: str, open_client: Callable[[], ServiceBusClient], *, sessions: bool) -> None:
        """Reach the queue or subscription at the path *entity*; with *sessions* its locks are on those."""
        self._where = f"{site}/{entity}"
        self._entity = entity
        self._open_client = open_client
        self._sessions = sessions
        self._client: ServiceBusClient | None = None
        self._connection: Any = None
        # One request at a time: the SDK's connection has a single reader.
        self._turn = asyncio.Lock()

    async def renew(self, tokens: Sequence[bytes], session_id: str | None, *, timeout_seconds: float) -> int:
        """Renew the locks and return until when all of them hold, in milliseconds since 1970 UTC."""
        if self._sessions:
            if session_id is None:
                raise TargetRefused(f"{self._where}: no message of the batch tells its session, expected one to renew")
            session = {"session-id": session_id}
            answer = await self._ask(REQUEST_RESPONSE_RENEW_SESSION_LOCK_OPERATION, session, timeout_seconds)
            return int(answer[b"expiration"])
        ends: list[int] = []
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            request = {"lock-tokens": _array(tokens[start : start + TOKENS_AT_ONCE])}
            answer = await self._ask(REQUEST_RESPONSE_RENEWLOCK_OPERATION, request, timeout_seconds)
            ends += answer[b"expirations"]
        return min(ends)

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, *, timeout_seconds: float
    ) -> None:
        """Move one message to the dead-letter queue of the source."""
        request = {
            "disposition-status": "suspended",
            "lock-tokens": _array([token]),
            "deadletter-reason": reason[:LONGEST_TEXT],
            "deadletter-description": description[:LONGEST_TEXT],
        }
        if self._sessions and session_id is not None:
            request["session-id"] = session_id
        await self._ask(REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION, request, timeout_seconds)

    async def close(self) -> None:
        """Close connection and client."""
        await self._forget()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, operation: bytes, request: Mapping[str, object], timeout_seconds: float) -> Any:
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                return await self._opened()._mgmt_request_response_with_retry(
                    operation, dict(request), mgmt_handlers.default, timeout=timeout_seconds
                )
        except (MessageLockLostError, SessionLockLostError) as error:
            raise LockLost(f"{self._where}: the lock on the batch is lost, {type(error).__name__}") from error
        except (AzureError, OSError) as error:
            await self._forget()
            raise self._translated(error) from error
        except asyncio.CancelledError:
            await self._forget()  # it may have read half a frame
            raise

    def _opened(self) -> Any:
        if self._connection is None:
            if self._client is None:
                self._client = self._open_client()
            # The SDK leaves the function without types.
            self._connection = self._client._create_session_browser(self._entity)  # type: ignore[no-untyped-call]
        return self._connection

    async def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # It may have failed already, and the answer says so; that it cannot be closed in order adds nothing.
            with contextlib.suppress(AzureError, OSError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.close()

    def _translated(self, error: Exception) -> BuswayError:
        inner = error.inner_exception if isinstance(error, AzureError) else None
        if isinstance(error, _REFUSALS) or isinstance(inner, ClientAuthenticationError):
            return TargetRefused(f"{self._where}: the source refuses, {type(error).__name__}, expected a Listen claim")
        return TargetUnavailable(f"{self._where}: the source cannot be reached, {type(error).__name__}")


def _array(tokens: Sequence[bytes]) -> object:
    # The SDK leaves the function without types.
    return PyamqpTransportAsync.AMQP_ARRAY_VALUE([uuid.UUID(bytes_le=token) for token in tokens])
