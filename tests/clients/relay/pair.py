"""Two relays in the event loop of the test, and what applications open there."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self

from busway_clients import ConnectionEnded, RoleState
from busway_clients.relay import RelayClient, RelayEndpoint, RelayListener
from tests.clients.relay.local_relay import LocalRelay

KEYS = {
    "listen-and-send": ("c2VjcmV0IG9mIGJvdGg=", {"Listen", "Send"}),
    "listen-only": ("c2VjcmV0IG9mIGxpc3Rlbg==", {"Listen"}),
}
WEST_ACTIVE = RoleState("west", ("east",))
EAST_ACTIVE = RoleState("east", ("west",))
PATHS = {"west": "primary-service", "east": "secondary-service"}


async def silence(_: Any) -> Any:
    """Never answer a request."""
    await asyncio.Event().wait()


class Pair:
    """Relays, a listener that echoes, and clients; all of it ends with the context."""

    def __init__(self) -> None:
        self.west = LocalRelay(keys=KEYS, paths={"primary-service"})
        self.east = LocalRelay(keys=KEYS, paths={"secondary-service"})
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

    def endpoint(self, name: str, key: str = "listen-and-send") -> Any:
        relay = {"west": self.west, "east": self.east}[name]
        return RelayEndpoint.from_connection_string(relay.connection_string(PATHS[name], key))

    def endpoints(self, *names: Any) -> dict[Any, Any]:
        return {name: self.endpoint(name) for name in names or PATHS}

    def listener(self, serve: Any, endpoints: Any = None, **options: Any) -> RelayListener:
        return RelayListener(endpoints or self.endpoints(), serve, **{"pauses": (0.0, 0.05), **options})

    async def listening(self, endpoints: Any = None, **options: Any) -> Any:
        """Return a listener, and the connections that it has accepted, which the test serves."""
        accepted: asyncio.Queue[Any] = asyncio.Queue()

        async def accept(offer: Any) -> None:
            connection = await offer.accept()
            accepted.put_nowait(connection)
            with suppress(ConnectionEnded):
                await self._ended(connection)

        listener = await self._stack.enter_async_context(self.listener(accept, endpoints, **options))
        return listener, accepted

    async def echoing(self, endpoints: Any = None, decide: Any = None, **options: Any) -> Any:
        """Return a listener whose connections send everything back, with the endpoint's name before it."""

        async def serve(offer: Any) -> None:
            if decide is not None:
                await decide(offer)
            if not offer.is_answered:
                self.served.append(offer.endpoint)
                await _echo(await offer.accept())

        return await self._stack.enter_async_context(self.listener(serve, endpoints, **options))

    async def client(self, endpoints: Any = None, **options: Any) -> Any:
        named = endpoints or self.endpoints()
        client = await self._stack.enter_async_context(RelayClient(named, **options))
        await client.activate(next(iter(named)))
        return client

    async def _ended(self, connection: Any) -> None:
        await until(lambda: connection.end is not None)


async def _echo(connection: Any) -> None:
    with suppress(ConnectionEnded):
        async with connection:
            async for message in connection:
                name = connection.endpoint
                await connection.send(
                    f"{name}: {message}" if isinstance(message, str) else name.encode() + b": " + message
                )


async def until(condition: Any) -> None:
    """Return once a condition holds; the test's own limit is the bound."""
    while not condition():  # noqa: ASYNC110 - it holds for what other parts do, which set no event
        await asyncio.sleep(0.001)


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return an asynchronous test of a Pair as a test for pytest, bounded so that none hangs."""

    @functools.wraps(test)
    def bounded(**arguments: Any) -> None:
        async def in_pair() -> None:
            async with asyncio.timeout(30), Pair() as pair:
                await test(pair, **arguments)

        asyncio.run(in_pair())

    parameters = [*inspect.signature(test).parameters.values()][1:]
    bounded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return bounded
