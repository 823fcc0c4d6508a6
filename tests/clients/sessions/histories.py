"""
Random histories of one session in two regions: a seed draws the faults, the delays and the order of all steps.

Workers are killed, or go on without their lock; writes of the journal fail, succeed without an answer, or arrive late;
locks are lost; the application fails before and after its effect; clocks differ.
"""

import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, cast

from busway_clients.aio.sessions.lane import Lane
from busway_clients.aio.sessions.session_work import SessionWork, renew
from busway_clients.errors import ClientsError
from busway_clients.sessions import Delivery, Journal
from busway_clients.sessions.delivery import Fault, LockLost
from busway_clients.sessions.order import Arrival
from busway_clients.sessions.plan import Ending, Worker, WorkerCache
from busway_clients.sessions.settings import Settings
from tests.clients.sessions.region import PARTITION, SESSION, Step, SteppedLane, new_store
from tests.clients.uncertain import WALL, UncertainStore

SITES = ("west", "east")
_BUSY = Fault("Busy", "", is_final=False)
_NOT_HELD = Fault("LeaseLost", "", is_final=False, counts=False)
_MOST_STEPS = 200_000


class Region:
    """The session in one namespace, of which one visit has the lock."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.messages: list[Arrival] = []
        self.settled: dict[str, str] = {}
        self.holder: Visit | None = None
        self.free_from = 0.0
        self.cache = WorkerCache()
        self.offset = 0.0
        self._places = itertools.count(1)

    def place(self) -> int:
        return next(self._places)


class Course:
    """A coroutine of a worker: its step is done when it is due, and answered some time later."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], due: float) -> None:
        self.coroutine = coroutine
        self.due = due
        self.step: Step | None = None
        self.answer: Any = None
        self.is_answered = True
        self.is_done = False
        self.result: Any = None

    def go_on(self) -> None:
        """Give the answer to the coroutine, and take its next step."""
        self.is_answered = False
        try:
            if isinstance(self.answer, Exception):
                self.step = self.coroutine.throw(self.answer)
            else:
                self.step = self.coroutine.send(self.answer)
        except StopIteration as end:
            self.is_done, self.result = True, end.value
        except ClientsError as error:
            self.is_done, self.result = True, error


class Visit:
    """A worker that has, or had, the lock on the session in its region."""

    def __init__(self, history: "History", region: Region, name: str) -> None:
        self.region = region
        self.name = name
        self.is_stopping = self.is_dead = False
        self.received: list[Arrival] = []
        self.writer: Course | None = None
        self.renewal: Course | None = None
        self.renewal_due = history.now
        offset, wall = region.offset, history.walls[region.site]
        self.worker = Worker(
            name,
            region.site,
            history.settings[region.site],
            region.cache,
            monotonic=lambda: history.now + offset,
            wall=lambda: WALL + history.now + wall,
            is_stopping=lambda: self.is_stopping,
        )
        self.work = SessionWork(PARTITION, self.worker, cast("Lane", SteppedLane()))
        self.course = Course(self.work.run(), history.now)

    @property
    def has_lock(self) -> bool:
        return self.region.holder is self

    def courses(self, now: float) -> list[Course]:
        """Return what goes on; a renewal begins beside the work."""
        if self.is_dead or (self.course.is_done and (self.renewal is None or self.renewal.is_done)):
            return []
        held = self.work.held_lease
        has_renewed = self.renewal is None or self.renewal.is_done
        if has_renewed and not self.course.is_done and now >= self.renewal_due:
            heartbeat = self.worker.settings.heartbeat_seconds
            self.renewal_due = now + heartbeat / 3
            if held is not None and not held.is_lost and held.must_renew(self.worker.monotonic(), heartbeat):
                self.renewal = Course(renew(held, cast("Lane", SteppedLane())), now)
        return [each for each in (self.course, self.renewal) if each is not None and not each.is_done]


