"""
The private parts of the azure-servicebus SDK that Busway uses; those of its links are in `service_bus_link`.

1. A failed send names its AMQP condition.
2. Requests to the `$management` node of an entity, over the connection that the SDK has for listing sessions, which
   needs no receiver link. The SDK offers lock renewal and settlement to its own receivers only, and it returns peeked
   messages decoded. Source: Microsoft Learn, "AMQP request/response operations".

The SDK's version is pinned; tests/contracts/test_service_bus_internals.py, test_locks.py and test_peek.py fail if any
of this changes.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    REQUEST_RESPONSE_PEEK_OPERATION,
    REQUEST_RESPONSE_RENEW_SESSION_LOCK_OPERATION,
    REQUEST_RESPONSE_RENEWLOCK_OPERATION,
    REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION,
)
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import ServiceBusError

_LOGGER = logging.getLogger(__name__)

# The SDK for Python has no name for it.
_BATCH_DELETE = b"com.microsoft:batch-delete-messages"
_OK, _EMPTY = 200, (202, 204)


def condition_of(error: Exception) -> str | None:
    """Return the AMQP condition that the service sent, None if it sent none."""
    condition = error._condition if isinstance(error, ServiceBusError) else None
    return condition.decode() if isinstance(condition, bytes) else condition


class ManagementConnection:
    """
    A connection to the `$management` node of a queue or subscription; one request at a time.

    Raises: every method raises the SDK's errors, those that the service names as well as those of the network.
    """

    def __init__(self, connection: Any) -> None:
        """Take over a connection of the SDK."""
        self._connection = connection

    @classmethod
    def to(cls, client: ServiceBusClient, entity: str) -> Self:
        """Return a connection that is opened at its first request."""
        return cls(client._create_session_browser(entity))  # type: ignore[no-untyped-call] # the SDK has no types here

    async def renew_locks(self, tokens: Sequence[bytes], timeout_seconds: float) -> list[int]:
        """Renew the locks on messages; return when each expires, in milliseconds since 1970 UTC."""
        answer = await self._request(
            REQUEST_RESPONSE_RENEWLOCK_OPERATION, {"lock-tokens": _lock_tokens(tokens)}, timeout_seconds
        )
        return list(answer[b"expirations"])

    async def renew_session_lock(self, session_id: str, timeout_seconds: float) -> int:
        """Renew the lock on a session; return when it expires, in milliseconds since 1970 UTC."""
        answer = await self._request(
            REQUEST_RESPONSE_RENEW_SESSION_LOCK_OPERATION, {"session-id": session_id}, timeout_seconds
        )
        return int(answer[b"expiration"])

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, timeout_seconds: float
    ) -> None:
        """Move a locked message to the dead-letter queue; *session_id* is required if its session is locked."""
        request = {
            "disposition-status": "suspended",
            "lock-tokens": _lock_tokens([token]),
            "deadletter-reason": reason,
            "deadletter-description": description,
        }
        if session_id is not None:
            request["session-id"] = session_id
        await self._request(REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION, request, timeout_seconds)

    async def abandon(self, tokens: Sequence[bytes], timeout_seconds: float) -> None:
        """Give up the locks on messages; each has lost a delivery attempt."""
        request = {"disposition-status": "abandoned", "lock-tokens": _lock_tokens(tokens)}
        await self._request(REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION, request, timeout_seconds)

    async def peek(self, first: int, count: int, timeout_seconds: float) -> list[bytes]:
        """Return up to *count* messages from sequence number *first* on, encoded."""
        request = {"from-sequence-number": PyamqpTransportAsync.AMQP_LONG_VALUE(first), "message-count": count}
        answer = await self._request(REQUEST_RESPONSE_PEEK_OPERATION, request, timeout_seconds, _peeked_messages)
        return [bytes(each[b"message"]) for each in answer]

    async def delete_batch(self, count: int, before: datetime, timeout_seconds: float) -> int:
        """
        Delete up to *count* messages that were enqueued *before* a time and are not locked; return how many.

        The service deletes at most 500 at once on Standard, 4,000 on Premium, and none on partitioned entities. Source:
        Microsoft Learn, "Batch delete messages"; the request is that of .NET's `DeleteMessagesAsync` (measured).
        """
        request = {"message-count": count, "enqueued-time-utc": before}
        answer = await self._request(_BATCH_DELETE, request, timeout_seconds)
        return int(answer[b"message-count"])

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _request(
        self,
        operation: bytes,
        request: Mapping[str, object],
        timeout_seconds: float,
        read_answer: Callable[..., Any] = mgmt_handlers.default,
    ) -> Any:
        return await self._connection._mgmt_request_response_with_retry(
            operation, dict(request), read_answer, timeout=timeout_seconds
        )


def _lock_tokens(tokens: Sequence[bytes]) -> object:
    return PyamqpTransportAsync.AMQP_ARRAY_VALUE([uuid.UUID(bytes_le=token) for token in tokens])


def _peeked_messages(status_code: int, message: Any, description: object, amqp_transport: Any) -> list[Any]:
    """Return the messages in the answer to a peek request; the signature is that of the SDK's own handlers."""
    if status_code in _EMPTY:
        return []
    if status_code != _OK:
        condition = message.application_properties.get(b"errorCondition")
        amqp_transport.handle_amqp_mgmt_error(_LOGGER, "Message peek failed.", condition, description, status_code)
    return list(message.value[b"messages"])
