"""A listener at several relays at once, which stays reachable if one of them fails (article on outages)."""

import asyncio
import contextlib
import inspect
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from yarl import URL

from busway_clients.errors import RelayError, RelayFailed, RelayRefused, WrongUse
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.sockets import (
    GOING_AWAY,
    KEEP_ALIVE,
    MAX_MESSAGE_BYTES,
    PATIENCE,
    Offer,
    RelayConnection,
    Sockets,
)

_LOGGER = logging.getLogger("busway_clients.relay")
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
# After a channel has lasted this long, the next attempt starts without a pause again.
_STEADY = 60.0
_DRAIN = timedelta(seconds=30)
# How long opening waits for the other endpoints once one listens.
_OTHERS = 2.0
# A token is renewed after four fifths of its lifetime; on failure, after four fifths of the remaining time.
_PART = 0.8
_SHORTEST = 1.0
# The relay confirms a rejection with this status instead of a WebSocket.
_REJECTED = 410
_STATUSES = range(400, 600)


@dataclass(frozen=True)
class Rejection:
    """The rejection of a sender, which sees both fields. Shape: status is an HTTP status from 400 to 599."""

    status: int
    reason: str

    def __post_init__(self) -> None:
        """Raise WrongUse for a status that is no error."""
        if self.status not in _STATUSES:
            raise WrongUse(f"the status of a rejection: is {self.status}, expected one from 400 to 599")


class Listening(NamedTuple):
    """Whether this listener is registered at an endpoint, and if not, the error."""

    is_on: bool
    error: RelayError | None = None


Decide = Callable[[Offer], Rejection | Awaitable[Rejection | None] | None]


