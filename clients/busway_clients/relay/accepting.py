"""Accepts or rejects the offers of senders at their rendezvous addresses."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from yarl import URL

from busway_clients.errors import RelayError, WrongUse
from busway_clients.relay.clock import Clock, ended, is_done_within
from busway_clients.relay.connection import Offer, RelayConnection
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.frames import Frames
from busway_clients.relay.opening import Answered, Opening, refusal

_LOGGER = logging.getLogger("busway_clients.relay")
_PROTOCOL = "sec-websocket-protocol"
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


Decide = Callable[[Offer], Rejection | Awaitable[Rejection | None] | None]


class Accepting:
    """The offers in progress, and the accepted connections."""

    def __init__(
        self,
        opening: Opening,
        clock: Clock,
        *,
        decide: Decide | None,
        protocols: tuple[str, ...],
        waiting: int,
        silence: float,
        patience: float,
    ) -> None:
        self._opening = opening
        self._clock = clock
        self._decide = decide
        self._protocols = protocols
        self._waiting = waiting
        self._silence = silence
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[RelayConnection | None] = asyncio.Queue()
        self._connections: set[RelayConnection] = set()
        self.drained = asyncio.Event()
        self.drained.set()

    @property
    def connections(self) -> list[RelayConnection]:
        """Return the accepted connections that have not ended."""
        return [*self._connections]

    def begin(self, name: str, endpoint: RelayEndpoint, message: Mapping[str, Any]) -> None:
        """Start a task that accepts or rejects the offer in an `accept` message."""
        task = asyncio.ensure_future(self._settle(name, endpoint, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def taken(self) -> RelayConnection | None:
        """Return the next connection, None after the last one."""
        connection = await self._queue.get()
        if connection is None:
            # Every other caller gets None too, now or later.
            self._queue.put_nowait(None)
        return connection

    def untaken(self) -> list[RelayConnection]:
        """Remove and return the connections that the application has not taken."""
        left = []
        while not self._queue.empty():
            left.append(self._queue.get_nowait())
        self._queue.put_nowait(None)
        return [connection for connection in left if connection is not None]

    async def finish(self, seconds: float) -> None:
        """Wait at most that long for the offers in progress, drop those that are left, and end the queue."""
        if self._tasks:
            settling = asyncio.ensure_future(asyncio.wait({*self._tasks}))
            await is_done_within(self._clock, seconds, settling)
            await ended(settling)
            for task in [*self._tasks]:
                _LOGGER.warning("an offer is dropped: it was not decided within %g s of closing", seconds)
                await ended(task)
        self._queue.put_nowait(None)

    async def _settle(self, name: str, endpoint: RelayEndpoint, message: Mapping[str, Any]) -> None:
        try:
            address = _address(endpoint, message)
            offer = _offer(name, endpoint, address, message)
            rejection = await self._rejection(offer)
            if rejection is None:
                await self._accept(endpoint, address, offer)
            else:
                await self._reject(endpoint, address, rejection)
        except RelayError as error:
            # The relay reports it to the sender; the listener continues with other offers.
            _LOGGER.warning("%s: an offer failed: %s", name, error)

    async def _rejection(self, offer: Offer) -> Rejection | None:
        if self._queue.qsize() + len(self._tasks) > self._waiting:
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
        return tuple(each for each in offer.protocols if each in self._protocols)[:1]

    async def _accept(self, endpoint: RelayEndpoint, address: URL, offer: Offer) -> None:
        common = self._common_protocols(offer)
        try:
            socket = await self._opening.open(endpoint, address, self._patience, protocols=common)
        except Answered as answer:
            raise refusal(endpoint, answer, "listener at the rendezvous") from None
        frames = Frames(socket, endpoint, self._clock, self._silence, self._patience)
        connection = RelayConnection(offer.endpoint, frames, next(iter(common), None), offer, self._left)
        self._connections.add(connection)
        self.drained.clear()
        self._queue.put_nowait(connection)

    async def _reject(self, endpoint: RelayEndpoint, address: URL, rejection: Rejection) -> None:
        parameters = {"sb-hc-statusCode": rejection.status, "sb-hc-statusDescription": rejection.reason}
        joint = "&" if address.raw_query_string else "?"
        url = URL(f"{address}{joint}{urlencode(parameters, quote_via=quote)}", encoded=True)
        try:
            socket = await self._opening.open(endpoint, url, self._patience)
        except Answered as answer:
            if answer.status != _REJECTED:
                raise refusal(endpoint, answer, "rejection") from None
        else:
            await socket.close()
            raise RelayError(f"{endpoint.place}: opened a WebSocket for a rejection, expected HTTP {_REJECTED}")

    def _left(self, connection: RelayConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self.drained.set()


def _address(endpoint: RelayEndpoint, message: Mapping[str, Any]) -> URL:
    text = message.get("address")
    expected = "ws" if endpoint.is_plain else "wss"
    try:
        address = URL(text, encoded=True) if isinstance(text, str) else URL()
    except ValueError:
        address = URL()
    if address.host is None or address.scheme not in {expected, "wss"}:
        raise RelayError(f"{endpoint.place}: an offer has no {expected}:// address and is ignored")
    return address


def _offer(name: str, endpoint: RelayEndpoint, address: URL, message: Mapping[str, Any]) -> Offer:
    headers = message.get("connectHeaders")
    texts = {str(key): str(value) for key, value in headers.items()} if isinstance(headers, dict) else {}
    requested = next((value for key, value in texts.items() if key.lower() == _PROTOCOL), "")
    protocols = tuple(each.strip() for each in requested.split(",") if each.strip())
    suffix, query = endpoint.rest_of(address)
    return Offer(name, str(message.get("id", "")), suffix, query, texts, protocols)
