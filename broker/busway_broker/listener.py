"""The port that a namespace is served on."""

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from busway_broker.core.namespace import Namespace
from busway_broker.core.times import milliseconds
from busway_broker.protocol.holdings import TotalHoldings
from busway_broker.storage.database import StorageError
from busway_broker.storage.namespace_storage import NamespaceStorage
from busway_broker.tls_server import TlsServer

LOG = logging.getLogger(__name__)

_BACKLOG = 1024
READ_SIZE = 128 * 1024
_CLOSE_SECONDS = 0.5


class Peer(asyncio.BufferedProtocol, ABC):
    """An open connection as its listener sees it: what takes its bytes."""

    closed: asyncio.Future[None]

    @abstractmethod
    def shut_down(self, reason: str = "the broker is shutting down") -> None:
        """Close the connection, with the reason for the client."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection, as a network would."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return the client and its links as plain data."""

    @abstractmethod
    def hold(self, change: int) -> None:
        """Count *change* more bytes that the connection holds outside of this."""


class Connect(Protocol):
    """Returns what takes the bytes of a new connection."""

    def __call__(self, listener: "Listener", *, is_web_socket: bool = False) -> Peer:
        """Serve a connection of *listener*, which may be a WebSocket."""
        ...


class HttpConnections(Protocol):
    """The connections that have begun with an HTTP request."""

    async def close(self) -> None:
        """Close them."""
        ...


class Listener:
    """The port of one namespace, its connections and its timer."""

    def __init__(
        self,
        namespace: Namespace,
        storage: NamespaceStorage | None,
        connect: "Connect",
        failed: Callable[[StorageError], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        Let *connect* serve each connection; report to *failed* if the state cannot be stored.

        With *tls* clients may use TLS, and need not.
        """
        self.namespace = namespace
        self.storage = storage
        self.connect = connect
        self._failed = failed
        self._tls = tls
        self._can_store = True
        self.host = ""
        self.port = 0
        self.peers: set[Peer] = set()
        self.holdings = TotalHoldings()
        # Shared by all connections: each copies what it has read before the next one reads.
        self.buffer = memoryview(bytearray(READ_SIZE))
        self._server: asyncio.Server | TlsServer | None = None
        self._kept: list[socket.socket] = []
        """Sockets that are bound to the port while the namespace is down, and do not listen."""
        self.web_sockets: HttpConnections | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self.is_closing = False

    async def listen(self, host: str, port: int) -> None:
        """Accept connections; an OSError if the port is taken."""
        self.host = host
        self._release_port()
        if self._tls is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: self.connect(self), host, port, backlog=_BACKLOG)
        else:
            listening = socket.create_server((host, port), backlog=_BACKLOG)
            listening.setblocking(False)
            self._server = TlsServer(listening, self._tls, lambda: self.connect(self))
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def is_listening(self) -> bool:
        """Whether it accepts connections."""
        return not self._kept

    def serve(self, namespace: Namespace) -> None:
        """Serve another namespace from now on, and close the connections to the old one."""
        self.namespace = namespace
        self.close_connections()

    def close_connections(self, reason: str = "the broker is shutting down") -> None:
        """Close all connections, with the reason for the clients."""
        for peer in list(self.peers):
            peer.shut_down(reason)

    def cut(self) -> None:
        """Break all connections, as a network failure would."""
        for peer in list(self.peers):
            peer.abort()

    def go_down(self) -> None:
        """Stop listening and break all connections; nobody else gets the port meanwhile."""
        if self._server is not None:
            names = [(each.family, each.getsockname()) for each in self._server.sockets if each.fileno() >= 0]
            self._server.close()
            for family, name in names:
                kept = socket.socket(family)
                self._kept.append(kept)
                # Connections that have just ended still have the port.
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind(name)
        self.cut()

    def _release_port(self) -> None:
        while self._kept:
            self._kept.pop().close()

    def close(self) -> None:
        """Stop listening and close all connections."""
        self.is_closing = True
        self._release_port()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is not None:
            self._server.close()
        self.close_connections()

    async def closed(self) -> None:
        """Wait until all connections are closed; break those that take too long."""
        if self.peers:
            await asyncio.wait([peer.closed for peer in self.peers], timeout=_CLOSE_SECONDS)
        for peer in list(self.peers):
            peer.abort()
        if self.web_sockets is not None:
            await self.web_sockets.close()
        if self._server is not None:
            await self._server.wait_closed()
        self.commit()
        self.storage = None

    def advance(self) -> None:
        """Do what is due, and set the timer for the next deadline."""
        self._timer = None
        try:
            self.namespace.advance()
        except Exception:
            LOG.exception("namespace %s: a timer failed", self.namespace.name)
        self.commit()
        self.set_timer()

    def commit(self) -> bool:
        """Store all changes, before any answer is sent; return False once that has failed."""
        if self.storage is not None and self._can_store:
            try:
                self.storage.commit()
            except StorageError as error:
                # The memory now differs from the file: no client may see it.
                LOG.critical("namespace %s: %s", self.namespace.name, error)
                self._can_store = False
                self._failed(error)
                for peer in list(self.peers):
                    peer.abort()
        return self._can_store

    def set_timer(self) -> None:
        """Set the timer for the next deadline."""
        deadline = self.namespace.timers.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(deadline - milliseconds(self.namespace.clock), 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self.advance)
