"""The WebSockets of one listener or client, and what an answer of the relay means (Hybrid Connections protocol)."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
from yarl import URL

from busway_clients.errors import ConnectionEnded, NotARelay, RelayError, RelayRefused, RelayUnavailable
from busway_clients.relay.endpoint import RelayEndpoint, Token

PATIENCE = timedelta(seconds=30)
"""How long a relay may take for each answer, and how long a connection is silent before it is pinged."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
GOING_AWAY = 1001
FAILED = 1011
_NORMAL = 1000
_ABNORMAL = 1006
_NO_STATUS = 1005
_OWN_CODES = range(3000, 5000)
_MAX_REASON = 200
_CLOSE_SECONDS = 5.0
# Statuses of a busy or failing service; 408 and 504 also mean that no listener came to the rendezvous.
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


class Offer(NamedTuple):
    """
    A sender that wants to connect, as the listener sees it before it accepts.

    Shape:  endpoint is its name in the listener; suffix and query are what the sender added to the address, protocols
            the subprotocols that it supports; headers are all that it sent, without tokens.
    """

    endpoint: str
    id: str
    suffix: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    protocols: tuple[str, ...]


class RelayConnection:
    """
    A connection that sends and receives messages, text as str and binary as bytes.

    One task at a time may receive. Iterating ends when the other side has closed with 1000 or 1001, and raises
    ConnectionEnded for any other end. Leaving its context closes it.
    """

    def __init__(
        self, endpoint: str, place: str, socket: aiohttp.ClientWebSocketResponse, offer: Offer | None = None
    ) -> None:
        """Use a WebSocket that was opened at *endpoint*; only a listener has an *offer*."""
        self.endpoint = endpoint
        self.protocol = socket.protocol
        self.offer = offer
        self.ended: asyncio.Future[ConnectionEnded] = asyncio.get_running_loop().create_future()
        self._place = place
        self._socket = socket
        self._next: asyncio.Task[aiohttp.WSMessage] | None = None

    @property
    def end(self) -> ConnectionEnded | None:
        """How the connection has ended, None while it has not; its code is the close code."""
        return self.ended.result() if self.ended.done() else None

    async def send(self, message: str | bytes) -> None:
        """Send a message; raises ConnectionEnded. A message that was sent has not necessarily arrived."""
        if self.end is not None:
            raise self.end
        try:
            await (self._socket.send_str(message) if isinstance(message, str) else self._socket.send_bytes(message))
        except (aiohttp.ClientError, OSError) as error:
            raise self._note_end(f"the connection broke ({type(error).__name__})", _ABNORMAL) from error

    async def receive(self) -> str | bytes:
        """Return the next message; raises ConnectionEnded. Cancelling it loses no message."""
        if self.end is not None:
            raise self.end
        # The task continues if the caller is cancelled: cancelling a read would break the connection.
        self._next = self._next or asyncio.ensure_future(self._socket.receive())
        frame = await asyncio.shield(self._next)
        self._next = None
        if frame.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            message: str | bytes = frame.data
            return message
        if frame.type is aiohttp.WSMsgType.CLOSE:
            code, reason = frame.data or _NO_STATUS, _printable(frame.extra)
            raise self._note_end(f"closed by the other side with {code}" + (f" ({reason})" if reason else ""), code)
        # aiohttp reports 1000 if there was no close frame, and its own code for an invalid frame.
        code = (frame.type is aiohttp.WSMsgType.ERROR and self._socket.close_code) or _ABNORMAL
        raise self._note_end(f"the connection broke ({code})", code)

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """
        Close the connection; a second call does nothing, and the relay closes the other side.

        Raises ValueError for a code that applications may not send (RFC 6455, 7.4).
        """
        if code not in {_NORMAL, GOING_AWAY, FAILED} and code not in _OWN_CODES:
            raise ValueError(f"close code: is {code}, expected 1000, 1001, 1011 or one of 3000 to 4999")
        self._note_end(f"closed here ({code})", code)
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            self._next = None
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

    async def __aenter__(self) -> Self:
        """Return the connection."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection, with code 1011 if the block failed."""
        await self.close(_NORMAL if kind is None else FAILED)

    def _note_end(self, text: str, code: int) -> ConnectionEnded:
        if not self.ended.done():
            self.ended.set_result(ConnectionEnded(f"{self._place}: {text}", code))
        return self.ended.result()


