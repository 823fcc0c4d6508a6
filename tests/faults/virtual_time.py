"""
One virtual time for the broker in this process and for hosts in others.

It advances only while the pipeline or a host sleeps between two attempts, or when the scenario advances it. It advances
in small steps. The next step waits until the event loop of each process has handled the one before, and what came in
meanwhile. It also waits for calls that a process has marked with `RemoteClock.held`. So network traffic takes a few
virtual seconds, never a virtual minute, however slow the machine is.
"""

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Self

from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from tests.end_to_end.host_process import HostProcess
from tests.faults.line import Line
from tests.faults.routes import Route

_PORT = "BUSWAY_TEST_CLOCK"
_SKEW = "BUSWAY_TEST_SKEW"
_STEP_SECONDS = 0.5
# Each turn of an event loop reads what its sockets have received.
_TURNS = 3
# Far longer than a loaded machine needs for a step.
_ANSWER_SECONDS = 60.0
# An attempt to connect to an unavailable target takes less.
_STANDSTILL_SECONDS = 1.0
_LEAP_SECONDS = 30.0
_APP = Path(__file__).parent / "apps" / "virtual"

_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from host.host import run
from tests.end_to_end.host_fork import forked_worker
from tests.faults.virtual_time import RemoteClock
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("azure").setLevel(logging.WARNING)
clock = RemoteClock.of_environment()
print_ready = lambda host: print("ready", 0, *[function.name for function in host.functions], flush=True)
async def main():
    clock.follow_in_this_loop()
    clocks = {"clock": clock, "sleep": clock.sleep}
    await run(Path(sys.argv[1]), **clocks, http_port=0, on_ready=print_ready, spawn=forked_worker)
