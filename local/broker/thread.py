"""A broker in a thread of its own, for tests and for programs that are not asynchronous."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from local.broker.config import NamespaceConfig
from local.broker.core.entities import Counts
from local.broker.core.namespace import Namespace
from local.broker.server import BrokerServer
from shared.clock import Clock, ManualClock

_STOP_SECONDS = 5


class RunningBroker:
    """
    A broker that runs for as long as its context lasts, on free ports of the loopback interface.

    Everything it offers may be called from any thread; the namespaces are shown in the broker's own.
    """

    def __init__(self, namespaces: Iterable[NamespaceConfig], clock: Clock | None = None) -> None:
        """With a ManualClock time stands still until `advance`."""
        self._configs = list(namespaces)
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="busway-broker", daemon=True)
        self._server = BrokerServer(self._configs, clock)

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
        self._thread.join(_STOP_SECONDS)
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
            return look(self._server.namespaces[name])

        return self._run(in_loop())

    def counts(self, name: str) -> dict[str, Counts]:
        """Return how many messages the queues and subscriptions of a namespace hold, by path."""
        return self.inspect(name, Namespace.counts)

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
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_STOP_SECONDS)