class History:
    """What happens under one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now = 0.0
        self.log: list[str] = []
        self.effects: list[tuple[str, Delivery]] = []
        self.unsure: set[str] = set()
        """Messages whose application has failed after its effect, and knows it."""
        self._rate = chance.choice((0.01, 0.02, 0.05, 0.15))
        self._deaths = chance.choice((0, 1, 2, 4))
        self._calm = chance.choice((100.0, 400.0, 1500.0))
        self._outage = chance.uniform(0.0, self._calm), chance.choice((0.0, 0.0, 0.0, 250.0))
        self.walls = {site: chance.choice((0.0, -5.0, 3600.0)) for site in SITES}
        self.settings = self._drawn_settings()
        self.regions = {site: Region(site) for site in SITES}
        store: Any = UncertainStore(self, new_store())
        self._journals = {
            site: Journal(store, self.settings[site], max_final=chance.choice((1, 2, 20))) for site in SITES
        }
        self._visits: list[Visit] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self.origins: dict[str, str] = {}
        self._send()

    def is_faulty(self) -> bool:
        return self.now < self._calm and self.chance.random() < self._rate

    def is_away(self) -> bool:
        start, seconds = self._outage
        return start <= self.now < start + seconds

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self._agenda.append((self.now + delay, next(self._numbers), act))
        self._agenda.sort()

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:9.3f} {text}")

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

    def _send(self) -> None:
        """Send messages in one region or in both; each arrives in the other one too, in the order of its origin."""
        senders = SITES if self.settings["west"].number is None and self.chance.random() < 0.6 else SITES[:1]
        sent = 0.0
        copied = dict.fromkeys(SITES, 0.0)
        for number in range(1, self.chance.choice((2, 4, 8)) + 1):
            sent += self.chance.choice((0.0, 0.0, 1.0, 10.0, 40.0))
            site = self.chance.choice(senders)
            copied[site] = max(copied[site] + 0.01, sent + self.chance.choice((0.1, 1.0, 5.0, 60.0, 200.0)))
            name = f"m{number}"
            self.origins[name] = site
            self.later(sent, partial(self._accept, name, number, copied[site] - sent))

    def _accept(self, name: str, number: int, delay: float) -> None:
        origin = self.origins[name]
        place = self.regions[origin].place()
        self._arrive(name, number, origin, {origin: place})
        (other,) = {*SITES} - {origin}
        self.later(delay, lambda: self._arrive(name, number, other, {f"copy:{origin}": place}))

    def _arrive(self, name: str, number: int, site: str, lines: dict[str, int]) -> None:
        region = self.regions[site]
        if site not in lines:
            lines[site] = region.place()
        counted = None if self.settings[site].number is None else number
        region.messages.append(Arrival(name, name, SESSION, self.origins[name], lines, counted, WALL + self.now))
        self.note(f"{name} arrives at {site}")

    def run(self) -> bool:
        """Go on until nothing happens any more; return whether that was so."""
        for _ in range(_MOST_STEPS):
            while self._agenda and self._agenda[0][0] <= self.now:
                self._agenda.pop(0)[2]()
            for region in self.regions.values():
                if region.holder is None and region.messages and self.now >= region.free_from:
                    region.holder = Visit(self, region, f"{region.site}-{next(self._numbers)}")
                    self._visits.append(region.holder)
            going = [(visit, course) for visit in self._visits for course in visit.courses(self.now)]
            due = [(visit, course) for visit, course in going if course.due <= self.now]
            if due:
                self._advance(*self.chance.choice(due))
            elif not self._leap([course.due for _, course in going]):
                return True
        return False

    def _leap(self, times: list[float]) -> bool:
        times += [visit.renewal_due for visit in self._visits if visit.courses(self.now)]
        times += [time for time, _, _ in self._agenda[:1]]
        times += [each.free_from for each in self.regions.values() if each.holder is None and each.messages]
        self.now = min((time for time in times if time > self.now), default=self.now)
        return any(time >= self.now for time in times)

    def _advance(self, visit: Visit, course: Course) -> None:
        if self._deaths and self.now < self._calm and self.chance.random() < 0.004:
            self._deaths -= 1
            self._disturb(visit, course)
            return
        if course.is_answered:
            if visit.writer is course:
                visit.writer = None
            course.go_on()
        elif course.step is not None:
            self._do(visit, course, course.step)
        if visit.course.is_done and visit.has_lock:
            self.note(f"{visit.name} ends: {visit.course.result}")
            self._unlock(visit, 0.0 if visit.course.result is Ending.EMPTY else 1.0)

    def _disturb(self, visit: Visit, course: Course) -> None:
        """Kill all workers of a process, or stop one, or let one go on too late and without its lock."""
        kind = self.chance.choice(("killed", "killed", "late", "stopped"))
        self.note(f"{visit.name} is {kind}")
        if kind == "stopped":
            visit.is_stopping = True
            return
        if visit.has_lock:
            self._unlock(visit, self.chance.choice((0.1, 30.0, 60.0)))
        if kind == "late":
            course.due = self.now + self.chance.choice((5.0, 40.0, 100.0))
            return
        region = visit.region
        for each in self._visits:
            if each.region is region:
                each.is_dead = True
                if each.has_lock:
                    self._unlock(each, 60.0)
        region.cache, region.offset = WorkerCache(), self.chance.choice((0.0, 50.0, 1e6))

    def _unlock(self, visit: Visit, seconds: float) -> None:
        visit.region.holder, visit.region.free_from = None, self.now + seconds

    def _do(self, visit: Visit, course: Course, step: Step) -> None:
        """Do a step; its answer comes later, sometimes much later."""
        if step.name in ("commit", "read"):
            if visit.writer not in (None, course):
                course.due = self.now + 0.2  # a lane writes one after the other
                return
            visit.writer = course
        course.is_answered = True
        course.due = self.now + self._latency(step)
        try:
            course.answer = self._perform(visit, step)
        except (ClientsError, LockLost) as error:
            course.answer = error
        if step.name == "run" and course.answer is None:
            # The effect comes at the end of the work.
            delivery = step.delivery
            course.step, course.is_answered = Step("effect", (delivery,), {}), False

    def _latency(self, step: Step) -> float:
        if step.name == "wait":
            return float(step.arguments[0])
        is_calm = self.now >= self._calm
        if step.name == "run":
            return self.chance.choice((0.01, 0.5, 3.0) if is_calm else (0.01, 0.5, 3.0, 25.0, 45.0, 100.0))
        if not is_calm and self.chance.random() < 0.01 + self._rate / 5:
            return self.chance.choice((2.0, 11.0, 25.0, 35.0, 70.0))
        return self.chance.choice((0.001, 0.01, 0.05, 0.3))

    def _perform(self, visit: Visit, step: Step) -> Any:
        journal = self._journals[visit.region.site]
        match step.name, step.arguments:
            case "commit", (held, changes, entries):
                self.note(
                    f"{visit.name} commits {[(each.message_id, each.state.value, each.attempt) for each in entries]}"
                )
                journal.commit(held, changes, entries, **step.options, monotonic=visit.worker.monotonic)
            case "read", arguments:
                return journal.read(*arguments)
            case "register", arguments:
                journal.register(*arguments)
            case "receive", (count,):
                self._need_lock(visit)
                taken = [each for each in visit.region.messages if each not in visit.received][:count]
                visit.received += taken
                return taken
            case "effect", (delivery,):
                return self._effect(visit, delivery)
            case "complete", (arrival,):
                self._settle(visit, arrival, "completed")
            case "dead_letter", (arrival, reason, _):
                self._settle(visit, arrival, reason)
        return None

    def _need_lock(self, visit: Visit) -> None:
        if visit.has_lock and self.is_faulty():
            self._unlock(visit, 0.0)
        if not visit.has_lock:
            raise LockLost("the session has another owner")

    def _settle(self, visit: Visit, arrival: Arrival, result: str) -> None:
        self._need_lock(visit)
        visit.region.messages.remove(arrival)
        assert arrival.message_id not in visit.region.settled
        visit.region.settled[arrival.message_id] = result
        self.note(f"{visit.name}: {arrival.message_id} {result}")
        self._need_lock(visit)  # its answer may be lost too

    def _effect(self, visit: Visit, delivery: Delivery) -> Fault | None:
        if not delivery.is_held():
            return _NOT_HELD
        if self.is_faulty():
            return _BUSY
        self.effects.append((delivery.message_id, delivery))
        self.note(f"{visit.name} does {delivery.message_id}, attempt {delivery.attempt}, {delivery.may_have_run}")
        if self.is_faulty():
            self.unsure.add(delivery.message_id)
            return _BUSY
        return None

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
