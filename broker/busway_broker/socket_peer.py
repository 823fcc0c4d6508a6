"""A client's connection on a socket."""

import asyncio
import logging
import socket
from typing import cast

from busway_broker import errors
from busway_broker.errors import Refusal
from busway_broker.listener import Listener, Peer
from busway_broker.protocol.connection import Connection

LOG = logging.getLogger(__name__)

# The G of GET: no header of AMQP begins with it.
_FIRST_OF_HTTP = 0x47


class SocketPeer(Peer):
    """
    One connection: bytes between its socket and its protocol.

    While a client does not read its answers, nothing is read from it either, so that the output buffer stays small.
    """

    def __init__(self, listener: Listener, *, is_web_socket: bool = False) -> None:
        """Serve a connection of *listener*; a WebSocket is one already, and turns into none."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(listener.namespace, self._wake, listener.holdings, later=self._loop.call_later)
        self._transport: asyncio.Transport | None = None
        self._is_web_socket = self._is_identified = is_web_socket
        self._is_flush_due = False
        self._is_paused = False
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_interval = 0.0
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve a new connection."""
        self._transport = cast("asyncio.Transport", transport)
        # Each settlement is a round trip; waiting to fill a segment would add 40 ms to each.
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.peers.add(self)
        self._await_tick()
        if self._listener.is_closing or not self._listener.commit():
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop does not know either
        """Return the buffer to read into."""
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that were read."""
        if not self._is_identified:
            self._is_identified = True
            if self._listener.buffer[0] == _FIRST_OF_HTTP:
                self._hand_over(bytes(self._listener.buffer[:nbytes]))
                return
        try:
            self._connection.receive(bytes(self._listener.buffer[:nbytes]))
        except Exception:
            # A defect on one connection must not affect the others.
            LOG.exception("namespace %s: a connection failed", self._listener.namespace.name)
            self._connection.close(Refusal(errors.INTERNAL_ERROR, "internal error of the broker; see its log"))
        if self._connection.tick_interval != self._tick_interval:
            self._await_tick()
        if self._listener.storage is None:
            self._flush()
        else:
            # In the next turn of the loop: one commit for all connections whose requests arrived in this one.
            self._wake()
        self._listener.set_timer()

    def hold(self, change: int) -> None:
        """Count *change* more bytes that the connection holds outside of this."""
        self._connection.holdings.change(change)
        if self._connection.is_closed:
            self._wake()

    def _hand_over(self, data: bytes) -> None:
        """Let the HTTP server have the connection: the client asks for a WebSocket."""
        transport = self._transport
        self._end()
        listener = self._listener
        if transport is not None:
            from busway_broker.web_sockets import web_sockets_of  # noqa: PLC0415 - aiohttp takes longer than the start

            web_sockets_of(listener).take(transport, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended, it has
        """Release what the connection held."""
        self._end()

    def _end(self) -> None:
        self._listener.peers.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)
        if self._ticker is not None:
            self._ticker.cancel()
        self._transport = None
        self._connection.release()
        self._listener.commit()
        self._listener.set_timer()

    def pause_writing(self) -> None:
        """Stop producing output until the client reads."""
        self._is_paused = True
        self._connection.is_writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Produce output again."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._resume()

    def _resume(self) -> None:
        self._connection.resume()
        self._listener.set_timer()

    def _wake(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        data = self._connection.take_output()
        if (self._listener.storage is not None and not self._listener.commit()) or self._transport is None:
            return
        if data:
            self._transport.write(data)
        if self._connection.is_dropped:
            self._transport.abort()
        elif self._connection.is_closed:
            self._transport.close()
        elif not self._connection.is_writable and not self._is_paused:
            # The socket has taken all output. The rest follows after the other connections had their turn.
            self._loop.call_soon(self._resume)

    def _await_tick(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._tick_interval = self._connection.tick_interval
        self._ticker = self._loop.call_later(self._tick_interval, self._tick)

    def _tick(self) -> None:
        if self._connection.is_closed:
            # The peer does not read the reason.
            self.abort()
            return
        self._connection.tick()
        self._flush()
        self._await_tick()

    def shut_down(self, reason: str = "the broker is shutting down") -> None:
        """Close the connection, with the reason for the client."""
        self._connection.close(Refusal(errors.CONNECTION_FORCED, reason))
        self._flush()

    def abort(self) -> None:
        """Break the connection, as a network failure would."""
        if self._transport is not None:
            self._transport.abort()

    def describe(self) -> dict[str, object]:
        """Return the client and its links as plain data."""
        transport = self._transport
        address = None if transport is None else transport.get_extra_info("socket").getpeername()
        is_secure = transport is not None and transport.get_extra_info("ssl_object") is not None
        return {
            "address": None if address is None else f"{address[0]}:{address[1]}",
            "transport": ("WebSocket" if self._is_web_socket else "TCP") + (" over TLS" if is_secure else ""),
            "client": self._connection.container_id,
            "links": self._connection.describe_links(),
        }
