"""
What `ManagementConnection` in shared/azure/service_bus_internals.py assumes about azure-servicebus.

If a test fails after an update of the SDK, review that module before you deploy. That the requests are the documented
ones is tested in tests/azure and tests/broker/test_azure_assumptions.py.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)

from shared.azure.locks import TOKENS_AT_ONCE, ServiceBusLocks
from shared.azure.service_bus_internals import ManagementConnection
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

CONNECTION_STRING = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


def client() -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(CONNECTION_STRING, retry_total=0)


class Answering:
    """Replaces the SDK's management connection, and records the requests."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.requests: list[tuple[bytes, dict[str, Any]]] = []

    async def _mgmt_request_response_with_retry(
        self,
        operation: bytes,
        request: dict[str, Any],
        callback: object,
        *,
        timeout: float,  # noqa: ASYNC109 - the SDK's signature
    ) -> object:
        assert callable(callback)
        assert timeout
        self.requests.append((operation, request))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        pass


def ask[T](
    answer: object, question: Callable[[ServiceBusLocks], Awaitable[T]], *, sessions: bool = False
) -> tuple[T, list[tuple[bytes, dict[str, Any]]]]:
    """Return what *question* returns if the service answers *answer*, and the requests that it made."""

    async def run() -> T:
        locks = ServiceBusLocks(
            "west", "orders", client, sessions=sessions, connect=lambda *_: ManagementConnection(answering)
        )
        try:
            return await question(locks)
        finally:
            await locks.close()

    answering = Answering(answer)
    return asyncio.run(run()), answering.requests


def test_the_sdk_has_a_connection_without_a_link() -> None:
    async def run() -> None:
        async with client() as opened:
            browser = opened._create_session_browser("topic/Subscriptions/s/$DeadLetterQueue")
            assert browser._mgmt_target == "topic/Subscriptions/s/$DeadLetterQueue/$management"
            assert browser._auth_uri.endswith("/topic/Subscriptions/s/$DeadLetterQueue")
            browser._create_handler(None)
            assert type(browser._handler) is AMQPClientAsync
            assert asyncio.iscoroutinefunction(browser._mgmt_request_response_with_retry)

    asyncio.run(run())


def test_locks_are_renewed_by_their_tokens_some_at_once() -> None:
    tokens = [uuid.uuid4() for _ in range(TOKENS_AT_ONCE + 1)]
    until, requests = ask(
        {b"expirations": [7, 5]},
        lambda locks: locks.renew([each.bytes_le for each in tokens], None, timeout_seconds=5),
    )
    assert until == 5
    assert [operation for operation, _ in requests] == [b"com.microsoft:renew-lock"] * 2
    sent = [token for _, request in requests for token in request["lock-tokens"]["VALUE"]]
    assert [each["VALUE"] if isinstance(each, dict) else each for each in sent] == tokens


def test_a_session_is_renewed_by_its_id() -> None:
    until, requests = ask(
        {b"expiration": 9}, lambda locks: locks.renew([bytes(16)], "s", timeout_seconds=5), sessions=True
    )
    assert until == 9
    assert requests == [(b"com.microsoft:renew-session-lock", {"session-id": "s"})]


def test_a_message_is_dead_lettered_with_its_reason() -> None:
    _, ((operation, request),) = ask(
        {}, lambda locks: locks.dead_letter(bytes(16), "s", "r" * 5000, "d", timeout_seconds=5), sessions=True
    )
    assert operation == b"com.microsoft:update-disposition"
    del request["lock-tokens"]
    assert request == {
        "disposition-status": "suspended",
        "deadletter-reason": "r" * 4096,
        "deadletter-description": "d",
        "session-id": "s",
    }


def test_messages_are_abandoned_by_their_tokens_and_sessions_by_their_receiver() -> None:
    tokens = [bytes([number]) * 16 for number in range(TOKENS_AT_ONCE + 1)]
    _, requests = ask({}, lambda locks: locks.abandon(tokens, timeout_seconds=5))
    assert [request["disposition-status"] for _, request in requests] == ["abandoned"] * 2
    assert sum(len(request["lock-tokens"]["VALUE"]) for _, request in requests) == len(tokens)
    _, requests = ask({}, lambda locks: locks.abandon(tokens, timeout_seconds=5), sessions=True)
    assert requests == []


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (MessageLockLostError(), LockLost),
        (SessionLockLostError(), LockLost),
        (ServiceBusAuthorizationError(), TargetRefused),
        (MessagingEntityNotFoundError(), TargetRefused),
        (ServiceBusError("Handler failed", error=ClientAuthenticationError("no token")), TargetRefused),
        (OperationTimeoutError(), TargetUnavailable),
        (ServiceBusConnectionError(), TargetUnavailable),
        (TimeoutError(), TargetUnavailable),
        (ConnectionRefusedError(), TargetUnavailable),
    ],
)
def test_errors_of_the_sdk_are_translated(error: Exception, translated: type[BuswayError]) -> None:
    with pytest.raises(translated, match="west/orders") as caught:
        ask(error, lambda locks: locks.renew([bytes(16)], None, timeout_seconds=5))
    assert type(caught.value) is translated
