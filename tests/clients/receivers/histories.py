"""
Random histories of de-duplicating receivers: a seed draws the faults, the delays and the order of all steps.

Two queues have a copy of each message. Processes that receive from both are killed and started again; claims are lost,
answered late or not at all; locks end; settlements fail before and after their effect; the application fails before and
after its effect; clocks differ.
"""

import asyncio
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError

from busway_clients import Claim, ClaimLost, DeadLetter, State, StoreUnavailable
from busway_clients.aio.deduplicating_receiver import DeduplicatingReceiver
from busway_clients.receivers.claims import StoredClaims
from busway_clients.sessions import SqliteStore
from tests.clients.uncertain import WALL, ClientHistory, UncertainStore

SITES = ("west", "east")
_LIMIT = 50_000.0


class Message:
    """A copy of a message in one queue, as a receiver gets it."""

    application_properties: dict[str, str] = {}  # noqa: RUF012 - nobody writes it
    enqueued_time_utc = None

    def __init__(self, queue: "Queue", message_id: str) -> None:
        self.queue, self.message_id = queue, message_id

    @property
    def locked_until_utc(self) -> datetime:
        left = self.queue.locks.get(self, 0.0) - self.queue.history.loop.time()
        return datetime.now(UTC) + timedelta(seconds=left)


class Queue:
    """A queue of one namespace."""

    def __init__(self, history: "History", site: str) -> None:
        self.history, self.site = history, site
        self.left: list[str] = []
        self.locks: dict[Message, float] = {}
        self.deliveries: dict[str, int] = {}

    def take(self) -> Message | None:
        """Lock a message, if one is free; locks that have ended are dropped."""
        now = self.history.loop.time()
        self.locks = {message: until for message, until in self.locks.items() if until > now}
        held = {message.message_id for message in self.locks}
        free = [name for name in self.left if name not in held]
        if not free:
            return None
        message = Message(self, free[0])
        self.locks[message] = now + self.history.lock_seconds
        self.deliveries[message.message_id] = self.deliveries.get(message.message_id, 0) + 1
        return message

    def require_lock(self, message: Message) -> None:
        if self.history.is_faulty():
            self.locks.pop(message, None)
        if self.locks.get(message, 0.0) <= self.history.loop.time():
            raise MessageLockLostError(message="the lock has ended")


class Receiver:
    """The SDK's receiver of one queue in one process."""

    session = None

    def __init__(self, queue: Queue) -> None:
        self._queue, self._history = queue, queue.history

    async def __aenter__(self) -> None:
        await self._passes()

    async def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[Message]:
        assert max_message_count == 1
        until = self._history.loop.time() + max_wait_time
        while True:
            await self._passes()
            message = self._queue.take()
            if message is not None:
                await self._passes()  # the message may be lost on its way, and stays locked
                return [message]
            if self._history.loop.time() >= until:
                return []
            await asyncio.sleep(2.0)

    async def complete_message(self, message: Message) -> None:
        await self._settle(message, "completed")

    async def dead_letter_message(self, message: Message, reason: str, _: str) -> None:
        await self._settle(message, reason)

    async def abandon_message(self, message: Message) -> None:
        await self._passes()
        self._queue.require_lock(message)
        del self._queue.locks[message]

    async def renew_message_lock(self, message: Message) -> None:
        await self._passes()
        self._queue.require_lock(message)
        self._queue.locks[message] = self._history.loop.time() + self._history.lock_seconds

    async def _settle(self, message: Message, outcome: str) -> None:
        await self._passes()
        self._queue.require_lock(message)
        del self._queue.locks[message]
        self._queue.left.remove(message.message_id)
        self._history.settled(self._queue.site, message.message_id, outcome)
        await self._passes()

    async def _passes(self) -> None:
        await asyncio.sleep(self._history.latency())
        if self._history.is_faulty():
            raise ServiceBusConnectionError(message="the link broke")


@dataclass
class Work:
    """One claim, and the state of the work under it."""

    process: "Process"
    failed_renewals: int = 0
    is_over: bool = False
    effect_at: float | None = None
    recorded_at: float | None = None


