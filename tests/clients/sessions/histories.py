"""
Random histories of one session in two regions: a seed draws the faults, the delays and the order of all steps.

Workers are killed, or go on without their lock; writes of the journal fail, succeed without an answer, or arrive late;
locks are lost; the application fails before and after its effect; clocks differ.
"""

import asyncio
import itertools
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

from azure.servicebus.exceptions import SessionLockLostError

from busway_clients.aio.sessions.consumer import renewing
from busway_clients.aio.sessions.journal import Journal
from busway_clients.aio.sessions.lane import Lane
from busway_clients.aio.sessions.session_work import SessionWork
from busway_clients.errors import StoreUnavailable
from busway_clients.sessions import Delivery
from busway_clients.sessions.plan import Ending, Worker, WorkerCache
from busway_clients.sessions.settings import Settings
from tests.clients.sessions.region import PARTITION, SESSION, new_store
from tests.clients.uncertain import WALL, ClientHistory, UncertainStore

SITES = ("west", "east")
_LIMIT = 200_000.0


class Busy(Exception):
    """The application fails, and may do better the next time."""


@dataclass
class Process:
    """All workers of a region, with the offsets of their clocks."""

    wall: float
    started: float = 0.0
    is_dead: bool = False
    cache: WorkerCache = field(default_factory=WorkerCache)


class Region:
    """The session in one namespace, of which one visit has the lock."""

    def __init__(self, site: str, process: Process) -> None:
        self.site = site
        self.process = process
        self.messages: list[Any] = []
        self.settled: dict[str, str] = {}
        self.holder: Visit | None = None
        self.free_from = 0.0
        self.places = itertools.count(1)


def _monotonic() -> float:
    return time.monotonic()  # which the history replaces


def _wall() -> float:
    return time.time()


class JournalInTime(Journal):
    """A journal with the clock of the history."""

    async def commit(self, *arguments: Any, **options: Any) -> None:
        await super().commit(*arguments, **options, monotonic=_monotonic)


class Visit:
    """A worker that has, or had, the lock on the session in its region: its receiver, store and application."""

    def __init__(self, history: "History", region: Region, name: str) -> None:
        self.name = name
        self.history, self.region, self.process = history, region, region.process
        self.session = SimpleNamespace(session_id=SESSION)
        self.is_stopping = self.is_over = False
        self.late = 0.0
        self._received: list[Any] = []

    @property
    def has_lock(self) -> bool:
        return self.region.holder is self

    async def run(self) -> None:
        settings, site = self.history.settings[self.region.site], self.region.site
        store: Any = self
        journal = JournalInTime(store, settings, max_final=self.history.max_final[site])
        lane = Lane(self, self, journal, self._apply, set(), site, asyncio.sleep)
        worker = Worker(
            self.name,
            site,
            settings,
            self.process.cache,
            monotonic=_monotonic,
            wall=_wall,
            is_stopping=lambda: self.is_stopping,
        )
        work = SessionWork(PARTITION, worker, lane)
        ending: object
        try:
            async with renewing(work, lane, settings.heartbeat_seconds):
                ending = await work.run()
        except StoreUnavailable as error:
            ending = error
        self.history.note(f"{self.name} ends: {ending}")
        self.is_over = True
        if self.has_lock:
            self.history.unlock(self, 0.0 if ending is Ending.EMPTY else 1.0)

    # Its receiver, and what renews the lock

    def register(self, *_: object) -> None:
        """Renew nothing: a lock lasts until the history ends it."""

    async def receive_messages(self, count: int, **_: object) -> list[Any]:
        await self._passes()
        self._need_lock()
        taken = [each for each in self.region.messages if each not in self._received][:count]
        self._received += taken
        await self._passes()
        return taken

    async def complete_message(self, message: Any) -> None:
        await self._settle(message, "completed")

    async def dead_letter_message(self, message: Any, reason: str, **_: object) -> None:
        await self._settle(message, reason)

    async def _settle(self, message: Any, result: str) -> None:
        await self._passes()
        self._need_lock()
        self.region.messages.remove(message)
        assert message.message_id not in self.region.settled
        self.region.settled[message.message_id] = result
        self.history.note(f"{self.name}: {message.message_id} {result}")
        await self._passes()
        self._need_lock()  # its answer may be lost too

    def _need_lock(self) -> None:
        if self.has_lock and self.history.is_faulty():
            self.history.unlock(self, 0.0)
        if not self.has_lock:
            raise SessionLockLostError(message="the session has another owner")

    # Its store

    async def read(self, *arguments: Any) -> Any:
        await self._passes()
        rows = self.history.store.read(*arguments)
        await self._passes()
        return rows

    async def write(self, *arguments: Any) -> Any:
        await self._passes()
        self.history.note(f"{self.name} writes {[dict(each.properties) for each in arguments[1]]}")
        versions = self.history.store.write(*arguments)
        await self._passes()
        return versions

    # Its application

    async def _apply(self, delivery: Delivery) -> None:
        history = self.history
        long = () if history.loop.time() >= history.calm else (25.0, 45.0, 100.0)
        await asyncio.sleep(history.chance.choice((0.01, 0.5, 3.0, *long)))
        delivery.check()
        if history.is_faulty():
            raise Busy
        history.effects.append((delivery.message_id, delivery))
        history.note(f"{self.name} does {delivery.message_id}, {delivery.attempt}, {delivery.may_have_run}")
        if history.is_faulty():
            history.unsure.add(delivery.message_id)
            raise Busy

    async def _passes(self) -> None:
        """Take the time of a call, at which the worker may be disturbed."""
        self.history.disturb(self)
        late, self.late = self.late, 0.0
        await asyncio.sleep(late + self.history.latency())


