"""
A port that accepts plain connections and connections over TLS: the first byte of each shows which one it is.

The byte is only looked at, so that the event loop's own TLS reads the whole handshake.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

LOG = logging.getLogger(__name__)

FIRST_BYTE_SECONDS = 60.0
HANDSHAKE_SECONDS = 10.0
_HANDSHAKE = b"\x16"
# A client that does not answer the end of TLS would keep its connection for 30 s.
_SHUTDOWN_SECONDS = 1.0
_RETRY_SECONDS = 0.5


class TlsServer:
    """Accepts connections until it is closed; as `asyncio.Server` as far as it is used here."""

    def __init__(
        self, listening: socket.socket, context: ssl.SSLContext, connect: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """Let *connect* return the protocol of each connection."""
        self.sockets = (listening,)
        self._context = context
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._accepting = self._loop.create_task(self._accept(listening))
        self._connecting: dict[asyncio.Task[None], socket.socket] = {}

    def close(self) -> None:
        """Stop listening, and close the connections that have not said anything."""
        self._accepting.cancel()
        for task in self._connecting:
            task.cancel()
        self.sockets[0].close()

    async def wait_closed(self) -> None:
        """Wait until no connection is on its way."""
        await asyncio.gather(self._accepting, *self._connecting, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                # Too many open files, for example: clients wait, as they would in the queue of the system.
                LOG.warning("port %d: cannot accept a connection: %s", listening.getsockname()[1], error.strerror)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            task = self._loop.create_task(self._serve(accepted))
            self._connecting[task] = accepted
            task.add_done_callback(self._connecting.pop)

    async def _serve(self, accepted: socket.socket) -> None:
        first = b""
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(FIRST_BYTE_SECONDS):
                first = await self._first_byte(accepted)
            if first == _HANDSHAKE:
                await self._loop.connect_accepted_socket(
                    self._connect,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
                )
            elif first:
                await self._loop.connect_accepted_socket(self._connect, accepted)
            else:
                accepted.close()
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            if first == _HANDSHAKE:
                LOG.info("a TLS handshake failed: %s. Does the client trust the authority of this broker?", reason)
            else:
                LOG.info("a connection ended before it was open: %s", reason)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """Return the first byte without reading it; empty if the client has closed the connection."""
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(accepted, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
