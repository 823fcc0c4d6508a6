"""A client of a service that listens at several relays: one is active, the others are backups."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from busway_clients.aio.shared_roles import REFRESH, SharedRoles
from busway_clients.errors import ConnectionEnded, RelayError, RelayFailed, RelayUnavailable, WrongUse
from busway_clients.relay.clock import Clock, SystemClock, ended, is_done_within
from busway_clients.relay.connection import RelayConnection
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.frames import Frames
from busway_clients.relay.listener import MAX_MESSAGE_BYTES
from busway_clients.relay.opening import Answered, Opening, refusal
from busway_clients.senders.roles import RoleState, RoleStore

Result = TypeVar("Result")
_GOING_AWAY = 1001
_FAILED = 1011


class _Request(NamedTuple):
    suffix: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    protocols: tuple[str, ...]


class RelayClient:
    """
    Connects to the active endpoint, and to a backup when the active one is unavailable.

    The two swap roles if the backup accepts. If none accepts, roles stay as they are and RelayFailed has each error.
    A refusal (an invalid token, a rejection by the listener) does not switch. Connections stay where they were opened.
    """

    def __init__(
        self,
        endpoints: Mapping[str, RelayEndpoint],
        *,
        roles: RoleStore | None = None,
        refresh: timedelta = REFRESH,
        timeout: timedelta = timedelta(seconds=30),
        keep_alive: timedelta = timedelta(seconds=30),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        clock: Clock | None = None,
        choice: random.Random | None = None,
    ) -> None:
        """
        Use *endpoints*, by any names; the first active one is picked at random.

        *roles*: where clients share which endpoint is active, by default not at all; it is read every *refresh*.
        *timeout* applies to each endpoint; *keep_alive* is that of RelayListener.
        """
        if not endpoints:
            raise WrongUse("endpoints of a relay client: got none, expected an active endpoint and its backups")
        self._endpoints = dict(endpoints)
        self._clock = clock or SystemClock()
        order = [*endpoints]
        (choice or random.Random()).shuffle(order)
        self._agreement = SharedRoles(order, roles, refresh, monotonic=self._clock.monotonic)
        self._turn = asyncio.Lock()
        self._timeout, self._silence = timeout.total_seconds(), keep_alive.total_seconds()
        self._opening = Opening(self._clock, max_message_bytes)
        self._connections: set[RelayConnection] = set()

    @property
    def state(self) -> RoleState:
        """Return the roles as they were last seen."""
        return self._agreement.state

    async def connect(
        self,
        suffix: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> RelayConnection:
        """
        Return a connection to a listener, which sees all arguments before it accepts.

        Raises RelayFailed, which has the error of each endpoint that was tried; WrongUse.
        """
        wanted = _Request(suffix, query or {}, headers or {}, tuple(protocols))

        async def use(connection: RelayConnection) -> RelayConnection:
            return connection

        return await self._first(wanted, use)

    async def request(
        self,
        message: str | bytes,
        suffix: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> str | bytes:
        """
        Send one message over a new connection and return the first message that comes back.

        A connection that ends without an answer counts as unavailable, and the request is sent again to the backup: the
        service may see it twice. Raises as `connect`.
        """
        wanted = _Request(suffix, query or {}, headers or {}, tuple(protocols))

        async def use(connection: RelayConnection) -> str | bytes:
            async with connection:
                return await self._answer(connection, message)

        return await self._first(wanted, use)

    async def activate(self, name: str) -> None:
        """Make *name* the active endpoint, for example after an outage; raises WrongUse if it is unknown."""
        async with self._turn:
            await self._agreement.make_active(name)

    async def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        async with self._turn:
            await self._agreement.look()
            return self._agreement.state

    async def close(self) -> None:
        """Close the client and, with code 1001, its open connections."""
        await asyncio.gather(
            *[connection.close(_GOING_AWAY, "the client is closing") for connection in [*self._connections]]
        )
        await self._opening.close()

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def _first(self, wanted: _Request, use: Callable[[RelayConnection], Awaitable[Result]]) -> Result:
        async with self._turn:
            await self._agreement.refresh()
        roles = self._agreement.roles
        errors: dict[str, RelayError] = {}
        for name in roles.order:
            try:
                connection = await self._connection(name, wanted)
                try:
                    result = await use(connection)
                    if name != roles.active:
                        await self._swap(name)
                except BaseException:
                    await connection.close(_FAILED)
                    raise
            except RelayError as error:
                errors[name] = error
                if len(errors) == 1 and not isinstance(error, RelayUnavailable):
                    break
            else:
                return result
        text = "; ".join(str(error) for error in errors.values())
        raise RelayFailed(f"connecting: {text}; expected a listener at the active endpoint or a backup", errors)

    async def _swap(self, name: str) -> None:
        async with self._turn:
            await self._agreement.activate(name)

    async def _connection(self, name: str, wanted: _Request) -> RelayConnection:
        endpoint = self._endpoints[name]
        token, _ = await self._opening.token(endpoint)
        url = endpoint.connect_url(token, wanted.suffix, wanted.query)
        try:
            socket = await self._opening.open(
                endpoint, url, self._timeout, token=token, headers=wanted.headers, protocols=wanted.protocols
            )
        except Answered as answer:
            raise refusal(endpoint, answer, "sender") from None
        frames = Frames(socket, endpoint, self._clock, self._silence, self._timeout)
        connection = RelayConnection(name, frames, socket.protocol, on_end=self._connections.discard)
        self._connections.add(connection)
        return connection

    async def _answer(self, connection: RelayConnection, message: str | bytes) -> str | bytes:
        place = self._endpoints[connection.endpoint].place
        try:
            await connection.send(message)
            answering = asyncio.ensure_future(connection.receive())
            try:
                if await is_done_within(self._clock, self._timeout, answering):
                    return answering.result()
            finally:
                await ended(answering)
        except ConnectionEnded as error:
            raise RelayUnavailable(f"{place}: ended the connection with {error.code}, expected an answer") from error
        raise RelayUnavailable(f"{place}: no answer within {self._timeout:g} s, expected one to the request")
