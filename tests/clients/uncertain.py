"""What a random history of clients happens in: virtual time, threads and stores whose answers are late or lost."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from busway_clients.errors import Conflict, StoreUnavailable
from busway_clients.rows import Row, Write
from busway_clients.sessions import SqliteStore
from tests.simulation.event_loop import OWNER, SeededLoop

WALL = 1_000_000.0
"""The time of day when a history begins, in seconds since 1970."""


class UncertainStore:
    """A store whose answers are lost, and whose writes may arrive after it was given up."""

    name = "journal"

    def __init__(self, fate: "ClientHistory", store: SqliteStore) -> None:
        self._fate = fate
        self._store = store
        self._store.open()

    def read(self, partition: str, keys: Sequence[str], *, with_open: bool = True) -> Sequence[Row]:
        if self._fate.is_away() or self._fate.is_faulty():
            raise StoreUnavailable("no answer")
        return self._store.read(partition, keys, with_open=with_open)

    def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        fault = self._fate.chance.choice(("lost", "unanswered", "repeated", "late"))
        if self._fate.is_away():
            raise StoreUnavailable("no answer")
        if not self._fate.is_faulty():
            return self._store.write(partition, writes)
        if fault == "late":
            delay = self._fate.chance.choice((0.5, 3.0, 20.0))
            self._fate.later(delay, lambda: self._arrive(partition, writes))
        elif fault != "lost":
            self._store.write(partition, writes)
        # An SDK that repeats a request finds that its first one has changed the version.
        raise Conflict("repeated") if fault == "repeated" else StoreUnavailable("no answer")

    def open(self) -> None:
        """Do nothing: it is open."""

    def forget(self, before: datetime, partitions: str = "") -> int:
        return self._store.forget(before, partitions)

    def close(self) -> None:
        """Leave it open: others use it too."""

    def _arrive(self, partition: str, writes: Sequence[Write]) -> None:
        # The version may have changed meanwhile.
        try:
            self._store.write(partition, writes)
        except Conflict:
            return


class ClientLoop(SeededLoop):
    """A loop whose threads take some time, before they do something and before they answer."""

    def __init__(self, chance: random.Random, latency: Callable[[], float]) -> None:
        super().__init__(chance)
        self._latency = latency

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # as in the base
        """Call *func* later: a thread goes on although nobody waits for it any more."""
        assert executor is None
        future = self.create_future()

        def act() -> None:
            try:
                result, error = func(*args), None
            except Exception as raised:  # noqa: BLE001 - raised where it is awaited
                result, error = None, raised
            self.call_later(self._latency(), answer, result, error)

        def answer(result: Any, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(self._latency(), act)
        return future

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Let the time of day and the monotonic time be those of the loop, and of the process that asks."""

        def offset(name: str) -> float:
            owner: Any = OWNER.get()
            return 0.0 if owner is None else getattr(owner, name)

        with (
            patch.object(time, "time", lambda: WALL + self.time() + offset("wall")),
            patch.object(time, "monotonic", lambda: self.time() + offset("started")),
        ):
            yield


class ClientHistory:
    """What happens under one seed, which draws the faults: some until it is calm, and one outage."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log: list[str] = []
        self.found: list[str] = []
        """What is wrong."""
        self.rate = self.calm = 0.0
        self.outage = 0.0, 0.0
        self.loop = ClientLoop(self.chance, self.latency)  # type: ignore[abstract] # it has what asyncio uses

    def is_faulty(self) -> bool:
        """Draw whether a call fails."""
        return self.loop.time() < self.calm and self.chance.random() < self.rate

    def is_away(self) -> bool:
        """Return whether the store cannot be reached."""
        start, seconds = self.outage
        return start <= self.loop.time() < start + seconds

    def latency(self) -> float:
        return self.chance.choice((0.0, 0.001, 0.05, 0.3))

    def later(self, delay: float, act: Callable[[], object]) -> None:
        """Do something after that many seconds, also if its process is killed."""
        token = OWNER.set(None)
        try:
            self.loop.call_later(delay, act)
        finally:
            OWNER.reset(token)

    def begin(self, process: Any, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin the work of a process, which ends with it."""
        token = OWNER.set(process)
        try:
            return self.loop.create_task(work)
        finally:
            OWNER.reset(token)

    def note(self, text: str) -> None:
        self.log.append(f"{self.loop.time():9.3f} {text}")

    def play(self, is_over: Callable[[], bool], limit: float) -> bool:
        """Go on until it is over; return whether that was so before the *limit*."""
        with self.loop.clocks():
            try:
                return self.loop.run_until(is_over, limit)
            finally:
                self.loop.dispose()
