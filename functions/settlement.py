"""
The settlement service of the host, as `shared.protocols.Settlement`.

The host's Service Bus extension serves gRPC on the endpoint of the worker. It settles and renews with the receiver that
holds the messages, so that the receiver's link and session stay alive. Nothing is opened before the first call:
grpcio takes 34 MB and 0.2 s, and a task whose target accepts needs none of it.

The requests have at most four fields and are encoded here, because the protobuf package that the app has installed is
a second copy beside the worker's own.

Sources: settlement.proto and SettlementService.cs (Azure/azure-sdk-for-net, commit 7cb7177); docs/decisions/0091.
"""

import argparse
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

if TYPE_CHECKING:
    import grpc.aio

# Of a dead-letter reason and description, each, in UTF-16: .NET refuses longer ones.
LONGEST_TEXT = 4096 * 2
_TEXT = 2
"""The wire type of a field with a length: texts, bytes, messages."""
_MORE = 0x80
"""The bit of a byte of a varint that others follow."""

# ServiceBusFailureReason, which ServiceBusException puts behind its message.
_REASON = re.compile(r"\(([A-Z][A-Za-z]+)\)\. For troubleshooting")
_LOST = {"MessageLockLost", "SessionLockLost"}
_REFUSED = {"MessagingEntityNotFound", "MessagingEntityDisabled", "MessageNotFound"}
_REFUSED_TYPES = ("System.InvalidOperationException", "System.UnauthorizedAccessException", "System.ArgumentException")


class HostSettlement:
    """The settlement service of the host that started this worker process."""

    def __init__(self, arguments: Sequence[str] | None = None, *, has_twins: bool = False) -> None:
        """
        Use the endpoint in *arguments*, those of the process by default.

        With *has_twins* the host has other worker processes with the same functions.
        """
        self._arguments = arguments
        self._has_twins = has_twins
        self._channel: grpc.aio.Channel | None = None
        self._sessions: dict[str, list[HostSession]] = {}

    @contextmanager
    def hold(self, session_id: str, locked_until: int | None = None) -> "Iterator[HostSession]":
        """
        Return a context for as long as an invocation has messages of a session.

        The host finds a session by its id alone. Two functions may have sessions of one id: it keeps the first that it
        saw, and forgets it when either of them has ended. So neither can be renewed for certain.
        """
        session = HostSession(self, session_id, locked_until)
        session.is_ambiguous = self._has_twins
        holders = self._sessions.setdefault(session_id, [])
        holders.append(session)
        if len(holders) > 1:
            for holder in holders:
                holder.is_ambiguous = True
        try:
            yield session
        finally:
            holders.remove(session)
            if not holders:
                del self._sessions[session_id]

    async def renew(self, token: bytes, *, timeout_seconds: float) -> None:
        """Renew the lock of a message; as `Settlement`, like the other methods."""
        await self.call("RenewMessageLock", _named(token), timeout_seconds)

    async def complete(self, token: bytes, *, timeout_seconds: float) -> None:
        """Complete a message."""
        await self.call("Complete", _named(token), timeout_seconds)

    async def abandon(self, token: bytes, *, timeout_seconds: float) -> None:
        """Abandon a message."""
        await self.call("Abandon", _named(token), timeout_seconds)

    async def dead_letter(self, token: bytes, reason: str, description: str, *, timeout_seconds: float) -> None:
        """Dead-letter a message; *reason* and *description* are cut to what the service takes, or left out if empty."""
        texts = {3: reason, 4: description}
        fields = (_field(number, _field(1, _cut(text).encode())) for number, text in texts.items() if text)
        await self.call("Deadletter", _named(token) + b"".join(fields), timeout_seconds)

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Return the encoded answer to an encoded *request*."""
        try:
            # Import lazily: see above.
            import grpc.aio  # noqa: PLC0415
        except ImportError as error:
            raise TargetRefused(f"grpcio cannot be imported, {error.name}; install requirements.txt") from error
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(*_endpoint(self._arguments))
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/Settlement/{method}")
        try:
            answer: bytes = await ask(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise _translated(method, error.code().name, error.details() or "") from error
        return answer

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()


class HostSession:
    """A session that an invocation holds; see `shared.protocols.HeldSession`."""

    def __init__(self, settlement: HostSettlement, session_id: str, locked_until: int | None) -> None:
        """Ask *settlement*; *locked_until* is the end of its lock, in milliseconds since 1970 UTC."""
        self.locked_until = locked_until
        self.is_ambiguous = False
        self._settlement = settlement
        self._request = _field(1, session_id.encode())

    async def renew(self, *, timeout_seconds: float) -> int:
        """Renew the lock of the session; return its new end."""
        self._check()
        answer = await self._settlement.call("RenewSessionLock", self._request, timeout_seconds)
        self._check()  # another function may have come meanwhile
        return _milliseconds(_fields(_fields(answer).get(1, b"")))

    async def release(self, *, timeout_seconds: float) -> None:
        """Let the host close the session once the invocation has ended."""
        self._check()
        await self._settlement.call("ReleaseSession", self._request, timeout_seconds)

    def _check(self) -> None:
        if self.is_ambiguous:
            raise TargetRefused(
                "two functions or worker processes of this app have sessions of one id, and the host renews one of"
                " them; deploy the functions as two apps if batches are to wait for longer than a lock"
            )


def _endpoint(arguments: Sequence[str] | None) -> tuple[str, list[tuple[str, int]]]:
    """Return address and options of the channel, from the arguments that the host gives to a worker."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--host")
    parser.add_argument("--port")
    parser.add_argument("--functions-grpc-max-message-length", type=int, default=4 * 2**20)
    given, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    if not given.host or not given.port:
        raise TargetRefused("the host has given this process no --host and --port: it settles whole batches only")
    size = given.functions_grpc_max_message_length
    return f"{given.host}:{given.port}", [
        ("grpc.max_receive_message_length", size),
        # The host is on this machine; a proxy in the environment is not for it.
        ("grpc.enable_http_proxy", 0),
    ]


