"""
The socket of a client: the one module of this room with I/O.

It handles frames where they arrive: with streams and a task that reads, a message took 1.4 to 1.6 µs more (decision
0069).
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Self, cast, override

from shared.amqp.client import Client, Opening

_CLOSE_SECONDS = 1.0


class Socket(asyncio.Protocol):
    """A client's connection over TCP, with TLS or without."""

    def __init__(
        self, opening: Opening, *, opened: Callable[["Socket"], None], ended: Callable[[Exception], None]
    ) -> None:
        """Prepare the connection; see `Client`. The socket is closed when the client ends."""
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self.client = Client(opening, self._wake, opened=lambda: opened(self), ended=self._close)
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._ticker: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        opening: Opening,
        *,
        opened: Callable[["Socket"], None],
        ended: Callable[[Exception], None],
    ) -> Self:
        """Return a connected socket, on which SASL has begun; raises OSError."""
        self = cls(opening, opened=opened, ended=ended)
        await self._loop.create_connection(lambda: self, host, port, ssl=context)
        return self

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with SASL; see `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self.client.start()
        self.flush()

    @override
    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        client = self.client
        if client.is_closed:
            return
        interval = client.tick_interval
        try:
            client.receive(data)
        except Exception as error:  # noqa: BLE001 - whatever ends the connection, its users must learn of it
            client.end(error)
        if self._ticker is None or client.tick_interval != interval:
            self._await_tick()
        self.flush()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """End the client, if it has not ended."""
        self.client.end(exc or ConnectionError("the broker closed the connection"))
        self._lost.set_result(None)

    def flush(self) -> None:
        """Write the output now."""
        self._is_flush_due = False
        data = self.client.take_output()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def close(self) -> None:
        """Close the connection."""
        self.client.close()
        if self._transport is not None:
            await asyncio.wait([self._lost], timeout=2 * _CLOSE_SECONDS)

    def _wake(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def _close(self, failure: Exception) -> None:
        """Close the socket, because the client has ended."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
            # A peer that no longer reads would keep the socket open.
            self._loop.call_later(_CLOSE_SECONDS, self._transport.abort)
        if self._ticker is not None:
            self._ticker.cancel()
        self._ended(failure)

    def _await_tick(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        if not self.client.is_closed:
            self._ticker = self._loop.call_later(self.client.tick_interval, self._tick)

    def _tick(self) -> None:
        self.client.tick()
        self._await_tick()
        self.flush()
