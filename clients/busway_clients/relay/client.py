"""A client of a service that listens at several relays: one is active, the others are backups."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from busway_clients.aio.role_client import REFRESH, RoleClient
from busway_clients.errors import ConnectionEnded, RelayError, RelayFailed, RelayUnavailable, WrongUse
from busway_clients.relay.connection import PATIENCE, RelayConnection, Sockets
from busway_clients.relay.endpoint import RelayEndpoint

Result = TypeVar("Result")


class RelayClient(RoleClient):
    """
    Connects to the active endpoint, and to a backup when the active one is unavailable.

    The two swap roles if the backup accepts. If none accepts, roles stay as they are and RelayFailed has each error.
    A refusal (an invalid token, a rejection by the listener) does not switch. Connections stay where they were opened.
    """

    def __init__(
        self,
        endpoints: Mapping[str, RelayEndpoint],
        *,
        timeout: timedelta = PATIENCE,
        keep_alive: timedelta = PATIENCE,
    ) -> None:
        """
        Use *endpoints*, by any names; the first active one is picked at random.

        *timeout* applies to each endpoint; *keep_alive* is that of RelayListener.
        """
        if not endpoints:
            raise WrongUse("endpoints of a relay client: got none, expected an active endpoint and its backups")
        self._endpoints = dict(endpoints)
        super().__init__(random.sample([*endpoints], len(endpoints)), None, REFRESH)
        self._timeout = timeout.total_seconds()
        self._sockets = Sockets(keep_alive, timeout)

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
        return await self._first(lambda name: self._connect(name, suffix, query, headers, protocols))

    async def request(
        self, message: str | bytes, suffix: str = "", *, query: Mapping[str, str] | None = None
    ) -> str | bytes:
        """
        Send one message over a new connection and return the first message that comes back.

        A connection that ends without an answer counts as unavailable, and the request is sent again to the backup: the
        service may see it twice. Raises as `connect`.
        """

        async def ask(name: str) -> str | bytes:
            async with await self._connect(name, suffix, query) as connection:
                try:
                    async with asyncio.timeout(self._timeout):
                        await connection.send(message)
                        return await connection.receive()
                except (TimeoutError, ConnectionEnded) as error:
                    seen = str(error) or f"{self._endpoints[name].place}: no answer within {self._timeout:g} s"
                    raise RelayUnavailable(f"{seen}, expected an answer to the request") from error

        return await self._first(ask)

    async def close(self) -> None:
        """Close the client and, with code 1001, its open connections."""
        await self._sockets.close("the client is closing")

    async def _first(self, use: Callable[[str], Awaitable[Result]]) -> Result:
        """Return the result of the first endpoint that works, and make it the active one."""
        roles = self._roles
        errors: dict[str, RelayError] = {}
        for name in roles.order:
            try:
                result = await use(name)
            except RelayError as error:
                errors[name] = error
                if name == roles.active and not isinstance(error, RelayUnavailable):
                    break
                continue
            if name != roles.active:
                # In memory: nothing is waited for, so that a cancelled caller loses no connection here.
                await self._swap(name)
            return result
        text = "; ".join(str(error) for error in errors.values())
        raise RelayFailed(f"connecting: {text}; expected a listener at the active endpoint or a backup", errors)

    async def _connect(
        self,
        name: str,
        suffix: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> RelayConnection:
        endpoint = self._endpoints[name]
        url = endpoint.url("connect", await endpoint.token(), suffix, query or {})
        return await self._sockets.open(name, endpoint, url, "sender", headers=headers, protocols=protocols)
