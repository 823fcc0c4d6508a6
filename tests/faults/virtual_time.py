"""
One virtual time for the broker in this process and for hosts in others.

It stands still until somebody sleeps, in the pipeline or in the host between two attempts, or the scenario lets it
pass. Sleepers move it in small steps, each a round trip through the broker's thread and the host's event loop: what
goes over the wire meanwhile takes a few virtual seconds, never a virtual minute, however slow the machine is.
"""

import asyncio
import os
import threading
import time
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
# An attempt to reach a target that is down takes less.
_STANDSTILL_SECONDS = 1.0
_LEAP_SECONDS = 30.0
_APP = Path(__file__).parent / "apps" / "virtual"

_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from local.host import run
from tests.faults.virtual_time import RemoteClock
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("azure").setLevel(logging.WARNING)
clock = RemoteClock.of_environment()
tell = lambda host: print("ready", 0, *[function.name for function in host.functions], flush=True)
asyncio.run(run(Path(sys.argv[1]), clock=clock, sleep=clock.sleep, http_port=0, on_ready=tell))
"""


class RemoteClock:
    """The scenario's clock as a host sees it, wrong by *skew* seconds."""

    def __init__(self, connection: "Connection[object, object]", skew: float) -> None:
        """Ask for the time over *connection*."""
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
        return self._passed(0)[0] + self._skew

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._passed(0)[1]

    async def sleep(self, seconds: float) -> None:
        """Let time pass until so many seconds have; other sleepers move it as well."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            await asyncio.to_thread(self._passed, min(left, _STEP_SECONDS))
            await asyncio.sleep(_PAUSE_SECONDS)

    def _passed(self, seconds: float) -> tuple[datetime, float]:
        """Let *seconds* pass; return the time after that."""
        with self._turn:
            self._connection.send(seconds)
            answer = self._connection.recv()
        assert isinstance(answer, tuple)
        return answer


class ClockServer:
    """Lets hosts see the clock of a broker and move it; for as long as its context lasts."""

    def __init__(self, broker: RunningBroker, clock: ManualClock) -> None:
        """Serve *clock*, which moves together with what is due in *broker*."""
        self._broker = broker
        self._clock = clock
        self._listener = Listener(("127.0.0.1", 0))
        self._is_over = False
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
        """Stop; hosts that still ask get no answer."""
        self._is_over = True
        # The thread waits for a caller: this is the last.
        Client(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._is_over:
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
    """A host of the app that lives in the scenario's time."""

    program = _PROGRAM


class VirtualLine(Line):
    """A line in virtual time; its hosts' clocks are wrong by *skew* seconds."""

    skew = 0.0

    def __init__(self, route: Route, folder: Path, **options: object) -> None:
        """Start the time at the machine's, whose clock the SDKs' tokens go by."""
        self.clock = ManualClock(datetime.now(UTC))
        super().__init__(route, folder, **(options | {"clock": self.clock}))  # type: ignore[arg-type] # handed on as they came

    def __enter__(self) -> Self:
        """Start the broker and the clock."""
        super().__enter__()
        self._server = self._stack.enter_context(ClockServer(self.broker, self.clock))
        return self

    def let_pass(self, seconds: float) -> None:
        """Let time pass while nobody sleeps."""
        self.broker.advance(seconds)

    def wait_until_passed(self, seconds: float) -> None:
        """Wait until the sleepers have moved time on to *seconds* after the start; while nobody sleeps, move it."""
        while self.clock.monotonic() < seconds:
            before = self.clock.monotonic()
            time.sleep(_STANDSTILL_SECONDS)
            if self.clock.monotonic() == before:
                self.let_pass(_LEAP_SECONDS)

    def _make_host(self, folder: Path) -> HostProcess:
        settings = self._settings() | {_PORT: str(self._server.port), _SKEW: str(self.skew)}
        return VirtualHost(str(_APP), folder, settings)


class LineWithHostAhead(VirtualLine):
    """The hosts' clocks are five seconds ahead of the services'."""

    skew = 5.0


class LineWithHostBehind(VirtualLine):
    """The hosts' clocks are five seconds behind the services'."""

    skew = -5.0