class History(ClientHistory):
    """What happens under one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
        self.rate = chance.choice((0.01, 0.02, 0.05, 0.15))
        self.calm = chance.choice((100.0, 400.0, 1500.0))
        self.outage = chance.uniform(0.0, self.calm), chance.choice((0.0, 0.0, 0.0, 250.0))
        self._deaths = chance.choice((0, 1, 2, 4))
        self.effects: list[tuple[str, Delivery]] = []
        self.unsure: set[str] = set()
        """Messages whose application has failed after its effect, and knows it."""
        self.settings = self._drawn_settings()
        self.max_final = {site: chance.choice((1, 2, 20)) for site in SITES}
        self.regions = {site: Region(site, Process(chance.choice((0.0, -5.0, 3600.0)))) for site in SITES}
        self.store = UncertainStore(self, new_store())
        self._visits: list[Visit] = []
        self._numbers = itertools.count(1)
        self.origins: dict[str, str] = {}
        self._left = 0

    def latency(self) -> float:
        if self.loop.time() < self.calm and self.chance.random() < 0.01 + self.rate / 5:
            return self.chance.choice((2.0, 11.0, 25.0, 35.0, 70.0))
        return self.chance.choice((0.001, 0.01, 0.05, 0.3))

    def _drawn_settings(self) -> dict[str, Settings]:
        chance = self.chance
        both = Settings(
            number=chance.choice((None, None, "number")),
            poll_seconds=chance.choice((1.0, 5.0)),
            patience_seconds=chance.choice((20.0, 60.0, 200.0)),
            retry_seconds=chance.choice((0.0, 1.0)),
            record_every=chance.choice((1, 1, 2, 3)),
            batch=chance.choice((3, 20)),
            max_attempts=chance.choice((2, 3, 50)),
        )
        return {"west": both, "east": replace(both, head_start_seconds=chance.choice((0.0, 0.0, 15.0)))}

    def run(self) -> bool:
        """Send messages in one region or in both; each arrives in the other one too, in the order of its origin."""
        chance = self.chance
        senders = SITES if self.settings["west"].number is None and chance.random() < 0.6 else SITES[:1]
        sent = 0.0
        copied = dict.fromkeys(SITES, 0.0)
        for number in range(1, chance.choice((2, 4, 8)) + 1):
            sent += chance.choice((0.0001, 0.0001, 1.0, 10.0, 40.0))
            site = chance.choice(senders)
            copied[site] = max(copied[site] + 0.01, sent + chance.choice((0.1, 1.0, 5.0, 60.0, 200.0)))
            self.origins[f"m{number}"] = site
            self._left += 2
            self.later(sent, partial(self._accept, number, site, copied[site] - sent))
        return self.play(self._is_over, _LIMIT)

    def _is_over(self) -> bool:
        is_busy = any(not visit.is_over and not visit.process.is_dead for visit in self._visits)
        return not (self._left or is_busy or any(region.messages for region in self.regions.values()))

    def _accept(self, number: int, origin: str, delay: float) -> None:
        place = self._arrive(number, origin, {})
        (other,) = {*SITES} - {origin}
        self.later(delay, lambda: self._arrive(number, other, {"repl-path": origin, "repl-sequence": str(place)}))

    def _arrive(self, number: int, site: str, stamps: dict[str, Any]) -> int:
        region, place = self.regions[site], next(self.regions[site].places)
        message = SimpleNamespace(
            message_id=f"m{number}",
            session_id=SESSION,
            sequence_number=place,
            enqueued_time_utc=datetime.fromtimestamp(WALL + self.loop.time(), UTC),
            application_properties={**stamps, "number": number},
        )
        region.messages.append(message)
        self.note(f"m{number} arrives at {site}")
        self._left -= 1
        self._visit(region)
        return place

    def _visit(self, region: Region) -> None:
        """Let a worker begin, if there is something to do and nobody has the lock."""
        if region.holder is None and region.messages and self.loop.time() >= region.free_from:
            visit = region.holder = Visit(self, region, f"{region.site}-{next(self._numbers)}")
            self._visits.append(visit)
            self.begin(region.process, visit.run())

    def unlock(self, visit: Visit, seconds: float) -> None:
        region = visit.region
        region.holder, region.free_from = None, self.loop.time() + seconds
        self.later(seconds, partial(self._visit, region))

    def disturb(self, visit: Visit) -> None:
        """Perhaps kill all workers of a process, or stop one, or let one go on too late and without its lock."""
        if not self._deaths or self.loop.time() >= self.calm or self.chance.random() >= 0.02:
            return
        self._deaths -= 1
        kind = self.chance.choice(("killed", "killed", "late", "stopped"))
        self.note(f"{visit.name} is {kind}")
        region = visit.region
        if kind == "stopped":
            visit.is_stopping = True
        elif kind == "late":
            visit.late = self.chance.choice((5.0, 40.0, 100.0))
            if visit.has_lock:
                self.unlock(visit, self.chance.choice((0.1, 30.0, 60.0)))
        else:
            visit.process.is_dead = True
            region.process = Process(visit.process.wall, self.chance.choice((0.0, 50.0, 1e6)))
            if region.holder is not None:
                self.unlock(region.holder, 60.0)

    def objections(self) -> list[str]:
        """Return what is wrong, once nothing happens any more."""
        found = []
        done: list[str] = []
        for name, delivery in self.effects:
            if name in done and not delivery.may_have_run and name not in self.unsure:
                found.append(f"{name} is done again, and the application does not know")
            done.append(name)
        for name in self.origins:
            results = {region.settled.get(name, "left") for region in self.regions.values()}
            if len(results) > 1 or not results <= {"completed", "WorkersLost", "Busy"}:
                found.append(f"{name} is {' and '.join(sorted(results))}")
            if "completed" in results and name not in done:
                found.append(f"{name} is completed, and was not done")
        for site in SITES:
            first = [name for name in dict.fromkeys(done) if self.origins[name] == site]
            if first != sorted(first, key=list(self.origins).index):
                found.append(f"{site}: in the order {first}")
        tokens = [delivery.token for _, delivery in self.effects]
        if tokens != sorted(tokens):
            found.append("a worker without the lease has an effect")
        return found