asyncio.run(main())
"""

type _Time = tuple[datetime, float]


class RemoteClock:
    """The scenario's clock as a host sees it, *skew* seconds ahead."""

    def __init__(self, connection: "Connection[object, object]", skew: float) -> None:
        """Follow the steps that come over *connection*."""
        self._connection = connection
        self._skew = timedelta(seconds=skew)
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleepers: dict[asyncio.Future[None], float] = {}
        _, self._time = self._step()
        threading.Thread(target=self._follow, name="virtual-time", daemon=True).start()

    @classmethod
    def of_environment(cls) -> Self:
        """Return the clock that this process was started with."""
        connection = Client(("127.0.0.1", int(os.environ[_PORT])))
        return cls(connection, float(os.environ[_SKEW]))

    def follow_in_this_loop(self) -> None:
        """Let each step wait for the running event loop."""
        self._loop = asyncio.get_running_loop()

    def now(self) -> datetime:
        """Return the virtual time in UTC, skewed."""
        return self._time[0] + self._skew

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._time[1]

    async def sleep(self, seconds: float) -> None:
        """Wait until *seconds* of virtual time have passed."""
        self.follow_in_this_loop()
        wake = asyncio.get_running_loop().create_future()
        self._sleepers[wake] = self.monotonic() + seconds
        self._send("until", min(self._sleepers.values()))
        try:
            await wake
        finally:
            del self._sleepers[wake]
            self._send("until", min(self._sleepers.values(), default=None))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no virtual time pass while the context is open."""
        self._send("hold", 1)
        try:
            yield
        finally:
            self._send("hold", -1)

    def _send(self, *words: object) -> None:
        with self._turn:
            self._connection.send(words)

    def _step(self) -> tuple[int, _Time]:
        answer = self._connection.recv()
        assert isinstance(answer, tuple)
        number, *now = answer
        return number, (now[0], now[1])

    def _follow(self) -> None:
        while True:
            try:
                number, self._time = self._step()
                if self._loop is None or self._loop.is_closed():
                    self._send("done", number)
                else:
                    self._loop.call_soon_threadsafe(self._wake, number)
            except (EOFError, OSError, RuntimeError):
                return

    def _wake(self, number: int) -> None:
        for wake, end in self._sleepers.items():
            if end <= self.monotonic() and not wake.done():
                wake.set_result(None)
        self._finish(number, _TURNS)

    def _finish(self, number: int, turns: int) -> None:
        if turns == 0:
            self._send("done", number)
        else:
            asyncio.get_running_loop().call_soon(self._finish, number, turns - 1)


class _Follower:
    """A process that follows the clock."""

    def __init__(self, connection: "Connection[object, object]", number: int) -> None:
        """Begin with the step after *number*."""
        self.connection = connection
        self.done = number
        self.until: float | None = None
        """When its next sleeper is to wake up."""
        self.holds = 0


class ClockServer:
    """Lets hosts read and advance the clock of a broker while its context is open."""

    def __init__(self, broker: RunningBroker, clock: ManualClock) -> None:
        """Serve *clock*; a step also triggers what is due in *broker*."""
        self._broker = broker
        self._clock = clock
        self._listener = Listener(("127.0.0.1", 0))
        self._is_stopped = False
        self._followers: list[_Follower] = []
        self._number = 0
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._threads = [
            threading.Thread(target=target, name="virtual-time", daemon=True) for target in (self._accept, self._run)
        ]

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return int(self._listener.address[1])

    def __enter__(self) -> Self:
        """Start to serve."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clock."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        # Unblock the thread, which waits for a connection.
        Client(("127.0.0.1", self.port)).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def advance(self, seconds: float) -> None:
        """Advance the clock by *seconds* in one step, and wait until all processes have followed."""
        with self._turn:
            self._broker.advance(seconds)
            with self._changed:
                self._number += 1
                for follower in self._followers:
                    self._announce(follower)
                has_followed = self._changed.wait_for(self._has_followed, _ANSWER_SECONDS)
        assert has_followed or self._is_stopped, f"a process did not follow the clock within {_ANSWER_SECONDS} s"

    def advance_in_steps(self, seconds: float) -> None:
        """Advance the clock by *seconds* in small steps, until a process sleeps; wait while one holds the clock."""
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            with self._changed:
                if self._next_end() is not None:
                    return
                self._changed.wait_for(lambda: not self._is_held(), _ANSWER_SECONDS)
            self.advance(min(left, _STEP_SECONDS))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._is_awaited())
                if self._is_stopped:
                    return
                end = self._next_end()
            if end is not None:
                self.advance(min(max(end - self._clock.monotonic(), 0.0), _STEP_SECONDS))

    def _next_end(self) -> float | None:
        return min((follower.until for follower in self._followers if follower.until is not None), default=None)

    def _is_held(self) -> bool:
        return any(follower.holds for follower in self._followers)

    def _is_awaited(self) -> bool:
        return self._next_end() is not None and not self._is_held()

    def _has_followed(self) -> bool:
        return self._is_stopped or all(follower.done >= self._number for follower in self._followers)

    def _announce(self, follower: _Follower) -> None:
        try:
            follower.connection.send((self._number, self._clock.now(), self._clock.monotonic()))
        except OSError:
            follower.done = self._number  # it has ended, and its thread will notice

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._is_stopped:
                connection.close()
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: "Connection[object, object]") -> None:
        with connection:
            with self._changed:
                follower = _Follower(connection, self._number)
                self._announce(follower)
                self._followers.append(follower)
            try:
                while True:
                    self._take(follower, connection.recv())
            except (EOFError, OSError):
                pass
            finally:
                with self._changed:
                    self._followers.remove(follower)
                    self._changed.notify_all()

    def _take(self, follower: _Follower, words: object) -> None:
        with self._changed:
            match words:
                case ("until", float() | int() | None as end):
                    follower.until = end
                case ("hold", int(change)):
                    follower.holds += change
                case ("done", int(number)):
                    follower.done = number
                case _:
                    raise TypeError(words)
            self._changed.notify_all()


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
        self._server.advance(seconds)

    def wait_until_passed(self, seconds: float) -> None:
        """Wait until the virtual time is *seconds* after the start; advance it while nobody sleeps."""
        while self.clock.monotonic() < seconds:
            self.remaining()
            before = self.clock.monotonic()
            time.sleep(_STANDSTILL_SECONDS)
            if self.clock.monotonic() == before:
                self._server.advance_in_steps(_LEAP_SECONDS)

    def _make_host(self, folder: Path, settings: Mapping[str, str], arguments: Sequence[str]) -> HostProcess:
        all_settings = self._settings() | dict(settings) | {_PORT: str(self._server.port), _SKEW: str(self.skew)}
        return VirtualHost(str(_APP), folder, all_settings, *arguments)


class LineWithHostBehind(VirtualLine):
    """The hosts' clocks are five seconds behind the services'."""

    skew = -5.0