class Claims:
    """
    The claims of one process, which renews them as its threads do.

    It has no `renew` for the receiver, which would start real threads.
    """

    is_local = False

    def __init__(self, process: "Process") -> None:
        history = process.history
        self._process, self._loop = process, history.loop
        rows: Any = UncertainStore(history, history.rows)
        self._store = StoredClaims(rows, "orders", timedelta(seconds=history.window), timedelta(seconds=history.lease))

    def claim(self, identity: str, now: float) -> Claim | State:
        answer = self._store.claim(identity, now)
        if isinstance(answer, Claim):
            self._process.history.claims[answer] = Work(self._process)
            self._loop.call_later(self._process.history.lease / 4, self._renew, answer)
        return answer

    def record(self, claim: Claim, now: float) -> None:
        work = self._process.history.claims[claim]
        work.is_over = True
        try:
            self._store.record(claim, now)
        except ClaimLost:
            self._process.history.note(f"{self._process.name} lost the claim on {claim.identity}")
            raise
        work.recorded_at = self._loop.time()

    def release(self, claim: Claim) -> None:
        self._process.history.claims[claim].is_over = True
        self._store.release(claim)

    def _renew(self, claim: Claim) -> None:
        work = self._process.history.claims[claim]
        if work.is_over:
            return
        try:
            self._store.renew(claim, WALL + self._loop.time() + self._process.wall)
            work.failed_renewals = 0
        except ClaimLost:
            return
        except StoreUnavailable:
            work.failed_renewals += 1
        self._loop.call_later(self._process.history.lease / 4, self._renew, claim)


class Process:
    """A process with a receiver of both queues."""

    def __init__(self, history: "History", number: int) -> None:
        chance = history.chance
        self.history, self.name = history, f"process {number}"
        self.wall = chance.choice((0.0, 0.0, -0.1, 0.1)) * history.lease
        self.started = chance.choice((0.0, 1e6))
        self.is_dead = self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.stop: asyncio.Event | None = None

    async def run(self) -> None:
        receivers: Any = {site: Receiver(queue) for site, queue in self.history.queues.items()}
        store: Any = Claims(self)
        receiver = DeduplicatingReceiver(receivers, store, patience=timedelta(seconds=self.history.lease + 1))
        self.stop = asyncio.Event()
        await receiver.run(self._application, self.stop)

    async def _application(self, message: Any) -> None:
        await self.history.apply(self, message)


@dataclass
class Effect:
    """An effect of the application."""

    process: Process
    at: float
    claim: Claim
    was_reported: bool


