"""The client of the host's settlement service, against a server with protobuf's own encoding."""

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.settlement import HostSettlement
from host.settlement.service import CALLS, SERVICE
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
LOST = "Azure.Messaging.ServiceBus.ServiceBusException: {} ({}). For troubleshooting information, see https://aka.ms/x."

type Answer = Callable[[str, Any], Any]


class Server:
    """A settlement service that keeps the requests and answers as a test says."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.requests: list[tuple[str, Any]] = []
        self._answer = answer or (lambda name, _: CALLS[name][1]())

    async def serve(self, ask: Callable[[HostSettlement], Awaitable[object]]) -> object:
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(name), request.FromString, lambda each: each.SerializeToString()
            )
            for name, (request, _) in CALLS.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        settlement = HostSettlement(["--host", "127.0.0.1", "--port", str(port), "--workerId", "w"])
        try:
            return await ask(settlement)
        finally:
            await settlement.close()
            await server.stop(None)

    def _handler(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(request: Any, context: Any) -> Any:
            self.requests.append((name, request))
            answer = self._answer(name, request)
            return await context.abort(*answer) if isinstance(answer, tuple) else answer

        return handle


def asked(ask: Callable[[HostSettlement], Awaitable[object]], answer: Answer | None = None) -> tuple[object, Any]:
    server = Server(answer)
    result = asyncio.run(server.serve(ask))
    ((name, request),) = server.requests
    return result, (name, request)


def test_a_message_is_named_by_its_token_as_dotnet_writes_it() -> None:
    for method in ("renew", "complete", "abandon"):
        _, (name, request) = asked(
            lambda host, method=method: getattr(host, method)(TOKEN.bytes_le, timeout_seconds=5)  # type: ignore[misc]
        )
        assert name == {"renew": "RenewMessageLock"}.get(method, method.capitalize())
        assert request.locktoken == "00112233-4455-6677-8899-aabbccddeeff"


@given(reason=st.text(), description=st.text(alphabet=st.sampled_from("aé€𝄞"), max_size=20))
def test_texts_of_any_length_and_script_arrive(reason: str, description: str) -> None:
    sent: list[tuple[str, bytes]] = []

    class Recording(HostSettlement):
        async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
            assert timeout_seconds == 5
            sent.append((method, request))
            return b""

    long = description * 1_000
    asyncio.run(Recording([]).dead_letter(TOKEN.bytes_le, reason, long, timeout_seconds=5))
    ((method, content),) = sent
    request = CALLS["Deadletter"][0].FromString(content)
    assert method == "Deadletter"
    assert request.deadletterReason.value == reason.encode("utf-8", "replace").decode()
    assert long.startswith(request.deadletterErrorDescription.value)
    # .NET refuses more than 4,096 units of UTF-16.
    assert len(request.deadletterErrorDescription.value.encode("utf-16-le")) in range(
        min(8190, len(long.encode("utf-16-le"))), 8193
    )


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001 - a draw
def test_the_new_end_of_a_session_is_read_as_protobuf_writes_it(end: datetime) -> None:
    answer = CALLS["RenewSessionLock"][1]()
    answer.lockedUntil.FromDatetime(end)

    class Answering(HostSettlement):
        async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:  # noqa: ARG002
            assert CALLS["RenewSessionLock"][0].FromString(request).sessionId == "sö"
            return bytes(answer.SerializeToString())

    with Answering([]).hold("sö") as session:
        milliseconds = asyncio.run(session.renew(timeout_seconds=5))
    # A time in seconds would be rounded.
    assert milliseconds == (end - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # noqa: DTZ001 - likewise


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("UNKNOWN", LOST.format("The lock supplied is invalid.", "MessageLockLost"), LockLost),
        ("UNKNOWN", LOST.format("The session lock has expired on the MessageSession.", "SessionLockLost"), LockLost),
        ("UNKNOWN", LOST.format("50009", "ServiceBusy"), TargetUnavailable),
        ("UNKNOWN", LOST.format("put (SessionLockLost) away", "ServiceTimeout"), TargetUnavailable),
        ("UNKNOWN", "System.UnauthorizedAccessException: Put token failed.", TargetRefused),
        ("UNKNOWN", "System.InvalidOperationException: Messages cannot be locked", TargetRefused),
        ("UNKNOWN", "System.ObjectDisposedException: secret", TargetUnavailable),
        ("FAILED_PRECONDITION", "LockToken 00112233 not found.", TargetRefused),
        ("UNIMPLEMENTED", "Method not found!", TargetRefused),
        ("RESOURCE_EXHAUSTED", "", TargetUnavailable),
    ],
)
def test_each_answer_has_one_remedy(code: str, details: str, expected: type[BuswayError]) -> None:
    status = getattr(grpc.StatusCode, code)
    with pytest.raises(expected) as caught:
        asked(lambda host: host.renew(TOKEN.bytes_le, timeout_seconds=5), lambda *_: (status, details))
    assert type(caught.value) is expected
    assert "secret" not in str(caught.value)


def test_a_host_that_does_not_answer_is_unavailable_and_one_without_address_refuses() -> None:
    with socket.socket() as unanswered:
        unanswered.bind(("127.0.0.1", 0))
        silent = HostSettlement(["--host=127.0.0.1", f"--port={unanswered.getsockname()[1]}"])
        with pytest.raises(TargetUnavailable):
            asyncio.run(silent.complete(TOKEN.bytes_le, timeout_seconds=0.5))
    for arguments in ([], ["--host", "127.0.0.1"], ["orders.py", "-x"]):
        with pytest.raises(TargetRefused, match="no --host and --port"):
            asyncio.run(HostSettlement(arguments).complete(TOKEN.bytes_le, timeout_seconds=5))


def test_a_session_of_two_functions_is_renewed_by_neither_until_both_have_ended() -> None:
    """The host finds a session by its id alone, and forgets it when the first of two invocations ends."""
    renewals: list[str] = []

    class Renewing(HostSettlement):
        async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:  # noqa: ARG002
            renewals.append(method)
            return b""

    async def scenario() -> None:
        host = Renewing([])
        with host.hold("s") as first:
            await first.renew(timeout_seconds=5)
            with host.hold("s") as second, host.hold("t") as other:
                for session in (first, second):
                    with pytest.raises(TargetRefused, match="have sessions of one id"):
                        await session.renew(timeout_seconds=5)
                await other.renew(timeout_seconds=5)
            with pytest.raises(TargetRefused), host.hold("s") as third:
                await third.renew(timeout_seconds=5)
            with pytest.raises(TargetRefused):
                await first.release(timeout_seconds=5)
        with host.hold("s") as again:
            await again.renew(timeout_seconds=5)

    asyncio.run(scenario())
    assert renewals == ["RenewSessionLock"] * 3
