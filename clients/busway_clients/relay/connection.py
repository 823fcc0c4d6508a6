"""A connection between a sender and a listener, joined by the relay."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from busway_clients.errors import ConnectionEnded
from busway_clients.relay.frames import Frames

_NORMAL = 1000
_OWN_CODES = range(3000, 5000)


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
        self,
        endpoint: str,
        frames: Frames,
        protocol: str | None,
        offer: Offer | None = None,
        on_end: "Callable[[RelayConnection], None] | None" = None,
    ) -> None:
        """Use a WebSocket that was opened at *endpoint*; only a listener has an *offer*."""
        self.endpoint = endpoint
        self.protocol = protocol
        self.offer = offer
        self._frames = frames
        self._on_end = on_end

    @property
    def end(self) -> ConnectionEnded | None:
        """Return how the connection has ended, None while it has not; its code is the close code."""
        return self._frames.end

    async def send(self, message: str | bytes) -> None:
        """Send a message; raises ConnectionEnded. A message that was sent has not necessarily arrived."""
        try:
            await self._frames.send(message)
        except ConnectionEnded:
            self._left()
            raise

    async def receive(self) -> str | bytes:
        """Return the next message; raise ConnectionEnded."""
        try:
            return await self._frames.message()
        except ConnectionEnded:
            self._left()
            raise

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """
        Close the connection; a second call does nothing, and the relay closes the other side.

        Raises ValueError for a code that applications may not send (RFC 6455, 7.4).
        """
        if code not in {_NORMAL, 1001, 1011} and code not in _OWN_CODES:
            raise ValueError(f"close code: is {code}, expected 1000, 1001, 1011 or one of 3000 to 4999")
        try:
            await self._frames.close(code, reason)
        finally:
            self._left()

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
        await self.close(_NORMAL if kind is None else 1011)

    def _left(self) -> None:
        if self._on_end is not None:
            self._on_end(self)
            self._on_end = None
