"""
The broker on sockets: every namespace listens on a port of its own.

A connection belongs to the namespace whose port it came in on; host names in the protocol are not looked at.
"""

import asyncio
import logging
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self, cast

from local.broker import errors
from local.broker.config import NamespaceConfig
from local.broker.core.namespace import Namespace
from local.broker.core.store import milliseconds
from local.broker.errors import Refusal
from local.broker.protocol.connection import Connection
from shared.clock import Clock, SystemClock

LOG = logging.getLogger(__name__)

KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
_BACKLOG = 1024
_CLOSE_SECONDS = 0.5


class BrokerServer:
    """
    A broker for as long as its context lasts.

    Namespaces without a port get one that is free. The broker listens on the loopback interface unless told otherwise.
    """

    def __init__(
        self, namespaces: Iterable[NamespaceConfig], clock: Clock | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._host = host
        self.namespaces = {config.name: Namespace(config, self._clock) for config in namespaces}
        self._listeners: dict[str, _Listener] = {}

    async def __aenter__(self) -> Self:
        """Listen on all ports; an OSError if one is taken."""
        try:
            for name, namespace in self.namespaces.items():
                listener = _Listener(namespace)
                await listener.listen(self._host, namespace.config.port or 0)
                self._listeners[name] = listener
        except OSError:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections and stop to listen."""
        await self.stop()

    async def stop(self) -> None:
        """Close all connections, telling the peers, and stop to listen."""
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.close()
        await asyncio.gather(*(listener.closed() for listener in listeners))

    def reset(self) -> None:
        """Start anew: every connection is closed, every entity is as it was configured and empty."""
        for name, listener in self._listeners.items():
            self.namespaces[name] = Namespace(self.namespaces[name].config, self._clock)
            listener.serve(self.namespaces[name])

    def port(self, name: str) -> int:
        """Return the port a namespace listens on."""
        return self._listeners[name].port

    def connection_string(self, name: str) -> str:
        """Return the connection string of a namespace, in the form the emulators use."""
        host = "localhost" if self._host == "127.0.0.1" else self._host
        return (
            f"Endpoint=sb://{host}:{self.port(name)};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};"
            "UseDevelopmentEmulator=true"
        )

    def advance(self) -> None:
        """Do everything that is due by the clock; for a clock that does not move by itself."""
        for listener in self._listeners.values():
            listener.advance()


class _Listener:
    """The port of one namespace, its connections and its timer."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.port = 0
        self.peers: set[_Peer] = set()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self.is_closing = False

    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), host, port, backlog=_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def serve(self, namespace: Namespace) -> None:
        """Serve another namespace from now on, and hang up on everyone who talks to the one before."""
        self.namespace = namespace
        for peer in list(self.peers):
            peer.shut_down()

    def close(self) -> None:
        """Stop to listen and hang up on everyone."""
        self.is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers):
            peer.shut_down()

    async def closed(self) -> None:
        """Return when all connections are closed; those that take too long are cut."""
        if self.peers:
            await asyncio.wait([peer.closed for peer in self.peers], timeout=_CLOSE_SECONDS)
        for peer in list(self.peers):
            peer.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def advance(self) -> None:
        """Do what is due and set the timer for what comes next."""
        self._timer = None
        try:
            self.namespace.advance()
        except Exception:
            LOG.exception("namespace %s: what was due has failed", self.namespace.name)
        self.set_timer()

    def set_timer(self) -> None:
        """Be called back when something is due next."""
        deadline = self.namespace.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(deadline - milliseconds(self.namespace.clock), 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self.advance)


class _Peer(asyncio.Protocol):
    """One connection: bytes between its socket and its protocol."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(listener.namespace, self._wake)
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._ticker: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A round trip per settlement: waiting to fill a segment would make each one 40 ms.
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.peers.add(self)
        self._tick()
        if self._listener.is_closing:
            self.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive(data)
        except Exception:
            # A defect met on one connection must not reach the others.
            LOG.exception("a connection to %s failed", self._listener.namespace.name)
            self._connection.close(Refusal(errors.INTERNAL_ERROR, "the broker failed; its log says how"))
        self._flush()
        self._listener.set_timer()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended, it has
        self._listener.peers.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)
        if self._ticker is not None:
            self._ticker.cancel()
        self._transport = None
        self._connection.lost()
        self._listener.set_timer()

    def pause_writing(self) -> None:
        self._connection.is_writable = False

    def resume_writing(self) -> None:
        self._connection.resume()

    def _wake(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        output = self._connection.output
        if self._transport is None:
            output.clear()
            return
        if output:
            data = output[0] if len(output) == 1 else b"".join(output)
            output.clear()
            self._transport.write(data)
        if self._connection.is_closed:
            self._transport.close()

    def _tick(self) -> None:
        interval = self._connection.tick()
        self._ticker = self._loop.call_later(interval, self._tick)

    def shut_down(self) -> None:
        self._connection.close(Refusal(errors.CONNECTION_FORCED, "the broker is shutting down"))
        self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
