"""
The gRPC service `Settlement`, which the host serves to its worker at the address in the worker's arguments.

Its messages and calls are made by protobuf's own runtime when this module is imported. settlement.proto has no package,
so neither has the service.

An unknown lock token or session is FAILED_PRECONDITION; an exception of .NET is UNKNOWN with the exception's text.

Source: settlement.proto and SettlementService (Azure/azure-sdk-for-net, commit 7cb7177bdc4c, sdk/servicebus/
Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Grpc).
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, empty_pb2, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from host.settlement.actions import Actions, ActionsCache
from host.settlement.failure import Failure, check_length
from host.settlement.outcome import COMPLETED, abandoned, dead_lettered, deferred
from shared.amqp.values import Malformed
from shared.ends.azure_amqp.raw_link import Delivery

SERVICE = "Settlement"

_TOKEN, _SESSION, _PROPERTIES = "locktoken", "sessionId", "propertiesToModify"
_STRING, _BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_TEXT, _TIME = ".google.protobuf.StringValue", ".google.protobuf.Timestamp"

# The fields in the order of their numbers, from 1.
_FIELDS: dict[str, dict[str, int | str]] = {
    "CompleteRequest": {_TOKEN: _STRING},
    "AbandonRequest": {_TOKEN: _STRING, _PROPERTIES: _BYTES},
    "DeadletterRequest": {
        _TOKEN: _STRING,
        _PROPERTIES: _BYTES,
        "deadletterReason": _TEXT,
        "deadletterErrorDescription": _TEXT,
    },
    "DeferRequest": {_TOKEN: _STRING, _PROPERTIES: _BYTES},
    "RenewMessageLockRequest": {_TOKEN: _STRING},
    "GetSessionStateRequest": {_SESSION: _STRING},
    "SetSessionStateRequest": {_SESSION: _STRING, "sessionState": _BYTES},
    "GetSessionStateResponse": {"sessionState": _BYTES},
    "ReleaseSessionRequest": {_SESSION: _STRING},
    "RenewSessionLockRequest": {_SESSION: _STRING},
    "RenewSessionLockResponse": {"lockedUntil": _TIME},
}


def _pool() -> DescriptorPool:
    # A pool of its own: another package of the app may have put the same names into the default one.
    pool = DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="settlement.proto", syntax="proto3")
    for known in (empty_pb2, wrappers_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            described = message.field.add(name=field, number=number, label="LABEL_OPTIONAL")
            if isinstance(kind, str):
                described.type, described.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, kind
            else:
                described.type = kind  # type: ignore[assignment] # the stubs know the names of an enum only
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def message(name: str) -> Any:
    """Return the class of a message of the contract."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


EMPTY: Any = message("google.protobuf.Empty")

CALLS: dict[str, tuple[Any, Any]] = {
    name.removesuffix("Request"): (
        message(name),
        message(answer) if (answer := name.replace("Request", "Response")) in _FIELDS else EMPTY,
    )
    for name in _FIELDS
    if name.endswith("Request")
}
"""The classes of request and response by the name of the call."""


_HOST = "127.0.0.1"
_OPTIONS = (("grpc.max_send_message_length", 2**31 - 1), ("grpc.max_receive_message_length", 2**31 - 1))


class CallFailed(Exception):
    """A call without an answer: the name of its status and the details."""

    def __init__(self, status: str, details: str) -> None:
        """Keep both."""
        super().__init__(f"{status}: {details}")
        self.status = status
        self.details = details


class SettlementCalls:
    """The calls of the service, whatever carries them."""

    def __init__(self, cache: ActionsCache) -> None:
        """Act on the messages and sessions in *cache*."""
        self._cache = cache

    async def answer(self, name: str, encoded: bytes) -> bytes:
        """Return the encoded answer to the encoded request of the call *name*; raises CallFailed."""
        kind, answer_kind = CALLS[name]
        request, answer = kind.FromString(encoded), answer_kind()
        try:
            found = await (self._on_message if name in _MESSAGE_CALLS else self._on_session)(name, request)
        except (Failure, Malformed) as error:
            raise CallFailed("UNKNOWN", str(error)) from error
        if name == "GetSessionState":
            answer.sessionState = found
        elif name == "RenewSessionLock":
            answer.lockedUntil.FromDatetime(found)
        return bytes(answer.SerializeToString())

    async def _on_message(self, name: str, request: Any) -> object:
        found = self._cache.of_message(request.locktoken)
        if found is None:
            raise CallFailed("FAILED_PRECONDITION", f"LockToken {request.locktoken} not found.")
        return await _MESSAGE_CALLS[name](request, *found)

    async def _on_session(self, name: str, request: Any) -> object:
        actions = self._cache.of_session(request.sessionId)
        if actions is None:
            raise CallFailed("FAILED_PRECONDITION", f"SessionId {request.sessionId} not found.")
        return await _SESSION_CALLS[name](request, actions)


class SettlementService:
    """The running service; it ends with `stop`."""

    def __init__(self, cache: ActionsCache) -> None:
        """Act on the messages and sessions in *cache*."""
        self._calls = SettlementCalls(cache)
        self._server = grpc.aio.server(options=_OPTIONS)
        names = (*_MESSAGE_CALLS, *_SESSION_CALLS)
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(partial(self._on_call, name)) for name in names
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self) -> int:
        """Serve at a port of this machine, and return it."""
        port: int = self._server.add_insecure_port(f"{_HOST}:0")
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stop at once."""
        await self._server.stop(None)

    async def _on_call(self, name: str, request: bytes, context: Any) -> bytes:
        try:
            return await self._calls.answer(name, request)
        except CallFailed as error:
            await context.abort(grpc.StatusCode[error.status], error.details)
            raise  # not reached: `abort` raises


async def _dead_letter(request: Any, delivery: Delivery, actions: Actions) -> None:
    reason, description = _text(request, "deadletterReason"), _text(request, "deadletterErrorDescription")
    check_length("deadLetterReason", reason)
    check_length("deadLetterErrorDescription", description)
    await actions.settle(delivery, dead_lettered(reason, description, request.propertiesToModify))


def _text(request: Any, field: str) -> str | None:
    return str(getattr(request, field).value) if request.HasField(field) else None


async def _release_session(_: Any, actions: Actions) -> None:
    actions.releases_session = True


_MESSAGE_CALLS: dict[str, Callable[[Any, Delivery, Actions], Awaitable[object]]] = {
    "Complete": lambda _, delivery, actions: actions.settle(delivery, COMPLETED),
    "Abandon": lambda asked, delivery, actions: actions.settle(delivery, abandoned(asked.propertiesToModify)),
    "Defer": lambda asked, delivery, actions: actions.settle(delivery, deferred(asked.propertiesToModify)),
    "Deadletter": _dead_letter,
    "RenewMessageLock": lambda _, delivery, actions: actions.receiver.renew_message_lock(delivery),
}
_SESSION_CALLS: dict[str, Callable[[Any, Actions], Awaitable[object]]] = {
    "GetSessionState": lambda _, actions: actions.receiver.session_state(),
    "SetSessionState": lambda asked, actions: actions.receiver.set_session_state(asked.sessionState),
    "ReleaseSession": _release_session,
    "RenewSessionLock": lambda _, actions: actions.receiver.renew_session_lock(),
}
