"""
One virtual time for the broker in this process and for hosts in others.

It advances only while the pipeline or a host sleeps between two attempts, or when the scenario advances it. Sleepers
advance it in small steps, each a round trip through the broker's thread and the host's event loop. So network traffic
takes a few virtual seconds, never a virtual minute, however slow the machine is.
"""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Self

from local.broker.thread import RunningBroker
from shared.clock import ManualClock
from tests.end_to_end.host_process import HostProcess
from tests.faults.line import Line
from tests.faults.routes import Route

_PORT = "BUSWAY_TEST_CLOCK"
_SKEW = "BUSWAY_TEST_SKEW"
_STEP_SECONDS = 0.5
_PAUSE_SECONDS = 0.002
# An attempt to connect to an unavailable target takes less.
_STANDSTILL_SECONDS = 1.0
_LEAP_SECONDS = 30.0
_APP = Path(__file__).parent / "apps" / "virtual"

_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from local.host.host import run
from tests.faults.virtual_time import RemoteClock
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("azure").setLevel(logging.WARNING)
clock = RemoteClock.of_environment()
print_ready = lambda host: print("ready", 0, *[function.name for function in host.functions], flush=True)
asyncio.run(run(Path(sys.argv[1]), clock=clock, sleep=clock.sleep, http_port=0, on_ready=print_ready))
"""


class RemoteClock:
    """The scenario's clock as a host sees it, *skew* seconds ahead."""

    def __init__(self, connection: "Connection[object, object]", skew: float) -> None:
        """Read the time over *connection*."""
        self._connection = connection
        self._skew = timedelta(seconds=skew)
        self._turn = threading.Lock()

    @classmethod
    def of_environment(cls) -> Self:
        """Return the clock that this process was started with."""
        connection = Client(("127.0.0.1", int(os.environ[_PORT])))
        return cls(connection, float(os.environ[_SKEW]))

    def now(self) -> datetime:
        """Return the virtual time in UTC, skewed."""
        return self._advance(0)[0] + self._skew

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._advance(0)[1]

    async def sleep(self, seconds: float) -> None:
        """Wait until *seconds* of virtual time have passed; other sleepers advance it too."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            await asyncio.to_thread(self._advance, min(left, _STEP_SECONDS))
            await asyncio.sleep(_PAUSE_SECONDS)

    def _advance(self, seconds: float) -> tuple[datetime, float]:
        """Advance the clock by *seconds* and return the time."""
        with self._turn:
            self._connection.send(seconds)
            answer = self._connection.recv()
        assert isinstance(answer, tuple)
        return answer


class ClockServer:
    """Lets hosts read and advance the clock of a broker while its context is open."""

    def __init__(self, broker: RunningBroker, clock: ManualClock) -> None:
        """Serve *clock*; an advance also triggers what is due in *broker*."""
        self._broker = broker
        self._clock = clock
        self._listener = Listener(("127.0.0.1", 0))
        self._is_stopped = False
        self._thread = threading.Thread(target=self._accept, name="virtual-time", daemon=True)

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return int(self._listener.address[1])

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; later requests get no answer."""
        self._is_stopped = True
        # Unblock the thread, which waits for a connection.
        Client(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._is_stopped:
                connection.close()
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: "Connection[object, object]") -> None:
        with connection:
            while True:
                try:
                    seconds = connection.recv()
                    assert isinstance(seconds, int | float)
                    if seconds > 0:
                        self._broker.advance(seconds)
                    connection.send((self._clock.now(), self._clock.monotonic()))
                except (EOFError, OSError):
                    return


class VirtualHost(HostProcess):
    """A host of the app that uses the scenario's clock."""

    program = _PROGRAM


class VirtualLine(Line):
    """A line in virtual time; its hosts' clocks are *skew* seconds ahead."""

    skew = 0.0

    def __init__(self, route: Route, folder: Path, **options: object) -> None:
        """Start at the machine's time, because the SDKs' tokens use its clock."""
        self.clock = ManualClock(datetime.now(UTC))
        super().__init__(route, folder, **(options | {"clock": self.clock}))  # type: ignore[arg-type] # passed on unchanged

    def __enter__(self) -> Self:
        """Start the broker and the clock."""
        super().__enter__()
        self._server = self._stack.enter_context(ClockServer(self.broker, self.clock))
        return self

    def advance(self, seconds: float) -> None:
        """Advance the clock while nobody sleeps."""
        self.broker.advance(seconds)

    def wait_until_passed(self, seconds: float) -> None:
        """Wait until the virtual time is *seconds* after the start; advance it while nobody sleeps."""
        while self.clock.monotonic() < seconds:
            self.remaining()
            before = self.clock.monotonic()
            time.sleep(_STANDSTILL_SECONDS)
            if self.clock.monotonic() == before:
                self.advance(_LEAP_SECONDS)

    def _make_host(self, folder: Path, settings: Mapping[str, str], arguments: Sequence[str]) -> HostProcess:
        all_settings = self._settings() | dict(settings) | {_PORT: str(self._server.port), _SKEW: str(self.skew)}
        return VirtualHost(str(_APP), folder, all_settings, *arguments)


class LineWithHostAhead(VirtualLine):
    """The hosts' clocks are five seconds ahead of the services'."""

    skew = 5.0


class LineWithHostBehind(VirtualLine):
    """The hosts' clocks are five seconds behind the services'."""

    skew = -5.0
