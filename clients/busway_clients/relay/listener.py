"""A listener at several relays at once, which stays reachable if one of them fails (article on outages)."""

import asyncio
import contextlib
import inspect
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from yarl import URL

from busway_clients.errors import RelayError, RelayFailed, RelayRefused, WrongUse
from busway_clients.relay.connection import GOING_AWAY, MAX_MESSAGE_BYTES, PATIENCE, Offer, RelayConnection, Sockets
from busway_clients.relay.endpoint import RelayEndpoint, Token

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
_STATUSES = range(400, 600)
# The answer to an HTTP request: the service may block a listener that lets requests time out.
_ONLY_WEBSOCKETS = {
    "statusCode": 501,
    "statusDescription": "this listener accepts only WebSockets",
    "responseHeaders": {},
    "body": False,
}


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
        keep_alive: timedelta = PATIENCE,
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
        self._channels: list[asyncio.Task[None]] = []
        self._offers: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[RelayConnection | None] = asyncio.Queue()

    @property
    def state(self) -> Mapping[str, Listening]:
        """Return the current state of each endpoint."""
        return dict(self._states)

    @property
    def open_connections(self) -> int:
        """Return the number of accepted connections that have not ended, taken by the application or not."""
        return len(self._sockets.connections)

    async def open(self) -> None:
        """
        Start to listen; return when every endpoint was tried, or two seconds after the first one listens.

        Raises RelayFailed if no endpoint accepts this listener. An endpoint that answers later is used from then on.
        """
        tried = {name: asyncio.get_running_loop().create_future() for name in self._endpoints}
        self._channels = [asyncio.create_task(self._keep(name, first)) for name, first in tried.items()]
        try:
            untried = {*tried.values()}
            while untried and not any(listening.is_on for listening in self._states.values()):
                _, untried = await asyncio.wait(untried, return_when=asyncio.FIRST_COMPLETED)
            if untried:
                await asyncio.wait(untried, timeout=_OTHERS)
            self._require_one()
        except BaseException:
            await self.close(timedelta())
            raise

    async def close(self, drain: timedelta = _DRAIN) -> None:
        """
        Take no new offers and wait for the accepted connections to end.

        After *drain*, close them with code 1001 and drop undecided offers. Iteration returns the accepted connections
        that were not taken, then ends.
        """
        end = time.monotonic() + drain.total_seconds()
        await self._finish_offers(drain)
        if waited_for := [connection.ended for connection in self._sockets.connections]:
            await asyncio.wait(waited_for, timeout=max(end - time.monotonic(), 0.0))
        await self._sockets.close("the listener is closing")

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
        await self._finish_offers(drain)
        while (connection := self._queue.get_nowait()) is not None:
            await connection.close(GOING_AWAY, "the listener is closing")
        await self.close(drain)

    def _require_one(self) -> None:
        if not any(listening.is_on for listening in self._states.values()):
            errors = {name: state.error for name, state in self._states.items() if state.error is not None}
            raise RelayFailed(f"listening: {'; '.join(map(str, errors.values()))}", errors)

    # The control channels

    async def _keep(self, name: str, tried: asyncio.Future[None]) -> None:
        endpoint = self._endpoints[name]
        attempt = 0
        while True:
            opened_at = None
            try:
                token = await self._sockets.token(endpoint)
                socket = await self._sockets.open(endpoint, endpoint.url("listen", token), "listener", token=token)
                async with RelayConnection(name, endpoint.place, socket) as channel:
                    opened_at = time.monotonic()
                    self._note(name, Listening(True), tried)
                    await self._serve(channel, token)
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

    def _note(self, name: str, state: Listening, tried: asyncio.Future[None]) -> None:
        if state.is_on:
            _LOGGER.info("%s: listening", name)
        else:
            _LOGGER.warning("%s: not listening: %s", name, state.error)
        self._states[name] = state
        if not tried.done():
            tried.set_result(None)

    async def _serve(self, channel: RelayConnection, token: Token | None) -> None:
        """Accept or reject offers until the channel ends, and raise its RelayError."""
        renewing = asyncio.create_task(self._renew(channel, token))
        try:
            while True:
                message = await channel.receive()
                # Bytes are the body of an HTTP request, which was already declined.
                if isinstance(message, str):
                    await self._obey(channel, message)
        finally:
            renewing.cancel()

    async def _obey(self, channel: RelayConnection, message: str) -> None:
        try:
            content = json.loads(message)
        except (ValueError, RecursionError):
            content = None
        match content:
            case {"accept": {} as offered}:
                task = asyncio.create_task(self._settle(channel.endpoint, offered))
                self._offers.add(task)
                task.add_done_callback(self._offers.discard)
            case {"request": {"id": number}}:
                await channel.send(json.dumps({"response": {"requestId": number, **_ONLY_WEBSOCKETS}}))
            case {}:
                pass
            case _:
                place = self._endpoints[channel.endpoint].place
                _LOGGER.warning("%s: a control message is not a JSON object and is ignored", place)

    async def _renew(self, channel: RelayConnection, token: Token | None) -> None:
        endpoint = self._endpoints[channel.endpoint]
        while token is not None:
            await asyncio.sleep(max((token.expires_at - time.time()) * _PART, _SHORTEST))
            try:
                renewed = await self._sockets.token(endpoint)
                if renewed is not None and renewed.expires_at > token.expires_at:
                    await channel.send(json.dumps({"renewToken": {"token": renewed.text}}))
                    token = renewed
            except RelayError as error:
                _LOGGER.warning("%s: the token could not be renewed: %s", endpoint.place, error)

    # The offers of senders

    async def _settle(self, name: str, offered: Mapping[str, Any]) -> None:
        endpoint = self._endpoints[name]
        try:
            address, offer = _offer(name, endpoint, offered)
            rejection = await self._rejection(offer)
            if rejection is not None:
                await self._reject(endpoint, address, rejection)
                return
            common = self._common_protocols(offer)
            socket = await self._sockets.open(endpoint, address, "listener at the rendezvous", protocols=common)
            self._queue.put_nowait(self._sockets.connection(name, endpoint, socket, offer))
        except RelayError as error:
            # The relay reports it to the sender; the listener continues with other offers.
            _LOGGER.warning("%s: an offer failed: %s", name, error)

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
        # The relay confirms a rejection with 410 instead of a WebSocket.
        with contextlib.suppress(RelayRefused):
            socket = await self._sockets.open(endpoint, url, "rejection")
            await socket.close()

    async def _finish_offers(self, drain: timedelta) -> None:
        """Leave the endpoints, wait for the offers in progress, drop those that are left, and end the queue."""
        for channel in self._channels:
            channel.cancel()
        await asyncio.gather(*self._channels, return_exceptions=True)
        self._states = dict.fromkeys(self._endpoints, Listening(False))
        if self._offers:
            _, undecided = await asyncio.wait({*self._offers}, timeout=drain.total_seconds())
            for task in undecided:
                _LOGGER.warning("an offer is dropped: it was not decided within %g s of closing", drain.total_seconds())
                task.cancel()
            await asyncio.gather(*undecided, return_exceptions=True)
        self._queue.put_nowait(None)


def _offer(name: str, endpoint: RelayEndpoint, offered: Mapping[str, Any]) -> tuple[URL, Offer]:
    """Return the rendezvous address of an offer, and what the sender asks."""
    try:
        address = URL(str(offered.get("address", "")), encoded=True)
    except ValueError:
        address = URL()
    expected = "ws" if endpoint.is_plain else "wss"
    if address.host is None or address.scheme not in {expected, "wss"}:
        raise RelayError(f"{endpoint.place}: an offer has no {expected}:// address and is ignored")
    headers = offered.get("connectHeaders")
    texts = {str(key): str(value) for key, value in headers.items()} if isinstance(headers, dict) else {}
    requested = next((value for key, value in texts.items() if key.lower() == "sec-websocket-protocol"), "")
    protocols = tuple(protocol.strip() for protocol in requested.split(",") if protocol.strip())
    suffix, query = endpoint.rest_of(address)
    return address, Offer(name, str(offered.get("id", "")), suffix, query, texts, protocols)
