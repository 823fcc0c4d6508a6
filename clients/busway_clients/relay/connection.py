"""The WebSockets of one listener or client, and what an answer of the relay means (Hybrid Connections protocol)."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from http import HTTPStatus
from typing import Self
from weakref import WeakSet

import aiohttp
from yarl import URL

from busway_clients.errors import ConnectionEnded, NotARelay, RelayError, RelayRefused, RelayUnavailable
from busway_clients.relay.endpoint import RelayEndpoint

PATIENCE = timedelta(seconds=30)
"""How long a relay may take for each answer, and how long a connection is silent before it is pinged."""
GOING_AWAY = 1001
FAILED = 1011
_NORMAL = 1000
_ABNORMAL = 1006
_NO_STATUS = 1005
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_MAX_REASON = 200
_CLOSE_SECONDS = 5.0
_FAILURES = (TimeoutError, aiohttp.ClientError, OSError, ValueError)
# Statuses of a busy or failing service; 408 and 504 also mean that no listener came to the rendezvous.
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class RelayConnection(AbstractAsyncContextManager["RelayConnection"]):
    """
    A connection that sends and receives messages, text as str and binary as bytes; *end* is how it has ended.

    One task at a time may receive. Iterating ends when the other side has closed with 1000 or 1001, and raises
    ConnectionEnded for any other end. Leaving its context closes it.
    """

    def __init__(self, endpoint: str, place: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Use a WebSocket that was opened at the endpoint that the application calls *endpoint*."""
        self.endpoint = endpoint
        self.protocol = socket.protocol
        self.end: ConnectionEnded | None = None
        self._place = place
        self._socket = socket
        self._next: asyncio.Task[aiohttp.WSMessage] | None = None

    async def send(self, message: str | bytes) -> None:
        """Send a message; raises ConnectionEnded. A message that was sent has not necessarily arrived."""
        if self.end is not None:
            raise self.end
        try:
            await (self._socket.send_str(message) if isinstance(message, str) else self._socket.send_bytes(message))
        except (aiohttp.ClientError, OSError) as error:
            raise self._ended(f"the connection broke ({type(error).__name__})", _ABNORMAL) from error

    async def receive(self) -> str | bytes:
        """Return the next message; raises ConnectionEnded. Cancelling it loses no message."""
        if self.end is not None:
            raise self.end
        # The task continues if the caller is cancelled: cancelling a read would break the connection.
        reading = self._next = self._next or asyncio.ensure_future(self._socket.receive())
        await asyncio.wait({reading})
        if reading.cancelled():
            raise self._ended("closed here", _NORMAL)
        frame = reading.result()
        self._next = None
        if frame.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            message: str | bytes = frame.data
            return message
        if frame.type is aiohttp.WSMsgType.CLOSE:
            code, reason = frame.data or _NO_STATUS, _printable(frame.extra)
            raise self._ended(f"closed by the other side with {code}" + (f" ({reason})" if reason else ""), code)
        # aiohttp reports 1000 if there was no close frame, and its own code for an invalid frame.
        code = (frame.type is aiohttp.WSMsgType.ERROR and self._socket.close_code) or _ABNORMAL
        raise self._ended(f"the connection broke ({code})", code)

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """Close the connection; a second call does nothing, and the relay closes the other side."""
        self._ended(f"closed here ({code})", code)
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
        await self._socket.close(code=code, message=reason.encode()[:123])

    def __aiter__(self) -> Self:
        """Return itself, for the messages."""
        return self

    async def __anext__(self) -> str | bytes:
        """Return the next message."""
        try:
            return await self.receive()
        except ConnectionEnded as error:
            if error.is_clean:
                raise StopAsyncIteration from None
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Close the connection, with code 1011 if the block failed."""
        await self.close(_NORMAL if kind is None else FAILED)

    def _ended(self, text: str, code: int) -> ConnectionEnded:
        self.end = self.end or ConnectionEnded(f"{self._place}: {text}", code)
        return self.end


class Sockets:
    """Opens the WebSockets of a listener or a client, and closes the connections that are left at its end."""

    def __init__(self, keep_alive: timedelta, patience: timedelta) -> None:
        """
        Ping after *keep_alive* without a frame, and wait half as long for the answer.

        *patience* limits each opening. The first WebSocket creates the session, in its event loop.
        """
        self._connections: WeakSet[RelayConnection] = WeakSet()
        self._heartbeat = keep_alive.total_seconds()
        self._patience = patience.total_seconds()
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self, reason: str) -> None:
        """Close the connections that are left, with code 1001, and the session; those that are opening fail."""
        self._is_closed = True
        await asyncio.gather(*[connection.close(GOING_AWAY, reason) for connection in [*self._connections]])
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def open(
        self,
        name: str,
        endpoint: RelayEndpoint,
        url: URL,
        role: str,
        *,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> RelayConnection:
        """Open a WebSocket as a `listener`, a `sender` or another role at the endpoint *name*; raises RelayError."""
        closed = RelayUnavailable(f"{endpoint.place}: the {role} was closed here")
        if self._is_closed:
            raise closed
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(),
                # Each WebSocket needs its own connection, and a listener may have many.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=[_accept_only_websockets],
            )
        try:
            async with asyncio.timeout(self._patience):
                socket = await self._session.ws_connect(
                    url,
                    headers=headers,
                    protocols=protocols,
                    heartbeat=self._heartbeat,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                    max_msg_size=_MAX_MESSAGE_BYTES,
                    proxy=endpoint.proxy,
                    ssl=endpoint.tls or True,
                )
        except Exception as error:
            # A session that is closed meanwhile raises anything.
            if not self._is_closed and not isinstance(error, _FAILURES):
                raise
            failure = closed if self._is_closed else _failure(endpoint.place, error, role, self._patience)
        else:
            connection = RelayConnection(name, endpoint.place, socket)
            if not self._is_closed:
                self._connections.add(connection)
                return connection
            await connection.close(GOING_AWAY)
            failure = closed
        # Without the cause: aiohttp's errors quote the address, which contains the token.
        raise failure from None


def _failure(place: str, error: Exception, role: str, patience: float) -> RelayError:
    """Return what it means that a WebSocket could not be opened."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        kind = "" if error.headers is None else error.headers.get("Content-Type", "").partition(";")[0]
        seen = f"HTTP {error.status}" + "".join(f" ({part})" for part in (_printable(error.message), kind) if part)
        if error.status < HTTPStatus.BAD_REQUEST:
            return NotARelay(f"{place}: answered {seen} instead of opening a WebSocket, expected a relay")
        # The relay answers 404 to a sender for a missing hybrid connection, and for one without a listener.
        if error.status in _PASSING or (error.status == HTTPStatus.NOT_FOUND and role == "sender"):
            return RelayUnavailable(f"{place}: answered {seen}, expected a hybrid connection with a listener")
        return RelayRefused(f"{place}: refused the {role} with {seen}", error.status)
    if isinstance(error, aiohttp.ClientResponseError):
        return NotARelay(f"{place}: did not answer with HTTP, expected a relay")
    if isinstance(error, aiohttp.InvalidURL):
        return NotARelay(f"{place}: returned an invalid address, expected ws:// or wss://")
    if isinstance(error, TimeoutError):
        return RelayUnavailable(f"{place}: no answer within {patience:g} s, expected a WebSocket")
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return RelayUnavailable(
        f"{place}: cannot be reached ({type(error).__name__}" + (f", errno {number})" if number else ")")
    )


async def _accept_only_websockets(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the reason phrase, which has the relay's explanation and the id for support, and follow no redirect."""
    # The address of a redirect would get the application's headers.
    response = await handler(request)
    if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return response
    response.close()
    failed = (response.request_info, response.history)
    reason = response.reason or ""
    raise aiohttp.WSServerHandshakeError(*failed, status=response.status, message=reason, headers=response.headers)


def _printable(text: str | None) -> str:
    return "".join(letter for letter in text or "" if letter.isprintable())[:_MAX_REASON]
