"""
Requests to the `$management` node of a queue or subscription.

The SDK offers lock renewal and settlement to its own receivers only, and it returns peeked messages decoded.

Source: Microsoft Learn, "AMQP request/response operations".
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from shared.amqp.codec import plain
from shared.amqp.errors import AmqpError
from shared.amqp.values import (
    NULL,
    Value,
    array,
    binary,
    int_,
    list_,
    long,
    map_,
    string,
    timestamp,
    uint,
)
from shared.amqp.values import (
    uuid as uuid_value,
)
from shared.ends.azure_amqp.raw_connection import RawConnection
from shared.ends.service_bus.internals import peer_of, raise_as_sdk, raise_refused
from shared.errors import BuswayError
from shared.protocols import Outgoing

_OK, _EMPTY = 200, (202, 204)
_PEEK_LOCK = uint(1)
_NOT_FOUND = "amqp:not-found"
_UUIDS, _LONGS = 0x98, 0x81
# The link outlives an entity that is deleted, and shows what that had (issue 30028 of azure-sdk-for-net).
_LONGEST_PEEKING_SECONDS = 240.0


class ManagementConnection:
    """
    A connection to the `$management` node of a queue or subscription.

    Raises: every method raises the SDK's errors, those that the service names as well as those of the network.
    """

    def __init__(self, entity: str, connect: Callable[[], Awaitable[RawConnection]], link_name: str | None) -> None:
        """
        Send requests over what *connect* returns.

        Those that name a link keep it alive (pull request 10209 of azure-sdk-for-python).
        """
        self._entity = entity
        self._connect = connect
        self._link_name = link_name
        self._own: RawConnection | None = None
        self._opened = 0.0
        self._opening = asyncio.Lock()

    @classmethod
    def to(cls, client: ServiceBusClient, entity: str) -> Self:
        """Return a connection that is opened at its first request, and again once it is broken."""
        self: Self

        async def connect() -> RawConnection:
            async with self._opening:
                if self._own is None or self._own.is_broken:
                    self._own = await RawConnection.open(entity, peer_of(client), entity)
                    self._opened = asyncio.get_running_loop().time()
                return self._own

        self = cls(entity, connect, None)
        return self

    async def renew_locks(self, tokens: Sequence[bytes], timeout_seconds: float) -> list[int]:
        """Renew the locks on messages; return when each expires, in milliseconds since 1970 UTC."""
        answer = await self._request("renew-lock", {"lock-tokens": _lock_tokens(tokens)}, timeout_seconds)
        return list(answer["expirations"])

    async def renew_session_lock(self, session_id: str, timeout_seconds: float) -> int:
        """Renew the lock on a session; return when it expires, in milliseconds since 1970 UTC."""
        answer = await self._request("renew-session-lock", {"session-id": string(session_id)}, timeout_seconds)
        return int(answer["expiration"])

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
        await self._settle("suspended", tokens, session_id, timeout_seconds, **texts)

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
        **more: str | None,
    ) -> None:
        texts = {"disposition-status": status, "session-id": session_id, **more}
        request = {"lock-tokens": _lock_tokens(tokens), **_strings(texts)}
        await self._request("update-disposition", request, timeout_seconds)

    async def receive_deferred(
        self, numbers: Sequence[int], session_id: str | None, timeout_seconds: float
    ) -> list[tuple[bytes, bytes]]:
        """Lock deferred messages, all or none; return the lock token and the encoded message of each."""
        request = {"sequence-numbers": _longs(numbers), "receiver-settle-mode": _PEEK_LOCK}
        request |= _strings({"session-id": session_id})
        answer = await self._request("receive-by-sequence-number", request, timeout_seconds)
        return [(each["lock-token"].bytes_le, each["message"]) for each in answer["messages"]]

    async def schedule(self, messages: Sequence[Outgoing], timeout_seconds: float) -> list[int]:
        """
        Schedule messages for the times in their annotations; return their sequence numbers until they are due.

        Several messages are scheduled together or not at all.
        """
        request = {"messages": list_([_scheduled(message) for message in messages])}
        answer = await self._request("schedule-message", request, timeout_seconds)
        return [int(each) for each in answer["sequence-numbers"]]

    async def cancel_scheduled(self, numbers: Sequence[int], timeout_seconds: float) -> None:
        """Cancel scheduled messages, all or none: one that is due by now is an error."""
        request = {"sequence-numbers": _longs(numbers)}
        await self._request("cancel-scheduled-message", request, timeout_seconds)

    async def session_state(self, session_id: str, timeout_seconds: float) -> bytes | None:
        """Return the state of a locked session, None if it has none."""
        answer = await self._request("get-session-state", {"session-id": string(session_id)}, timeout_seconds)
        state: bytes | None = answer["session-state"]
        return state

    async def set_session_state(self, session_id: str, state: bytes | None, timeout_seconds: float) -> None:
        """Set the state of a locked session; None removes it."""
        request = {"session-id": string(session_id), "session-state": NULL if state is None else binary(state)}
        await self._request("set-session-state", request, timeout_seconds)

    async def peek(self, first: int, count: int, timeout_seconds: float) -> list[bytes]:
        """
        Return up to *count* messages from sequence number *first* on, encoded; an empty list only if it is sure.

        The service answers with fewer than asked for, and now and then with none although there are some (azure-sdk-
        for-js 12450 and 13471, for-net 17702). So no answer is believed until another connection gives the same.
        """
        if asyncio.get_running_loop().time() > self._opened + _LONGEST_PEEKING_SECONDS:
            await self._reopen()
        return await self._peek(first, count, timeout_seconds) or await self._peek_again(first, count, timeout_seconds)

    async def _peek_again(self, first: int, count: int, timeout_seconds: float) -> list[bytes]:
        await self._reopen()
        return await self._peek(first, count, timeout_seconds)

    async def _reopen(self) -> None:
        """Let the next request open another connection, unless links use this one."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def _peek(self, first: int, count: int, timeout_seconds: float) -> list[bytes]:
        request = {"from-sequence-number": long(first), "message-count": int_(count)}
        answer = await self._request("peek-message", request, timeout_seconds)
        return [each["message"] for each in answer.get("messages", ())]

    async def delete_batch(self, count: int, before: datetime, timeout_seconds: float) -> int:
        """
        Delete up to *count* messages that were enqueued *before* a time and are not locked; return how many.

        The service deletes at most 500 at once on Standard, 4,000 on Premium, and none on partitioned entities. Source:
        Microsoft Learn, "Batch delete messages"; the request is that of .NET's `DeleteMessagesAsync` (measured).
        """
        request = {"message-count": int_(count), "enqueued-time-utc": timestamp(int(before.timestamp() * 1000))}
        answer = await self._request("batch-delete-messages", request, timeout_seconds)
        return int(answer["message-count"])

    async def is_missing(self, timeout_seconds: float) -> bool:
        """
        Return whether the service has no such entity, False if it does not say so.

        Requests about a missing subscription are never answered (azure-sdk-for-net 43492), but it has no receivers.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                connection = await self._connect()
                await connection.detach(await connection.attach(self._entity, {}))
        except (BuswayError, TimeoutError) as error:
            return isinstance(error.__cause__, AmqpError) and error.__cause__.condition == _NOT_FOUND
        return False

    async def close(self) -> None:
        """Close the connection, unless links use it too."""
        if self._own is not None:
            await self._own.close()

    async def _request(self, operation: str, request: Mapping[str, Value], timeout_seconds: float) -> Any:
        """Return the content of the answer as plain data, empty without any."""
        properties = {
            "operation": string(f"com.microsoft:{operation}"),
            "type": string("entity-mgmt"),
            "com.microsoft:server-timeout": uint(int(timeout_seconds * 1000)),
            **_strings({"associated-link-name": self._link_name}),
        }
        content = map_((string(name), value) for name, value in request.items())
        try:
            async with asyncio.timeout(timeout_seconds):
                connection = await self._connect()
                node = f"{self._entity}/$management"
                answer = await connection.request(node, properties, content, timeout_seconds)
        except TimeoutError as error:
            raise OperationTimeoutError(error=error) from error
        except BuswayError as error:
            raise_as_sdk(error.__cause__ or error)
        if answer.status in _EMPTY:
            return {}
        if answer.status != _OK:
            raise_refused(answer.status, answer.condition, answer.description)
        return {} if answer.content is None else plain(answer.content)


def _strings(texts: Mapping[str, str | None]) -> dict[str, Value]:
    return {name: string(text) for name, text in texts.items() if text is not None}


def _longs(numbers: Sequence[int]) -> Value:
    return array(_LONGS, [Value(_LONGS, number) for number in numbers])


def _scheduled(message: Outgoing) -> Value:
    named = {"message-id": message.message_id, "session-id": message.session_id, "partition-key": message.partition_key}
    given = _strings(named) | {"message": binary(message.content)}
    return map_((string(name), value) for name, value in given.items())


def _lock_tokens(tokens: Sequence[bytes]) -> Value:
    return array(_UUIDS, [uuid_value(uuid.UUID(bytes_le=token)) for token in tokens])