class Sockets:
    """Opens the WebSockets of a listener or a client, and closes the connections that are left at its end."""

    def __init__(self, keep_alive: timedelta, patience: timedelta, max_message_bytes: int) -> None:
        """
        Ping after *keep_alive* without a frame, and wait half as long for the answer.

        *patience* limits each opening. The first WebSocket creates the session, in its event loop.
        """
        self.connections: set[RelayConnection] = set()
        self._heartbeat = keep_alive.total_seconds()
        self._patience = patience.total_seconds()
        self._max_message_bytes = max_message_bytes
        self._session: aiohttp.ClientSession | None = None

    def connection(
        self, name: str, endpoint: RelayEndpoint, socket: aiohttp.ClientWebSocketResponse, offer: Offer | None = None
    ) -> RelayConnection:
        """Return the connection of a WebSocket at the endpoint that the application calls *name*."""
        connection = RelayConnection(name, endpoint.place, socket, offer)
        self.connections.add(connection)
        connection.ended.add_done_callback(lambda _: self.connections.discard(connection))
        return connection

    async def close(self, reason: str) -> None:
        """Close the connections that are left, with code 1001, and the session."""
        await asyncio.gather(*[connection.close(GOING_AWAY, reason) for connection in [*self.connections]])
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def token(self, endpoint: RelayEndpoint) -> Token | None:
        """Return a token, None if the endpoint needs none; raises RelayError if none is available."""
        try:
            return None if endpoint.tokens is None else await endpoint.tokens.token(endpoint.resource, time.time())
        except Exception as error:
            raise RelayError(f"{endpoint.place}: no token is available ({type(error).__name__})") from error

    async def open(
        self,
        endpoint: RelayEndpoint,
        url: URL,
        role: str,
        *,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket as a `listener`, a `sender` or another role; raises RelayError."""
        sent = dict(headers or {})
        if token is not None and endpoint.authorization == "header":
            sent["ServiceBusAuthorization"] = token.text
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
                return await self._session.ws_connect(
                    url,
                    headers=sent,
                    protocols=protocols,
                    heartbeat=self._heartbeat,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                    max_msg_size=self._max_message_bytes,
                    proxy=endpoint.proxy,
                    ssl=endpoint.tls or True,
                )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            failure = self._failure(endpoint.place, error, role)
        # Without the cause: aiohttp's errors quote the address, which contains the token.
        raise failure from None

    def _failure(self, place: str, error: Exception, role: str) -> RelayError:
        match error:
            case TimeoutError():
                return RelayUnavailable(f"{place}: no answer within {self._patience:g} s, expected a WebSocket")
            case aiohttp.WSServerHandshakeError():
                return _refusal(place, error, role)
            case aiohttp.ClientResponseError():
                return NotARelay(f"{place}: did not answer with HTTP, expected a relay")
            case aiohttp.InvalidURL():
                return NotARelay(f"{place}: returned an invalid address, expected ws:// or wss://")
        number = getattr(getattr(error, "os_error", error), "errno", None)
        cause = type(error).__name__ + (f", errno {number}" if number else "")
        return RelayUnavailable(f"{place}: cannot be reached ({cause})")


def _refusal(place: str, answer: aiohttp.WSServerHandshakeError, role: str) -> RelayError:
    kind = "" if answer.headers is None else answer.headers.get("Content-Type", "").partition(";")[0]
    seen = f"HTTP {answer.status}" + "".join(f" ({part})" for part in (_printable(answer.message), kind) if part)
    if answer.status < HTTPStatus.BAD_REQUEST:
        return NotARelay(f"{place}: answered {seen} instead of opening a WebSocket, expected a relay")
    if answer.status in _PASSING:
        return RelayUnavailable(f"{place}: answered {seen}, expected a WebSocket")
    if answer.status == HTTPStatus.NOT_FOUND and role == "sender":
        # The relay answers the same for a missing hybrid connection and for one without a listener.
        return RelayUnavailable(f"{place}: answered {seen}, expected a hybrid connection with a listener")
    return RelayRefused(f"{place}: refused the {role} with {seen}", answer.status)


async def _accept_only_websockets(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the reason phrase, which has the relay's explanation and the id for support, and follow no redirect."""
    # The token is for this relay only, and aiohttp would send the headers to a new address.
    response = await handler(request)
    if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return response
    response.close()
    raise aiohttp.WSServerHandshakeError(
        response.request_info,
        response.history,
        status=response.status,
        message=response.reason or "",
        headers=response.headers,
    )


def _printable(text: str | None) -> str:
    return "".join(letter for letter in text or "" if letter.isprintable())[:_MAX_REASON]
