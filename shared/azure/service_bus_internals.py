"""
The private parts of the azure-servicebus SDK that Busway uses; those of its links are in `service_bus_link`.

1. A failed send names its AMQP condition.
2. Requests to the `$management` node of an entity, over the connection that the SDK has for listing sessions, which
   needs no receiver link. The SDK offers lock renewal and settlement to its own receivers only, and it returns peeked
   messages decoded. Source: Microsoft Learn, "AMQP request/response operations".

The SDK's version is pinned; test_service_bus_internals.py and test_peek.py in tests/contracts, tests/broker/
test_settlement.py and tests/end_to_end/test_evacuation.py fail if any of this changes.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    REQUEST_RESPONSE_CANCEL_SCHEDULED_MESSAGE_OPERATION,
    REQUEST_RESPONSE_GET_SESSION_STATE_OPERATION,
    REQUEST_RESPONSE_PEEK_OPERATION,
    REQUEST_RESPONSE_RECEIVE_BY_SEQUENCE_NUMBER,
    REQUEST_RESPONSE_RENEW_SESSION_LOCK_OPERATION,
    REQUEST_RESPONSE_RENEWLOCK_OPERATION,
    REQUEST_RESPONSE_SCHEDULE_MESSAGE_OPERATION,
    REQUEST_RESPONSE_SET_SESSION_STATE_OPERATION,
    REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION,
)
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import ServiceBusError

from shared.protocols import Outgoing

_LOGGER = logging.getLogger(__name__)

# The SDK for Python has no name for it.
_BATCH_DELETE = b"com.microsoft:batch-delete-messages"
_OK, _EMPTY = 200, (202, 204)
_PEEK_LOCK = PyamqpTransportAsync.AMQP_UINT_VALUE(1)


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

    async def complete(self, tokens: Sequence[bytes], session_id: str | None, timeout_seconds: float) -> None:
        """Remove locked messages; *session_id* is required if their session is locked, here and in the next two."""
        await self._settle("completed", tokens, session_id, timeout_seconds)

    async def dead_letter(
        self,
        tokens: Sequence[bytes],
        session_id: str | None,
        reason: str | None,
        description: str | None,
        timeout_seconds: float,
    ) -> None:
        """Move locked messages to the dead-letter queue."""
        texts = {"deadletter-reason": reason, "deadletter-description": description}
        given = {name: text for name, text in texts.items() if text is not None}
        await self._settle("suspended", tokens, session_id, timeout_seconds, given)

    async def defer(self, tokens: Sequence[bytes], session_id: str | None, timeout_seconds: float) -> None:
        """Defer locked messages: from now on they are received by their sequence numbers only."""
        await self._settle("defered", tokens, session_id, timeout_seconds)

    async def abandon(self, tokens: Sequence[bytes], timeout_seconds: float) -> None:
        """Give up the locks on messages; each has lost a delivery attempt."""
        await self._settle("abandoned", tokens, None, timeout_seconds)

    async def _settle(
        self,
        status: str,
        tokens: Sequence[bytes],
        session_id: str | None,
        timeout_seconds: float,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        request = {"disposition-status": status, "lock-tokens": _lock_tokens(tokens), **more}
        if session_id is not None:
            request["session-id"] = session_id
        await self._request(REQUEST_RESPONSE_UPDATE_DISPOSTION_OPERATION, request, timeout_seconds)

    async def receive_deferred(
        self, numbers: Sequence[int], session_id: str | None, timeout_seconds: float
    ) -> list[tuple[bytes, bytes]]:
        """Lock deferred messages, all or none; return the lock token and the encoded message of each."""
        request = {"sequence-numbers": _longs(numbers), "receiver-settle-mode": _PEEK_LOCK}
        if session_id is not None:
            request["session-id"] = session_id
        answer = await self._request(REQUEST_RESPONSE_RECEIVE_BY_SEQUENCE_NUMBER, request, timeout_seconds)
        return [(each[b"lock-token"].bytes_le, bytes(each[b"message"])) for each in answer[b"messages"]]

    async def schedule(self, messages: Sequence[Outgoing], timeout_seconds: float) -> list[int]:
        """
        Schedule messages for the times in their annotations; return their sequence numbers until they are due.

        Several messages are scheduled together or not at all.
        """
        request = {"messages": [_scheduled(each) for each in messages]}
        answer = await self._request(REQUEST_RESPONSE_SCHEDULE_MESSAGE_OPERATION, request, timeout_seconds)
        return [int(each) for each in answer[b"sequence-numbers"]]

    async def cancel_scheduled(self, numbers: Sequence[int], timeout_seconds: float) -> None:
        """Cancel scheduled messages, all or none: one that is due by now is an error."""
        request = {"sequence-numbers": _longs(numbers)}
        await self._request(REQUEST_RESPONSE_CANCEL_SCHEDULED_MESSAGE_OPERATION, request, timeout_seconds)

    async def session_state(self, session_id: str, timeout_seconds: float) -> bytes | None:
        """Return the state of a locked session, None if it has none."""
        answer = await self._request(
            REQUEST_RESPONSE_GET_SESSION_STATE_OPERATION, {"session-id": session_id}, timeout_seconds
        )
        state = answer[b"session-state"]
        return None if state is None else bytes(state)

    async def set_session_state(self, session_id: str, state: bytes | None, timeout_seconds: float) -> None:
        """Set the state of a locked session; None removes it."""
        request = {"session-id": session_id, "session-state": None if state is None else bytearray(state)}
        await self._request(REQUEST_RESPONSE_SET_SESSION_STATE_OPERATION, request, timeout_seconds)

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


def _longs(numbers: Sequence[int]) -> object:
    return PyamqpTransportAsync.AMQP_ARRAY_VALUE([PyamqpTransportAsync.AMQP_LONG_VALUE(each) for each in numbers])


def _scheduled(message: Outgoing) -> dict[str, object]:
    named = {"message-id": message.message_id, "session-id": message.session_id, "partition-key": message.partition_key}
    given: dict[str, object] = {name: text for name, text in named.items() if text is not None}
    return given | {"message": bytearray(message.content)}


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
