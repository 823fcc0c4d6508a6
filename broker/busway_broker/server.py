"""
The broker on sockets: every namespace listens on a port of its own.

A connection belongs to the namespace of its port; host names in the protocol are ignored.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from busway_broker.config import NamespaceConfig
from busway_broker.connection_string import EMULATOR, connection_string
from busway_broker.core.namespace import Namespace
from busway_broker.listener import Connect, Listener, Peer
from busway_broker.socket_peer import SocketPeer
from busway_broker.storage.database import StorageError
from busway_broker.storage.namespace_storage import NamespaceStorage, folder_name
from shared.clock import Clock, ManualClock, SystemClock


class Alias:
    """
    The alias of two paired namespaces: Azure's geo-disaster recovery, which replicates entities and no messages.

    The alias is a name that leads to the primary namespace; here it is a port. A failover lets it lead to the other
    one. What is connected stays where it is until its connection ends (azure-sdk-for-net 7164): in a disaster at once,
    in a drill when the client is restarted.
    """

    def __init__(self, primary: str, secondary: str, listeners: Mapping[str, Listener]) -> None:
        """Lead to *primary* among *listeners* until `fail_over`."""
        self.primary = primary
        self.secondary = secondary
        self._listeners = listeners

    def connect(self, listener: Listener, *, is_web_socket: bool = False) -> Peer:  # noqa: ARG002 - the alias's own
        """Serve a connection as one of the namespace to which the alias leads."""
        primary = self._listeners[self.primary]
        return primary.connect(primary, is_web_socket=is_web_socket)

    def fail_over(self) -> None:
        """Lead to the other namespace. As in Azure, that ends the pairing: the failover has no way back."""
        self.primary, self.secondary = self.secondary, ""


def paired(primary: NamespaceConfig, secondary: NamespaceConfig) -> NamespaceConfig:
    """Return *secondary* with the entities of *primary*: the pairing replicates them."""
    return replace(secondary, queues=primary.queues, topics=primary.topics, hubs=primary.hubs)


class BrokerServer:
    """
    A broker that serves while its context is open.

    Namespaces without a port get a free one. The broker listens on the loopback interface by default.
    """

    def __init__(
        self,
        namespaces: Iterable[NamespaceConfig],
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        *,
        data: Path | None = None,
        is_synced: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        Keep everything in memory, or also in folders in *data*; StorageError if they cannot be used.

        Without *is_synced*, accepted messages survive the end of the process, but perhaps not a failure of the machine.
        With *tls* clients may use TLS, and need not.
        """
        self._clock = SystemClock() if clock is None else clock
        configs = {config.name: config for config in namespaces}
        self._listeners: dict[str, Listener] = {}
        self._aliases: dict[str, Alias] = {}
        for primary in [*configs.values()]:
            if primary.pairing is not None:
                alias, secondary = primary.pairing.alias, primary.pairing.secondary
                self._aliases[alias] = Alias(primary.name, secondary, self._listeners)
                configs[secondary] = paired(primary, configs[secondary])
        self._host = host
        self._tls = tls
        self.namespaces: dict[str, Namespace] = {}
        self._storages: dict[str, NamespaceStorage] = {}
        self._failure: asyncio.Queue[StorageError] = asyncio.Queue()
        for config in configs.values():
            if data is None:
                self.namespaces[config.name] = Namespace(config, self._clock)
            else:
                folder = data / folder_name(config.name)
                storage = NamespaceStorage(folder, config, self._clock, is_synced=is_synced)
                self._storages[config.name], self.namespaces[config.name] = storage, storage.namespace

    async def __aenter__(self) -> Self:
        """Listen on all ports; an OSError if one is taken."""
        try:
            for name, namespace in self.namespaces.items():
                await self._listen(name, namespace, SocketPeer, namespace.config.port)
            for name, alias in self._aliases.items():
                namespace = self.namespaces[alias.primary]
                pairing = namespace.config.pairing
                await self._listen(name, namespace, alias.connect, None if pairing is None else pairing.port)
        except OSError:
            await self.stop()
            raise
        return self

    async def _listen(self, name: str, namespace: Namespace, connect: Connect, port: int | None) -> None:
        listener = Listener(namespace, self._storages.get(name), connect, self._failure.put_nowait, self._tls)
        await listener.listen(self._host, port or 0)
        self._listeners[name] = listener

    async def __aexit__(self, *_: object) -> None:
        """Close all connections and stop listening."""
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and close all connections, with the reason for the clients."""
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.close()
        await asyncio.gather(*(listener.closed() for listener in listeners))
        for storage in self._storages.values():
            storage.close()
        self._storages.clear()

    async def failed(self) -> StorageError:
        """Wait until storing the state fails, and return the error; from then on no client is served."""
        return await self._failure.get()

    def listener(self, name: str) -> Listener:
        """Return the listener of a namespace."""
        return self._listeners[name]

    def reset(self) -> None:
        """Close all connections, and start again with the configured entities, all empty."""
        for name in self.namespaces:
            listener, storage = self._listeners[name], self._storages.get(name)
            self.namespaces[name] = (
                Namespace(self.namespaces[name].config, self._clock) if storage is None else storage.reset()
            )
            listener.serve(self.namespaces[name])

    def connections(self, name: str) -> list[dict[str, object]]:
        """Return the open connections to a namespace with their links, as plain data."""
        return [peer.describe() for peer in self._listeners[name].peers]

    def cut_connections(self, name: str) -> None:
        """Break all connections to a namespace, as a network failure would; new ones are accepted."""
        self._listeners[name].cut()

    def upgrade(self, name: str) -> None:
        """End the locks on sessions, and then all connections, as an upgrade of the service does; accept new ones."""
        self.namespaces[name].lose_sessions()
        self._listeners[name].close_connections("the service is being upgraded")

    def is_secondary(self, namespace: NamespaceConfig) -> bool:
        """Return whether *namespace* is served here as the secondary one of a pair."""
        return any(alias.secondary == namespace.name for alias in self._aliases.values())

    def promote(self, name: str) -> str | None:
        """Let the alias of a secondary namespace lead to it from now on, and return the alias; None without one."""
        found = next((alias for alias, pair in self._aliases.items() if pair.secondary == name), None)
        if found is not None:
            self._aliases[found].fail_over()
        return found

    def fail_over(self, name: str) -> int:
        """Make another region of a geo-replicated namespace the primary one, and return its number."""
        region = self.namespaces[name].fail_over()
        self.cut_connections(name)
        return region

    def go_down(self, name: str) -> None:
        """Break all connections to a namespace and accept no new ones; messages, locks and timers continue."""
        for each in self._ports_of(name):
            self._listeners[each].go_down()

    async def come_up(self, name: str) -> None:
        """Listen again, on the same port."""
        for each in self._ports_of(name):
            if not self._listeners[each].is_listening:
                await self._listeners[each].listen(self._host, self.port(each))

    def _ports_of(self, name: str) -> list[str]:
        """Return a namespace, and the aliases that lead to it."""
        return [name, *(alias for alias, pair in self._aliases.items() if pair.primary == name)]

    def port(self, name: str) -> int:
        """Return the port a namespace or alias listens on."""
        return self._listeners[name].port

    def connection_string(self, name: str) -> str:
        """Return the connection string of a namespace or alias, in the form that the emulators use."""
        alias = self._aliases.get(name)
        config = self.namespaces[name if alias is None else alias.primary].config
        return connection_string(self._host, self.port(name), config)

    def tls_connection_string(self, name: str) -> str:
        """Return the connection string of a namespace for clients that use TLS, as they do for Azure."""
        return self.connection_string(name).removesuffix(f";{EMULATOR}")

    def advance_clock(self, seconds: float) -> None:
        """Advance a ManualClock, and do everything that is due then; TypeError for any other clock."""
        if not isinstance(self._clock, ManualClock):
            raise TypeError(
                "the broker's clock advances by itself, expected a ManualClock (in pytest, ask for busway_clock)"
            )
        self._clock.advance(seconds)
        self.advance()

    def advance(self) -> None:
        """Do everything that is due; for a clock that does not advance by itself."""
        for name in self.namespaces:
            self._listeners[name].advance()