class History(ClientHistory):
    """What happens under one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
        self.rate = chance.choice((0.0, 0.01, 0.03, 0.1))
        self.lease = chance.choice((10.0, 30.0))
        self.window = chance.choice((300.0, 1e7))
        self.lock_seconds = chance.choice((10.0, 30.0))
        self.calm = chance.choice((50.0, 200.0))
        self.outage = chance.uniform(0.0, self.calm), chance.choice((0.0, 0.0, 3.0, 30.0, 100.0))
        self._kills = chance.choice((0, 1, 3, 6))
        # A call of the store takes less time than a lease.
        self._slowness = chance.choice((1, 1, 20 if self.lease == 30.0 else 5))
        self.rows = SqliteStore(":memory:")
        self.claims: dict[Claim, Work] = {}
        self.queues = {site: Queue(self, site) for site in SITES}
        self.effects: dict[str, list[Effect]] = {}
        self.working: dict[str, list[Process]] = {}
        self.dead: set[str] = set()
        self._processes: list[Process] = []
        self._numbers = itertools.count(1)
        self._names: list[str] = []

    def latency(self) -> float:
        return super().latency() * self._slowness

    def run(self) -> bool:
        """Go on until both queues are empty; return whether that was so."""
        chance = self.chance
        sent = 0.0
        for number in range(1, chance.choice((1, 2, 5)) + 1):
            name = f"m{number}"
            self._names.append(name)
            sent += chance.choice((0.0, 0.0, 1.0, 10.0))
            for queue in self.queues.values():
                delay = chance.choice((0.0, 0.0, 0.1, 15.0))
                self.loop.call_later(sent + delay, queue.left.append, name)
        first = chance.uniform(0.0, 2.0)
        for _ in range(chance.choice((1, 2, 3))):
            self.later(first, self._start)
        for _ in range(self._kills):
            self.later(chance.uniform(0.0, self.calm), self._disturb)
        try:
            return self.play(lambda: self.loop.time() > sent + 20 and self._is_empty(), _LIMIT)
        finally:
            self.rows.close()

    def _is_empty(self) -> bool:
        return not any(queue.left for queue in self.queues.values()) and not any(self.working.values())

    def _start(self) -> None:
        process = Process(self, next(self._numbers))
        self._processes.append(process)
        process.task = self.begin(process, process.run())

    def _disturb(self) -> None:
        """Kill a process, cancel its run or stop it, and start another one."""
        alive = [process for process in self._processes if not process.is_dead]
        if alive:
            process = self.chance.choice(alive)
            kind = self.chance.choice(("killed", "cancelled", "stopped"))
            self.note(f"{process.name} is {kind}")
            if kind == "killed":
                process.is_dead = True
                for working in self.working.values():
                    while process in working:
                        working.remove(process)
            elif process.task is not None and kind == "cancelled":
                process.is_cancelled = True
                process.task.cancel()
            elif process.stop is not None:
                process.stop.set()
        self.later(self.chance.choice((0.0, 1.0, 40.0)), self._start)

    def settled(self, site: str, name: str, outcome: str) -> None:
        self.note(f"{site}: {name} {outcome}")
        if outcome == "completed" and not self.effects.get(name):
            self.found.append(f"{name} is completed, and was not done")
        if outcome == "Poison":
            self.dead.add(name)

    async def apply(self, process: Process, message: Message) -> None:
        name = message.message_id
        claim = next(
            claim for claim, work in reversed(self.claims.items()) if work.process is process and claim.identity == name
        )
        working = self.working.setdefault(name, [])
        self.note(f"{process.name} begins {name} of {message.queue.site}")
        self._look_for_repetition(process, name, claim)
        working.append(process)
        try:
            await asyncio.sleep(self.chance.choice((0.0, 0.5, 5.0, 50.0)))
            if self.is_faulty():
                raise RuntimeError("before the effect")
            if self.is_faulty():
                raise DeadLetter("Poison")
            is_reported = not self.is_faulty()
            self.effects.setdefault(name, []).append(Effect(process, self.loop.time(), claim, is_reported))
            self.note(f"{process.name} does {name}{'' if is_reported else ', and fails'}")
            self.claims[claim].effect_at = self.loop.time()
            if not is_reported:
                raise RuntimeError("after the effect")
        finally:
            if process in working:
                working.remove(process)

    def _look_for_repetition(self, process: Process, name: str, claim: Claim) -> None:
        """Object to work on a message that is done, or that another works on, unless that is documented."""
        for other, work in self.claims.items():
            if other == claim or other.identity != name or self._is_excused(work):
                continue
            if work.effect_at is None and work.process in self.working.get(name, []) and not work.is_over:
                self.found.append(f"{process.name} and {work.process.name} work on {name}")
        for effect in self.effects.get(name, []):
            if effect.was_reported and not self._is_excused(self.claims[effect.claim]):
                self.found.append(f"{process.name} does {name} again")

    def _is_excused(self, work: Work) -> bool:
        """Return whether a process may have lost its claim: dead, cut off for a lease, or the memory has ended."""
        now = self.loop.time()
        start, seconds = self.outage
        was_cut_off = seconds >= self.lease / 4 and now > start
        if work.recorded_at is not None:
            return now >= work.recorded_at + self.window - self.lease
        was_left = work.process.is_cancelled and work.is_over
        return work.process.is_dead or was_left or was_cut_off or work.failed_renewals >= 3

    def objections(self) -> list[str]:
        """Return what is wrong, once both queues are empty."""
        found = [*self.found]
        for name in self._names:
            done = [effect for effect in self.effects.get(name, []) if effect.was_reported]
            if not done and name not in self.dead:
                found.append(f"{name} was not done")
        return found