class RelayListener:
    """
    Accepts connections from one or more endpoints; iterate over it to get them, in one task or several.

    Each endpoint is independent: if its control channel ends, it is opened again at once, then after 1, 2, 5, 10 and 30
    seconds, until the listener is closed. Tokens are renewed before they expire.
    """

    def __init__(
        self,
        endpoints: Mapping[str, RelayEndpoint],
        *,
        decide: Decide | None = None,
        protocols: Sequence[str] = (),
        waiting: int = 100,
        keep_alive: timedelta = KEEP_ALIVE,
        patience: timedelta = PATIENCE,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        """
        Listen at *endpoints*, by any names.

        *decide* gets each offer and returns a Rejection, or None to accept. *protocols* are the supported subprotocols;
        a sender that requests only others is rejected. While the application has *waiting* connections to take, further
        ones are rejected with 503, so that their senders try another endpoint. After *keep_alive* without a frame a
        connection is pinged, and ends if no answer comes within half of it; *patience* is the timeout for each answer
        of a relay. Units: pauses before each attempt in seconds, the last one repeats.
        """
        if not endpoints:
            raise WrongUse("endpoints of a listener: got none, expected one or more")
        places = [endpoint.place.lower() for endpoint in endpoints.values()]
        if len({*places}) < len(places):
            raise WrongUse(f"the endpoints of a listener: are {', '.join(places)}, expected different ones")
        self._endpoints = dict(endpoints)
        self._decide = decide
        self._protocols = tuple(protocols)
        self._waiting = waiting
        self._pauses = pauses
        self._sockets = Sockets(keep_alive, patience, max_message_bytes)
        self._states = dict.fromkeys(endpoints, Listening(False))
        self._keeping: list[asyncio.Task[None]] = []
        self._offers: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[RelayConnection | None] = asyncio.Queue()
        self._connections: set[RelayConnection] = set()
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def state(self) -> Mapping[str, Listening]:
        """Return the current state of each endpoint."""
        return dict(self._states)

    @property
    def open_connections(self) -> int:
        """Return the number of accepted connections that have not ended, taken by the application or not."""
        return len(self._connections)

    async def open(self) -> None:
        """
        Start to listen; return when every endpoint was tried, or two seconds after the first one listens.

        Raises RelayFailed if no endpoint accepts this listener. An endpoint that answers later is used from then on.
        """
        tried = {name: asyncio.Event() for name in self._endpoints}
        self._keeping = [asyncio.create_task(self._keep(name, tried[name])) for name in self._endpoints]
        try:
            await self._wait_until_tried(tried)
            self._require_one()
        except BaseException:
            await self._leave()
            await self._sockets.close()
            raise

    async def close(self, drain: timedelta = _DRAIN) -> None:
        """
        Take no new offers and wait for the accepted connections to end.

        After *drain*, close them with code 1001 and drop undecided offers. Iteration returns the accepted connections
        that were not taken, then ends.
        """
        end = time.monotonic() + drain.total_seconds()
        await self._leave()
        await self._finish_offers(drain)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(end - time.monotonic()):
                await self._drained.wait()
        await _close(self._connections)
        await self._sockets.close()

    def __aiter__(self) -> Self:
        """Return itself, for the connections."""
        return self

    async def __anext__(self) -> RelayConnection:
        """Return the next connection."""
        connection = await self._queue.get()
        if connection is None:
            # Every other caller ends too, now or later.
            self._queue.put_nowait(None)
            raise StopAsyncIteration
        return connection

    async def __aenter__(self) -> Self:
        """Open the listener."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the listener; connections that were not taken end at once, and all connections if the block failed."""
        drain = _DRAIN if kind is None else timedelta()
        await self._leave()
        await self._finish_offers(drain)
        untaken = []
        while not self._queue.empty():
            untaken.append(self._queue.get_nowait())
        await _close(connection for connection in untaken if connection is not None)
        await self.close(drain)

    def _require_one(self) -> None:
        if not any(listening.is_on for listening in self._states.values()):
            errors = {name: state.error for name, state in self._states.items() if state.error is not None}
            text = "; ".join(str(error) for error in errors.values())
            raise RelayFailed(f"listening: {text}", errors)

    async def _wait_until_tried(self, tried: Mapping[str, asyncio.Event]) -> None:
        pending = {asyncio.create_task(event.wait()) for event in tried.values()}
        try:
            while pending and not any(listening.is_on for listening in self._states.values()):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if pending:
                await asyncio.wait(pending, timeout=_OTHERS)
        finally:
            for waiting in pending:
                waiting.cancel()

    # The control channels

    async def _keep(self, name: str, tried: asyncio.Event) -> None:
        endpoint = self._endpoints[name]
        attempt = 0
        while True:
            opened_at = None
            try:
                token, expires_at = await self._sockets.token(endpoint)
                socket = await self._sockets.open(endpoint, endpoint.listen_url(token), "listener", token=token)
                async with RelayConnection(name, endpoint.place, socket) as channel:
                    opened_at = time.monotonic()
                    self._note(name, Listening(True), tried)
                    await self._serve(channel, expires_at)
            except RelayError as error:
                self._note(name, Listening(False, error), tried)
            except Exception as error:
                # An unexpected error ends this channel, but not the listener.
                _LOGGER.exception("%s: the control channel failed", name)
                failure = RelayError(f"{endpoint.place}: the control channel failed with {type(error).__name__}")
                self._note(name, Listening(False, failure), tried)
            if opened_at is not None and time.monotonic() - opened_at >= _STEADY:
                attempt = 0
            await asyncio.sleep(self._pauses[attempt] * random.uniform(0.8, 1.2))
            attempt = min(attempt + 1, len(self._pauses) - 1)

    def _note(self, name: str, state: Listening, tried: asyncio.Event) -> None:
        if state.is_on:
            _LOGGER.info("%s: listening", name)
        else:
            _LOGGER.warning("%s: not listening: %s", name, state.error)
        self._states[name] = state
        tried.set()

    async def _serve(self, channel: RelayConnection, expires_at: float) -> None:
        """Accept or reject offers until the channel ends, and raise its RelayError."""
        renewing = asyncio.create_task(self._renew(channel, expires_at))
        try:
            while True:
                message = await channel.receive()
                if isinstance(message, str):
                    await self._obey(channel, message)
                # The bytes are the body of an HTTP request, which was already declined.
        finally:
            renewing.cancel()

    async def _obey(self, channel: RelayConnection, message: str) -> None:
        try:
            content = json.loads(message)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            place = self._endpoints[channel.endpoint].place
            _LOGGER.warning("%s: a control message is not a JSON object and is ignored", place)
        elif isinstance(offered := content.get("accept"), dict):
            task = asyncio.create_task(self._settle(channel.endpoint, offered))
            self._offers.add(task)
            task.add_done_callback(self._offers.discard)
        elif isinstance(request := content.get("request"), dict) and request.get("id") is not None:
            # The service may block a listener that lets requests time out; this one supports only connections.
            response = {
                "requestId": request["id"],
                "statusCode": 501,
                "statusDescription": "this listener accepts only WebSockets",
                "responseHeaders": {},
                "body": False,
            }
            await channel.send(json.dumps({"response": response}))

    async def _renew(self, channel: RelayConnection, expires_at: float) -> None:
        endpoint = self._endpoints[channel.endpoint]
        while endpoint.tokens is not None and channel.end is None:
            await asyncio.sleep(max((expires_at - time.time()) * _PART, _SHORTEST))
            try:
                token, renewed_until = await self._sockets.token(endpoint)
                if renewed_until > expires_at:
                    await channel.send(json.dumps({"renewToken": {"token": token}}))
                    expires_at = renewed_until
            except RelayError as error:
                _LOGGER.warning("%s: the token could not be renewed: %s", endpoint.place, error)

    async def _leave(self) -> None:
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._keeping = []
        self._states = dict.fromkeys(self._endpoints, Listening(False))

    # The offers of senders

    async def _settle(self, name: str, offered: Mapping[str, Any]) -> None:
        endpoint = self._endpoints[name]
        try:
            address = _address(endpoint, offered)
            offer = _offer(name, endpoint, address, offered)
            rejection = await self._rejection(offer)
            if rejection is None:
                common = self._common_protocols(offer)
                socket = await self._sockets.open(endpoint, address, "listener at the rendezvous", protocols=common)
                connection = RelayConnection(name, endpoint.place, socket, offer, self._left)
                self._connections.add(connection)
                self._drained.clear()
                self._queue.put_nowait(connection)
            else:
                await self._reject(endpoint, address, rejection)
        except RelayError as error:
            # The relay reports it to the sender; the listener continues with other offers.
            _LOGGER.warning("%s: an offer failed: %s", name, error)

    def _left(self, connection: RelayConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._drained.set()

    async def _rejection(self, offer: Offer) -> Rejection | None:
        if self._queue.qsize() + len(self._offers) > self._waiting:
            return Rejection(503, "the listener is busy")
        if offer.protocols and not self._common_protocols(offer):
            return Rejection(400, "the listener supports none of these subprotocols")
        if self._decide is None:
            return None
        try:
            decided = self._decide(offer)
            return await decided if inspect.isawaitable(decided) else decided
        except Exception:
            _LOGGER.exception("%s: the decision on an offer failed; it is rejected with 500", offer.endpoint)
            return Rejection(500, "the listener could not decide")

    def _common_protocols(self, offer: Offer) -> tuple[str, ...]:
        return tuple(protocol for protocol in offer.protocols if protocol in self._protocols)[:1]

    async def _reject(self, endpoint: RelayEndpoint, address: URL, rejection: Rejection) -> None:
        parameters = {"sb-hc-statusCode": rejection.status, "sb-hc-statusDescription": rejection.reason}
        joint = "&" if address.raw_query_string else "?"
        url = URL(f"{address}{joint}{urlencode(parameters, quote_via=quote)}", encoded=True)
        try:
            socket = await self._sockets.open(endpoint, url, "rejection")
        except RelayRefused as answer:
            if answer.status != _REJECTED:
                raise
        else:
            await socket.close()
            raise RelayError(f"{endpoint.place}: opened a WebSocket for a rejection, expected HTTP {_REJECTED}")

    async def _finish_offers(self, drain: timedelta) -> None:
        """Wait for the offers in progress, drop those that are left, and end the queue."""
        if self._offers:
            _, undecided = await asyncio.wait({*self._offers}, timeout=max(drain.total_seconds(), 0.0))
            for task in undecided:
                _LOGGER.warning("an offer is dropped: it was not decided within %g s of closing", drain.total_seconds())
                task.cancel()
            await asyncio.gather(*undecided, return_exceptions=True)
        self._queue.put_nowait(None)


async def _close(connections: Iterable[RelayConnection]) -> None:
    closing = [connection.close(GOING_AWAY, "the listener is closing") for connection in [*connections]]
    await asyncio.gather(*closing)


def _address(endpoint: RelayEndpoint, offered: Mapping[str, Any]) -> URL:
    text = offered.get("address")
    expected = "ws" if endpoint.is_plain else "wss"
    try:
        address = URL(text, encoded=True) if isinstance(text, str) else URL()
    except ValueError:
        address = URL()
    if address.host is None or address.scheme not in {expected, "wss"}:
        raise RelayError(f"{endpoint.place}: an offer has no {expected}:// address and is ignored")
    return address


def _offer(name: str, endpoint: RelayEndpoint, address: URL, offered: Mapping[str, Any]) -> Offer:
    headers = offered.get("connectHeaders")
    texts = {str(key): str(value) for key, value in headers.items()} if isinstance(headers, dict) else {}
    requested = next((value for key, value in texts.items() if key.lower() == "sec-websocket-protocol"), "")
    protocols = tuple(protocol.strip() for protocol in requested.split(",") if protocol.strip())
    suffix, query = endpoint.rest_of(address)
    return Offer(name, str(offered.get("id", "")), suffix, query, texts, protocols)
