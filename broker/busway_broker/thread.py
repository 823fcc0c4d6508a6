"""A broker in a thread of its own, for tests and for synchronous programs."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Self

from busway_broker.config import NamespaceConfig
from busway_broker.core.backlog import Counts
from busway_broker.core.namespace import Namespace
from busway_broker.event_loop import new_event_loop
from busway_broker.faults import Fault
from busway_broker.server import BrokerServer
from shared.clock import Clock

# Long enough for a busy machine.
_ANSWER_SECONDS = 60


class RunningBroker:
    """
    A broker that runs while its context is open, by default on free ports of the loopback interface.

    All methods may be called from any thread; functions given to them run in the broker's thread.
    """

    def __init__(
        self,
        namespaces: Iterable[NamespaceConfig],
        clock: Clock | None = None,
        *,
        data: Path | None = None,
        is_synced: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With a ManualClock, time stops until `advance`; *data*, *is_synced* and *tls* are those of the server."""
        self._configs = list(namespaces)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="busway-broker", daemon=True)
        self._server = BrokerServer(self._configs, clock, data=data, is_synced=is_synced, tls=tls)

    def __enter__(self) -> Self:
        """Start listening."""
        self._thread.start()
        try:
            self._run(self._server.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and end the thread."""
        self._run(self._server.stop())
        self._end()

    def connection_string(self, name: str) -> str:
        """Return the connection string of a namespace or alias."""
        return self._server.connection_string(name)

    def port(self, name: str) -> int:
        """Return the port of a namespace."""
        return self._server.port(name)

    def inspect[Result](self, name: str, look: Callable[[Namespace], Result]) -> Result:
        """Return the result of *look* for a namespace, called in the broker's thread."""

        def looked(server: BrokerServer) -> Result:
            result = look(server.namespaces[name])
            # What *look* has changed may be due before the next timer.
            server.advance()
            return result

        return self.call(looked)

    def call[Result](self, work: Callable[[BrokerServer], Result]) -> Result:
        """Return the result of *work* with the server, called in the broker's thread."""

        async def called(server: BrokerServer) -> Result:
            return work(server)

        return self.run(called)

    def run[Result](self, work: Callable[[BrokerServer], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of *work* with the server, run in the broker's thread."""
        return self._run(work(self._server))

    def counts(self, name: str) -> dict[str, Counts]:
        """Return how many messages the queues and subscriptions of a namespace hold, by path."""
        return self.inspect(name, Namespace.counts)

    def faults(self, name: str) -> "NamespaceFaults":
        """Return the faults of a namespace; `reset` clears them."""
        return NamespaceFaults(self, name)

    def reset(self) -> None:
        """Close all connections, and start again with the configured entities, all empty."""
        self.call(BrokerServer.reset)

    def advance(self, seconds: float) -> None:
        """Advance a ManualClock; TypeError for any other clock."""
        self.call(lambda server: server.advance_clock(seconds))

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_SECONDS)
        self._loop.close()

    def _run[Result](self, work: "asyncio._CoroutineLike[Result]") -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)


class NamespaceFaults:
    """Sets and clears the faults of a namespace of a running broker, from any thread."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self._broker = broker
        self._name = name

    def add(self, fault: Fault) -> None:
        """Add a fault after the existing ones."""
        self._broker.inspect(self._name, lambda namespace: namespace.faults.add(fault))

    def clear(self) -> None:
        """Remove all faults."""
        self._broker.inspect(self._name, lambda namespace: namespace.faults.clear())

    def plain(self) -> list[dict[str, object]]:
        """Return the faults as plain data, with the numbers of operations they have `seen` and `struck`."""
        return self._broker.inspect(self._name, lambda namespace: namespace.faults.plain())

    def cut_connections(self) -> None:
        """Break all connections now, as a network failure would."""
        self._broker.call(lambda server: server.cut_connections(self._name))

    def upgrade(self) -> None:
        """End the locks on sessions, and then all connections, as an upgrade of the service does; accept new ones."""
        self._broker.call(lambda server: server.upgrade(self._name))

    def fail_over(self) -> int:
        """Make another region of a namespace of hubs the primary one: geo-replication. Return its number."""
        return self._broker.call(lambda server: server.fail_over(self._name))

    def promote(self) -> str | None:
        """Let the alias of a pair, of which this is the secondary namespace, lead to it; return the alias."""
        alias = self._broker.call(lambda server: server.promote(self._name))
        self.come_up()
        return alias

    def go_down(self) -> None:
        """Break all connections and accept no new ones; messages, locks and timers continue."""
        self._broker.call(lambda server: server.go_down(self._name))

    def come_up(self) -> None:
        """Listen again, on the same port."""
        self._broker.run(lambda server: server.come_up(self._name))

    def expire_locks(self, path: str) -> None:
        """End all locks on a queue, a subscription or one of their dead-letter queues now."""
        self._broker.inspect(self._name, lambda namespace: namespace.store(path).expire_locks())
