"""A session in two regions as a game of steps: its queues, workers that can stop anywhere, and what they have
applied."""

import contextlib
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from busway_clients.aio.sessions.lane import Lane
from busway_clients.aio.sessions.session_work import SessionWork
from busway_clients.errors import ClientsError
from busway_clients.sessions import Delivery, Journal, SqliteStore
from busway_clients.sessions.delivery import LockLost
from busway_clients.sessions.entries import session_partition
from busway_clients.sessions.leases import MAX_FINAL
from busway_clients.sessions.order import Arrival
from busway_clients.sessions.plan import Ending, Worker, WorkerCache
from busway_clients.sessions.settings import Settings

SESSION = "shipment"
PARTITION = session_partition(SESSION)
NAMES = ["m1", "m2", "m3", "m4"]
OPENED: list[Any] = []
"""What the tests have opened; closed after each."""

SETTINGS = Settings(lease_seconds=30, poll_seconds=1, patience_seconds=200, retry_seconds=0)


def arrival(name: str, place: int, site: str, *, origin: str | None = None, number: int | None = None) -> Arrival:
    """Return a message that is sent at *site*, or a copy there of one that was sent at *origin*."""
    lines = {site: place}
    if origin is not None and origin != site:
        lines[f"copy:{origin}"] = place
    return Arrival(name, name, SESSION, origin or site, lines, number)


def closed_after[Opened](store: Opened) -> Opened:
    """Return a store, which is closed after the test."""
    OPENED.append(store)
    return store


def new_store(path: Any = ":memory:") -> SqliteStore:
    """Return an open store in memory, or in a file, that is closed after the test."""
    store = closed_after(SqliteStore(path))
    store.open()
    return store


@dataclass
class Queue:
    """The session in one region; a worker that dies leaves the messages that it received."""

    messages: list[Arrival]
    dead: dict[str, str] = field(default_factory=dict)
    received: int = 0

    def take(self, count: int) -> list[Arrival]:
        taken = self.messages[self.received : self.received + count]
        self.received += len(taken)
        return taken

    def settle(self, one: Arrival) -> None:
        self.messages.remove(one)
        self.received -= 1


@dataclass
class World:
    """The journal, one clock for all that is waited for, and the application's effects in their order."""

    settings: Settings = SETTINGS
    seconds: float = 0.0
    applied: list[tuple[str, int, bool]] = field(default_factory=list)
    store: Any = None
    max_final: int = MAX_FINAL

    def __post_init__(self) -> None:
        if self.store is None:
            self.store = new_store()
        self.journal = Journal(self.store, self.settings, max_final=self.max_final)
        self.journal.open()

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.applied]

    def states(self) -> dict[str, str]:
        names = [f"m{n}" for n in range(10)]
        return {name: entry.state.value for name, entry in self.journal.record(SESSION, names).entries.items()}


@dataclass(frozen=True)
class Step:
    """A call of a worker on its lane, which waits until a test performs it."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __await__(self) -> Generator["Step", Any, Any]:
        return (yield self)

    @property
    def delivery(self) -> Delivery:
        [delivery] = self.arguments
        return delivery  # type: ignore[no-any-return]


class SteppedLane:
    """A lane whose calls are steps."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: Step(name, arguments, options)


class Player:
    """
    A worker at a region, a step at a time.

    *fails* is called with each Delivery before its effect; *offset* is how far the worker's clock is from the world's.
    """

    count = 0

    def __init__(
        self,
        world: Any,
        site: str,
        queue: Any,
        *,
        fails: Any = None,
        offset: float = 0.0,
        cache: Any = None,
        settings: Any = None,
        rate: float = 1.0,
    ) -> None:
        Player.count += 1
        self.world, self.site, self.queue, self.fails = world, site, queue, fails
        self.queue.received = 0
        self.offset, self.rate = offset, rate
        self.cache = cache or WorkerCache()
        self.worker = Worker(
            f"{site}-{Player.count}",
            site,
            settings or world.settings,
            self.cache,
            monotonic=lambda: world.seconds * self.rate + offset,
            wall=lambda: 1_000_000 + world.seconds + offset,
        )
        self.lane = cast("Lane", SteppedLane())
        self.work = SessionWork(PARTITION, self.worker, self.lane)
        self.steps = self.work.run()
        self.ending: Ending | None = None
        self.effect: Any = None

    def play(self) -> Ending:
        """Go on to the end."""
        while self.step():
            pass
        assert self.ending is not None
        return self.ending

    def perform_all(self, steps: Coroutine[Any, Any, Any]) -> None:
        """Perform other steps, such as those of a renewal, to their end."""
        with contextlib.suppress(StopIteration):
            step = steps.send(None)
            while True:
                try:
                    answer = self.perform(step)
                except ClientsError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)

    def step(self, perform: Any = None) -> bool:
        """Do the next step; whether there was one."""
        if self.ending is not None:
            return False
        try:
            if self.effect is None:
                self.effect = self.steps.send(None)
            try:
                answer = (perform or self.perform)(self.effect)
            except (ClientsError, LockLost) as error:
                self.effect = self.steps.throw(error)
            else:
                self.effect = self.steps.send(answer)
        except StopIteration as ended:
            self.ending = ended.value
        return True

    def step_until(self, name: str) -> Any:
        """Step up to, and not over, a step of this name."""
        if self.effect is None:
            self.effect = self.steps.send(None)
        while self.effect.name != name:
            assert self.step()
        return self.effect

    def perform(self, step: Step) -> Any:
        journal = self.world.journal
        match step.name, step.arguments:
            case "commit", arguments:
                journal.commit(*arguments, **step.options, monotonic=self.worker.monotonic)
            case "read", arguments:
                return journal.read(*arguments)
            case "register", arguments:
                journal.register(*arguments)
            case "receive", (count,):
                return self.queue.take(count)
            case "run", (delivery,):
                return self.run(delivery)
            case "complete", (one,):
                self.queue.settle(one)
            case "dead_letter", (one, reason, _):
                self.queue.settle(one)
                self.queue.dead[one.message_id] = reason
            case "wait", (seconds,):
                self.world.seconds += seconds
            case _:
                raise AssertionError(step)
        return None

    def run(self, delivery: Delivery) -> Any:
        if self.fails is not None and (fault := self.fails(delivery)):
            return fault
        self.world.applied.append((delivery.message_id, delivery.attempt, delivery.may_have_run))
        return None


def both(count: int) -> tuple[Queue, Queue]:
    """Return a session sent in west with its copies in east."""
    west = [arrival(f"m{n}", n, "west") for n in range(1, count + 1)]
    east = [arrival(f"m{n}", n, "east", origin="west") for n in range(1, count + 1)]
    return Queue(west), Queue(east)


def with_settings(**changes: Any) -> Settings:
    return replace(SETTINGS, **changes)


def count_steps(settings: Settings, max_final: int = MAX_FINAL) -> int:
    """Return how many steps a worker takes to process four messages."""
    player = Player(World(settings, max_final=max_final), "west", both(4)[0])
    return sum(1 for _ in iter(player.step, False))


def first_of_each(names: Any) -> Any:
    return list(dict.fromkeys(names))