def _translated(method: str, code: str, details: str) -> BuswayError:
    """Return the error for an answer of the service; its text may name entities, so only the reason is kept."""
    found = _REASON.search(details)
    reason = found[1] if found else details.split(":", 1)[0] if details.startswith("System.") else code
    text = f"the host answers {method} with {reason}"
    if reason in _LOST:
        return LockLost(text)
    is_refused = reason in _REFUSED or reason.startswith(_REFUSED_TYPES)
    if is_refused or code in {"FAILED_PRECONDITION", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"}:
        return TargetRefused(text)
    return TargetUnavailable(text)


def _cut(text: str) -> str:
    return text.encode("utf-16-le", "replace")[:LONGEST_TEXT].decode("utf-16-le", "ignore")


def _named(token: bytes) -> bytes:
    """Return the request that names a message by its lock token, as .NET writes a Guid."""
    return _field(1, str(uuid.UUID(bytes_le=token)).encode())


# Protocol Buffers: a field is its number and wire type in a varint, then a varint, or a length and bytes.
# Source: protobuf.dev, "Encoding".


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | _TEXT]) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number % _MORE | _MORE)
        number //= _MORE
    return bytes([*encoded, number])


def _fields(content: bytes) -> dict[int, bytes]:
    """Return the fields by their number; a varint keeps its bytes."""
    fields, position = {}, 0
    while position < len(content):
        tag, position = content[position], position + 1
        end = _varint_end(content, position)
        if tag & 7 == _TEXT:
            position, end = end, end + _number(content[position:end])
        fields[tag >> 3] = content[position:end]
        position = end
    return fields


def _varint_end(content: bytes, position: int) -> int:
    while content[position] >= _MORE:
        position += 1
    return position + 1


def _number(varint: bytes) -> int:
    return sum((byte % _MORE) * _MORE**place for place, byte in enumerate(varint))


def _milliseconds(timestamp: dict[int, bytes]) -> int:
    """Return a google.protobuf.Timestamp (seconds, nanoseconds) as milliseconds since 1970 UTC."""
    return _number(timestamp.get(1, b"")) * 1000 + _number(timestamp.get(2, b"")) // 1_000_000
