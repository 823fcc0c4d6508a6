"""Two relays in the event loop of the test, and what applications open there."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self

from busway_clients import ConnectionEnded
from busway_clients.relay import RelayClient, RelayEndpoint, RelayListener
from tests.clients.relay.local_relay import LocalRelay
from tests.clients.relay.manual_time import ManualTime

KEYS = {
    "listen-and-send": ("c2VjcmV0IG9mIGJvdGg=", {"Listen", "Send"}),
    "listen-only": ("c2VjcmV0IG9mIGxpc3Rlbg==", {"Listen"}),
}
PATHS = {"west": "primary-service", "east": "secondary-service"}


class WestFirst(random.Random):
    """Chance that leaves an order as it is."""

    def shuffle(self, x: Any) -> None:
        pass

    def uniform(self, a: Any, b: Any) -> Any:
        return (a + b) / 2


class Pair:
    """Relays, a listener that echoes, and clients; all of it ends with the context."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.west = LocalRelay(self.time, keys=KEYS, paths={"primary-service"})
        self.east = LocalRelay(self.time, keys=KEYS, paths={"secondary-service"})
        self.served: list[Any] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.west)
        await self._stack.enter_async_context(self.east)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    def endpoint(self, name: str, key: str = "listen-and-send", **options: Any) -> Any:
        relay = {"west": self.west, "east": self.east}[name]
        return RelayEndpoint.from_connection_string(relay.connection_string(PATHS[name], key), **options)

    def endpoints(self, *names: Any) -> dict[Any, Any]:
        return {name: self.endpoint(name) for name in names or PATHS}

    def listener(self, endpoints: Any = None, **options: Any) -> RelayListener:
        return RelayListener(endpoints or self.endpoints(), clock=self.time, jitter=WestFirst(), **options)

    async def listening(self, endpoints: Any = None, **options: Any) -> Any:
        return await self._stack.enter_async_context(self.listener(endpoints, **options))

    async def echoing(self, endpoints: Any = None, **options: Any) -> Any:
        """Return a listener whose connections send everything back, with the endpoint's name before it."""
        listener = await self.listening(endpoints, **options)
        task = asyncio.ensure_future(self._echo_all(listener))
        self._stack.push_async_callback(_stopped, task)
        return listener

    async def client(self, endpoints: Any = None, **options: Any) -> Any:
        client = RelayClient(endpoints or self.endpoints(), clock=self.time, choice=WestFirst(), **options)
        return await self._stack.enter_async_context(client)

    async def _echo_all(self, listener: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for connection in listener:
                self.served.append(connection.endpoint)
                tasks.create_task(_echo(connection))


async def _echo(connection: Any) -> None:
    with suppress(ConnectionEnded):
        await _answer_all(connection)


async def _answer_all(connection: Any) -> None:
    async with connection:
        async for message in connection:
            name = connection.endpoint
            await connection.send(f"{name}: {message}" if isinstance(message, str) else name.encode() + b": " + message)


async def _stopped(task: Any) -> None:
    task.cancel()
    await asyncio.wait({task})
