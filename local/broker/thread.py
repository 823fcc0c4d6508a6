"""A broker in a thread of its own, for tests and for programs that are not asynchronous."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local.broker.config import NamespaceConfig
from local.broker.core.entities import Counts
from local.broker.core.namespace import Namespace
from local.broker.event_loop import new_event_loop
from local.broker.faults import Fault
from local.broker.server import BrokerServer
from shared.clock import Clock, ManualClock

# A broker that has not answered by then never will; a busy machine takes a while.
_ANSWER_SECONDS = 60


class RunningBroker:
    """
    A broker that runs for as long as its context lasts, on free ports of the loopback interface.

    Everything it offers may be called from any thread; the namespaces are shown in the broker's own.
    """

    def __init__(
        self,
        namespaces: Iterable[NamespaceConfig],
        clock: Clock | None = None,
        *,
        data: Path | None = None,
        is_synced: bool = True,
    ) -> None:
        """With a ManualClock time stands still until `advance`; *data* and *is_synced* are as for the server."""
        self._configs = list(namespaces)
        self._clock = clock
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="busway-broker", daemon=True)
        self._server = BrokerServer(self._configs, clock, data=data, is_synced=is_synced)

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        self._run(self._server.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections and end the thread."""
        self._run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_SECONDS)
        self._loop.close()

    def connection_string(self, name: str) -> str:
        """Return the connection string of a namespace."""
        return self._server.connection_string(name)

    def port(self, name: str) -> int:
        """Return the port of a namespace."""
        return self._server.port(name)

    def inspect[Result](self, name: str, look: Callable[[Namespace], Result]) -> Result:
        """Return what *look* sees in a namespace while nothing else happens to it."""

        async def in_loop() -> Result:
            result = look(self._server.namespaces[name])
            # What *look* has changed may be due earlier than anything the server waits for.
            self._server.advance()
            return result

        return self._run(in_loop())

    def run[Result](self, work: Callable[[BrokerServer], Coroutine[Any, Any, Result]]) -> Result:
        """Return what *work* makes of the server, in the broker's own thread."""
        return self._run(work(self._server))

    def counts(self, name: str) -> dict[str, Counts]:
        """Return how many messages the queues and subscriptions of a namespace hold, by path."""
        return self.inspect(name, Namespace.counts)

    def faults(self, name: str) -> "NamespaceFaults":
        """Return what sets faults in a namespace; `reset` clears them."""
        return NamespaceFaults(self, name)

    def reset(self) -> None:
        """Start anew: every connection is closed, every entity is as it was configured and empty."""

        async def in_loop() -> None:
            self._server.reset()

        self._run(in_loop())

    def advance(self, seconds: float) -> None:
        """Let time pass on a ManualClock; a TypeError for a clock that runs by itself."""
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise TypeError("the broker's clock runs by itself, expected a ManualClock to advance")

        async def in_loop() -> None:
            clock.advance(seconds)
            self._server.advance()

        self._run(in_loop())

    def _run[Result](self, work: "asyncio._CoroutineLike[Result]") -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)


class NamespaceFaults:
    """The faults of a namespace of a running broker, to be set and cleared from any thread."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self._broker = broker
        self._name = name

    def add(self, fault: Fault) -> None:
        """Set a fault, after those that are set."""
        self._broker.inspect(self._name, lambda namespace: namespace.faults.add(fault))

    def clear(self) -> None:
        """Let everything go right again."""
        self._broker.inspect(self._name, lambda namespace: namespace.faults.clear())

    def plain(self) -> list[dict[str, object]]:
        """Return the faults as plain data, with the operations they have `seen` and `struck`."""
        return self._broker.inspect(self._name, lambda namespace: namespace.faults.plain())

    def cut_connections(self) -> None:
        """Break all connections now, without a word to their peers."""

        async def cut(server: BrokerServer) -> None:
            server.cut_connections(self._name)

        self._broker.run(cut)

    def go_down(self) -> None:
        """Be away from now on: connections break, and nobody listens; messages, locks and times go on."""

        async def down(server: BrokerServer) -> None:
            server.go_down(self._name)

        self._broker.run(down)

    def come_up(self) -> None:
        """Be there again, on the port from before."""
        self._broker.run(lambda server: server.come_up(self._name))

    def expire_locks(self, path: str) -> None:
        """End all locks on a queue, a subscription or one of their dead-letter queues now."""
        self._broker.inspect(self._name, lambda namespace: namespace.store(path).expire_locks())
