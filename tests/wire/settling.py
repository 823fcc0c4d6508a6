"""A listener of the local host in this process, its settlement service, and the client of grpc itself."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self, cast

import grpc
import grpc.aio
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.core.session_store import SessionStore
from busway_broker.errors import Refusal
from busway_broker.thread import RunningBroker
from host.listener import Stopping
from host.platform import Losing
from host.protos import TypedData
from host.settings import ServiceBusOptions, Settings
from host.settlement.actions import ActionsCache
from host.settlement.service import CALLS, SettlementService
from host.triggers.service_bus_batch import ServiceBusBatchListener
from host.triggers.service_bus_listener import ServiceBusListener
from host.triggers.service_bus_single import ServiceBusSingleListener
from host.triggers.service_bus_source import ServiceBusSource
from host.worker import Attempt, Function, Invocation, Outputs
from shared.clock import SystemClock
from shared.message.arrival import Origin
from shared.message.message import Message

type Metadata = Mapping[str, TypedData]
type Act = Callable[["Held"], Awaitable[None]]


def send(broker: RunningBroker, queue: str, *bodies: str, session_id: str | None = None) -> None:
    """Send texts to a queue of the namespace `ns`."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("ns")) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body, session_id=session_id) for body in bodies])


def is_held(broker: RunningBroker, queue: str, session_id: str) -> bool:
    """Return whether a receiver has the lock of a session."""
    try:
        broker.inspect("ns", lambda each: cast("SessionStore", each.store(queue)).check_session(session_id))
    except Refusal:
        return False
    return True


class Refused(Exception):
    """An answer other than OK."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        super().__init__(error.details())


class Held:
    """What a running function holds, and its client of the service."""

    def __init__(self, client: "SettlementClient", data: TypedData, metadata: Metadata) -> None:
        self.call = client.call
        many = data.kind == "collection_model_binding_data"
        self._contents = [one.content for one in (data.data.model_binding_data if many else [data.data])]
        self._metadata = metadata

    @property
    def tokens(self) -> list[str]:
        return [str(uuid.UUID(bytes_le=content[:16])) for content in self._contents]

    @property
    def bodies(self) -> list[str]:
        return [content[-1:].decode() for content in self._contents]

    @property
    def session_id(self) -> str:
        return str(Message.received(self._contents[0][16:], Origin("ns", "s")).session_id)

    @property
    def session_locked_until(self) -> str:
        return str(json.loads(self._metadata["MessageSession"].data)["SessionLockedUntil"])


class SettlementClient:
    """Calls the service as the worker of an app may."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def call(self, name: str, **fields: Any) -> Any:
        request, answer = CALLS[name]
        method = self._channel.unary_unary(f"/Settlement/{name}", request.SerializeToString, answer.FromString)
        try:
            return await method(request(**fields))
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error

    async def close(self) -> None:
        await self._channel.close()


class _ActingWorker:
    """Runs the coroutine of a test as the function."""

    outputs: Outputs | None = None

    def __init__(self, act: Act, client: SettlementClient) -> None:
        self._act = act
        self._client = client

    async def invoke(self, attempt: Attempt) -> Invocation:
        try:
            await self._act(Held(self._client, attempt.data, attempt.trigger_metadata))
        except ValueError as error:
            return Invocation(str(error))
        return Invocation(None)


class RunningListeners:
    """The listeners of one host; a function of a test is a coroutine, which fails with a ValueError."""

    def __init__(self, broker: RunningBroker) -> None:
        self._settings = Settings({"SB": broker.connection_string("ns")})
        self._stopping = Stopping()
        self._cache = ActionsCache()
        self._listeners: list[ServiceBusListener] = []
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        service = SettlementService(self._cache)
        port = await service.start()
        self._closing.push_async_callback(service.stop)
        self.client = SettlementClient(port)
        self._closing.push_async_callback(self.client.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.stop()
        await self._closing.aclose()

    async def listen(
        self,
        queue: str,
        act: Act,
        *,
        sessions: bool = False,
        many: bool = True,
        options: ServiceBusOptions | None = None,
    ) -> None:
        trigger = {
            "type": "serviceBusTrigger",
            "name": "messages",
            "queueName": queue,
            "connection": "SB",
            "isSessionsEnabled": sessions,
            "cardinality": "MANY" if many else "ONE",
            "dataType": "BINARY",
        }
        function = Function(queue, queue, trigger, {}, None)
        listener = (ServiceBusBatchListener if many else ServiceBusSingleListener)(
            function,
            ServiceBusSource.of(function, self._settings),
            replace(options or ServiceBusOptions(), session_idle_timeout=timedelta(seconds=0.3)),
            _ActingWorker(act, self.client),
            SystemClock(),
            stopping=self._stopping,
            wire=False,
            losing=Losing(),
            cache=self._cache,
        )
        self._listeners.append(listener)
        task = asyncio.create_task(listener.run())
        self._closing.push_async_callback(lambda: task)
        await listener.is_listening.wait()
