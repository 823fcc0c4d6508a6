"""
The broker on sockets: every namespace listens on a port of its own.

A connection belongs to the namespace whose port it came in on; host names in the protocol are not looked at.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from local.broker import errors
from local.broker.config import NamespaceConfig, Right
from local.broker.core.namespace import Namespace
from local.broker.core.store import milliseconds
from local.broker.errors import Refusal
from local.broker.protocol.connection import Connection
from local.broker.storage.database import StorageError
from local.broker.storage.namespace_storage import NamespaceStorage, folder_name
from shared.clock import Clock, SystemClock

LOG = logging.getLogger(__name__)

KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
_BACKLOG = 1024
_READ_SIZE = 128 * 1024
_CLOSE_SECONDS = 0.5


class BrokerServer:
    """
    A broker for as long as its context lasts.

    Namespaces without a port get one that is free. The broker listens on the loopback interface unless told otherwise.
    """

    def __init__(
        self,
        namespaces: Iterable[NamespaceConfig],
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        *,
        data: Path | None = None,
        is_synced: bool = True,
    ) -> None:
        """
        Keep everything in memory, or in folders in *data*; StorageError if they cannot be used.

        Without *is_synced* what was accepted survives the end of the process, but not that of the machine.
        """
        self._clock = SystemClock() if clock is None else clock
        self._host = host
        self.namespaces: dict[str, Namespace] = {}
        self._storages: dict[str, NamespaceStorage] = {}
        self._failure: asyncio.Queue[StorageError] = asyncio.Queue()
        for config in namespaces:
            if data is None:
                self.namespaces[config.name] = Namespace(config, self._clock)
            else:
                folder = data / folder_name(config.name)
                storage = NamespaceStorage(folder, config, self._clock, is_synced=is_synced)
                self._storages[config.name], self.namespaces[config.name] = storage, storage.namespace
        self._listeners: dict[str, _Listener] = {}

    async def __aenter__(self) -> Self:
        """Listen on all ports; an OSError if one is taken."""
        try:
            for name, namespace in self.namespaces.items():
                listener = _Listener(namespace, self._storages.get(name), self._failure.put_nowait)
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
        for storage in self._storages.values():
            storage.close()
        self._storages.clear()

    async def failed(self) -> StorageError:
        """Wait until state cannot be kept any more, and return why; from then on nobody is served."""
        return await self._failure.get()

    def reset(self) -> None:
        """Start anew: every connection is closed, every entity is as it was configured and empty."""
        for name, listener in self._listeners.items():
            storage = self._storages.get(name)
            self.namespaces[name] = (
                Namespace(self.namespaces[name].config, self._clock) if storage is None else storage.reset()
            )
            listener.serve(self.namespaces[name])

    def cut_connections(self, name: str) -> None:
        """Break all connections to a namespace, without a word to their peers; new ones are taken."""
        self._listeners[name].cut()

    def go_down(self, name: str) -> None:
        """Break all connections to a namespace and take no new ones; its messages, locks and times go on."""
        self._listeners[name].go_down()

    async def come_up(self, name: str) -> None:
        """Listen again, on the port from before."""
        await self._listeners[name].listen(self._host, self.port(name))

    def port(self, name: str) -> int:
        """Return the port a namespace listens on."""
        return self._listeners[name].port

    def connection_string(self, name: str) -> str:
        """Return the connection string of a namespace, in the form the emulators use."""
        return connection_string(self._host, self.port(name), self.namespaces[name].config)

    def advance(self) -> None:
        """Do everything that is due by the clock; for a clock that does not move by itself."""
        for listener in self._listeners.values():
            listener.advance()


def connection_string(host: str, port: int, config: NamespaceConfig) -> str:
    """Return a connection string with a key that the namespace lets in, one that may do everything if there is one."""
    keys = sorted(config.shared_access_keys, key=lambda key: Right.MANAGE not in key.rights)
    name, key = (keys[0].name, keys[0].key) if keys else (KEY_NAME, KEY)
    return (
        f"Endpoint=sb://{'localhost' if host == '127.0.0.1' else host}:{port};SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true"
    )


class _Listener:
    """The port of one namespace, its connections and its timer."""

    def __init__(
        self, namespace: Namespace, storage: NamespaceStorage | None, failed: Callable[[StorageError], None]
    ) -> None:
        self.namespace = namespace
        self.storage = storage
        self._failed = failed
        self._is_kept = True
        self.port = 0
        self.peers: set[_Peer] = set()
        # One for all: what has been read into it is taken out before anyone else reads.
        self.buffer = memoryview(bytearray(_READ_SIZE))
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

    def cut(self) -> None:
        """Break all connections, as a network would."""
        for peer in list(self.peers):
            peer.abort()

    def go_down(self) -> None:
        """Stop to listen and break all connections."""
        if self._server is not None:
            self._server.close()
        self.cut()

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
        self.commit()
        self.storage = None

    def advance(self) -> None:
        """Do what is due and set the timer for what comes next."""
        self._timer = None
        try:
            self.namespace.advance()
        except Exception:
            LOG.exception("namespace %s: what was due has failed", self.namespace.name)
        self.commit()
        self.set_timer()

    def commit(self) -> bool:
        """Keep all that has changed, before anyone is told of it; return whether that has always been possible."""
        if self.storage is not None and self._is_kept:
            try:
                self.storage.commit()
            except StorageError as error:
                # What is in memory now differs from what is kept: nobody may see it.
                LOG.critical("namespace %s: %s", self.namespace.name, error)
                self._is_kept = False
                self._failed(error)
                for peer in list(self.peers):
                    peer.abort()
        return self._is_kept

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


class _Peer(asyncio.BufferedProtocol):
    """
    One connection: bytes between its socket and its protocol.

    A peer that does not take its answers is not read from either, so that what is kept for it stays small.
    """

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(listener.namespace, self._wake)
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._is_paused = False
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_interval = 0.0
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A round trip per settlement: waiting to fill a segment would make each one 40 ms.
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.peers.add(self)
        self._await_tick()
        if self._listener.is_closing or not self._listener.commit():
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop does not know either
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._connection.receive(bytes(self._listener.buffer[:nbytes]))
        except Exception:
            # A defect met on one connection must not reach the others.
            LOG.exception("a connection to %s failed", self._listener.namespace.name)
            self._connection.close(Refusal(errors.INTERNAL_ERROR, "the broker failed; its log says how"))
        if self._connection.tick_interval != self._tick_interval:
            self._await_tick()
        if self._listener.storage is None:
            self._flush()
        else:
            # In the next turn of the loop: one write for all whose requests have arrived in this one.
            self._wake()
        self._listener.set_timer()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended, it has
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
        self._is_paused = True
        self._connection.is_writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
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
        if not self._listener.commit() or self._transport is None:
            return
        if data:
            self._transport.write(data)
        if self._connection.is_dropped:
            self._transport.abort()
        elif self._connection.is_closed:
            self._transport.close()
        elif not self._connection.is_writable and not self._is_paused:
            # The socket has taken all of it: there is more, after the other connections have had their turn.
            self._loop.call_soon(self._resume)

    def _await_tick(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._tick_interval = self._connection.tick_interval
        self._ticker = self._loop.call_later(self._tick_interval, self._tick)

    def _tick(self) -> None:
        self._connection.tick()
        self._flush()
        self._await_tick()

    def shut_down(self) -> None:
        self._connection.close(Refusal(errors.CONNECTION_FORCED, "the broker is shutting down"))
        self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
