"""The world of a history in which an operator sends messages again, with everybody else who works on them."""

import random
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from busway_broker.config import EntityStatus
from busway_broker.core.content import read_content
from busway_broker.core.entities import Topic
from busway_broker.core.message import State, StoredMessage
from busway_broker.core.store import MessageStore
from shared.amqp.values import Value, int_, string
from shared.line import rejection
from shared.resend.edits import RESENT_FROM
from tests.simulation.backlogs import Backlog, encoded, name_of
from tests.simulation.event_loop import SeededLoop
from tests.simulation.faults import RESEND_EFFECTS, Faults
from tests.simulation.ledger import Lines, failure_of
from tests.simulation.network import Network
from tests.simulation.operator_process import Report, ResendProcess, simulated_connections
from tests.simulation.rival import Rival
from tests.simulation.site import Site, Sites, SkewedClock
from tests.simulation.topology import settings_of
from tests.simulation.world import Scale

_HEALING_SECONDS = 6 * 3600.0
_PATIENCE = 8.0, 60.0, 330.0
_MOST_RUNS_AFTER = 4
_LONGEST_SECONDS = 400.0


class Disturbance(StrEnum):
    """What happens while messages are sent again."""

    OUTAGE = "site unreachable"
    DISABLE = "target disabled"
    DELETE = "target deleted and created again"
    LOCKS = "locks lost"
    SESSIONS = "sessions detached"
    KILL = "run killed"
    STOP = "run stopped"
    CONSUME = "messages taken from the target"
    RIVAL = "messages locked at the source"
    PRODUCE = "another message sent to the target"
    FORGE = "forged stamp sent to the target"


class Copy(NamedTuple):
    """A message at the target: in which life of the entity, with which number, and which message it is."""

    life: int
    number: int
    name: str


class Letter(NamedTuple):
    """A message that was given up."""

    key: str
    """Of its session."""
    name: str
    is_heavy: bool


class ResendWorld:
    """One history in the making; `run` makes it."""

    def __init__(self, seed: int, backlog: Backlog, scale: Scale, most_faults: int | None = None) -> None:
        """Create the sites, and the messages that were given up."""
        self.topology = self.backlog = backlog
        self.scale = scale
        self.chance = random.Random(seed)
        self.loop = SeededLoop(self.chance)  # type: ignore[abstract] # without sockets, processes and signals
        self.faults = Faults(seed + 1, scale.rate, most_faults, RESEND_EFFECTS)
        self.network = Network(self.loop, self.chance, self.faults)
        self.sites = {
            namespace.name: Site(namespace, SkewedClock(self.loop, self.skew())) for namespace in backlog.namespaces
        }
        self.loop.calendar = Sites(self.sites)
        self.settings = settings_of(backlog)
        self.batch_limit = self.chance.choice((900, 2_500, 60_000))
        self.patience = self.chance.choice(_PATIENCE)
        self.lines = Lines(failure_of(self.chance.random()))
        self.reports: list[Report] = []
        self.accepted: list[Letter] = []
        self.names: dict[str, str] = {}
        """The name of each message by its key in the ledger."""
        self.consumed: dict[tuple[str, str], list[Copy]] = {place: [] for place in backlog.copies}
        """What an application has taken from the target."""
        self.deleted: set[str] = set()
        """What was deleted with the target."""
        self.taken: list[str] = []
        """What another receiver has completed at the source."""
        self.foreign = 0
        self.lives = Counter[tuple[str, str]]()
        """How often each place was deleted and created again."""
        self._started = self._runs_after = 0
        self._is_quiet = False
        self._is_over = False
        self._process: ResendProcess | None = None
        self._rivals: list[Rival] = []
        self._consumes_in_order = self.chance.random() < 0.5
        self._has_consumer = self.chance.random() < 0.6
        self._has_producer = self.chance.random() < 0.6
        for _ in range(scale.messages):
            self._give_up()

    def skew(self) -> float:
        """Return by how much a clock is ahead."""
        return self.chance.uniform(-0.5, 0.5)

    def run(self) -> bool:
        """Send again and break; then heal. Return whether the operator has finished."""
        window = self.scale.window
        for _ in range(self.scale.events):
            self.network.at(self.faults.chance.random() * window, partial(self._happen, self._drawn()))
        with simulated_connections(self):
            self.network.later(0.0, self._start)
            self.loop.run_until(lambda: self._is_over, window)
            self.network.later(0.0, self._heal)
            return self.loop.run_until(lambda: self._is_over, window + _HEALING_SECONDS)

    @property
    def has_hub(self) -> bool:
        """Return whether the copies go to an event hub."""
        return any(entity in self.sites[site].namespace.hubs for site, entity in self.backlog.targets)

    # What there is

    @property
    def source(self) -> MessageStore:
        """Return the messages that were given up."""
        place = self.backlog.place
        return self.sites[place.site].namespace.store(place.entity)

    def at_source(self) -> list[str]:
        """Return the names of the messages that are at the source, in its order."""
        return [name for message in self.source.peek(0) if (name := name_of(message.encode())) is not None]

    def copies(self, site: str, path: str) -> list[Copy]:
        """Return the copies that have arrived at a place, in the order of their arrival."""
        return sorted(self.consumed[site, path] + self._there(site, path))

    def _there(self, site: str, path: str) -> list[Copy]:
        namespace = self.sites[site].namespace
        if path in namespace.hubs:
            events = [event for partition in namespace.hub(path).partitions for event in partition.events]
            found = [(event.sequence_number, event.encode()) for event in events]
        else:
            found = [(message.original_number, message.encode()) for message in namespace.store(path).peek(0)]
        named = ((number, name_of(content)) for number, content in found)
        return [Copy(self.lives[site, path], number, name) for number, name in named if name is not None]

    def probes(self) -> int:
        """Return how many messages are scheduled at the targets."""
        return sum(
            len(self.sites[site].namespace.target(entity).incoming.scheduled)
            for site, entity in self.backlog.targets
            if entity not in self.sites[site].namespace.hubs
        )

    def _give_up(self) -> None:
        """Put a message where the operator finds it."""
        backlog, chance = self.backlog, self.chance
        number = len(self.accepted) + 1
        letter = Letter(f"key-{chance.randrange(self.scale.keys)}", f"dead.west.{number}", chance.random() < 0.06)
        named: dict[str, Value] = {"number": int_(number)} | ({"heavy": int_(1)} if letter.is_heavy else {})
        if backlog.is_dead:
            named["DeadLetterReason"] = string("Broken")
        else:
            gave_up = chance.choice(("orders", "express")) if backlog.to is None else "orders"
            named |= {rejection.REASON: string("Broken"), rejection.SOURCE: string(f"west/{gave_up}")}
        content = read_content(encoded(letter.name, letter.key, named, self.scale.size))
        store = self.source
        number = store.add(content)
        self.accepted.append(letter)
        self.names[f"{number}/{store.messages[number].enqueued_time}"] = letter.name

    # The operator

    def ended(self, process: ResendProcess) -> None:
        """Let the operator look at what a run has reported, and begin another one."""
        if process is not self._process:
            return
        self._process = None
        is_last = self._is_quiet and process.began_in_peace
        self._runs_after += is_last
        has_ended = not process.was_killed and self.reports[-1].error is None
        is_complete = has_ended and not self.reports[-1].left
        if is_last and has_ended and (is_complete or self._runs_after >= _MOST_RUNS_AFTER):
            self._is_over = True
        elif self._is_quiet or not is_complete:
            pause = self.chance.choice((0.0, 0.5, 5.0, 60.0))
            self.network.later(pause, self._start)
            # What matters is who works on the messages before the next run looks.
            if self.faults.chance.random() < 0.4:
                _, seconds, where = self._drawn()
                consume = partial(self._happen, (Disturbance.CONSUME, seconds, where))
                self.network.later((pause + 5.0) * self.faults.chance.random(), consume)

    def _start(self) -> None:
        if self._process is None and not self._is_over:
            self._started += 1
            self._process = ResendProcess(self, self._started, in_peace=self._is_quiet)
            self._process.start()

    # Everybody else

    def _heal(self) -> None:
        """Let everything work again, and let the others stop."""
        self._is_quiet = True
        self.faults.end()
        for site in self.sites.values():
            site.is_away = False
        for site_name, entity in self.backlog.targets:
            self._set_status(site_name, entity, EntityStatus.ACTIVE)
        for rival in self._rivals:
            rival.end(self.chance)
        self._start()

    def _drawn(self) -> tuple[Disturbance, float, float]:
        """Return what is to happen, for how long, and a number that decides where."""
        chance = self.faults.chance
        return chance.choice(list(Disturbance)), chance.random() ** 2 * _LONGEST_SECONDS, chance.random()

    def _happen(self, drawn: tuple[Disturbance, float, float]) -> None:
        event, seconds, where = drawn
        is_useless = (event is Disturbance.CONSUME and not self._has_consumer) or (
            event in {Disturbance.PRODUCE, Disturbance.FORGE} and not self._has_producer
        )
        if self._is_quiet or is_useless or not self.faults.happens(event, self.loop.time(), "world"):
            return
        sites = list(self.sites.values())
        site = sites[int(where * len(sites))]
        name, entity = self.backlog.targets[int(where * len(self.backlog.targets))]
        match event:
            case Disturbance.OUTAGE:
                site.is_away = True
                self.network.later(seconds, partial(setattr, site, "is_away", False))
            case Disturbance.DISABLE:
                self._set_status(name, entity, EntityStatus.SEND_DISABLED)
                self.network.later(seconds, partial(self._set_status, name, entity, EntityStatus.ACTIVE))
            case Disturbance.DELETE:
                self._delete(name, entity)
            case Disturbance.LOCKS:
                site.lose_locks()
            case Disturbance.SESSIONS:
                site.lose_sessions()
            case Disturbance.KILL if self._process is not None:
                self._process.kill()
            case Disturbance.STOP if self._process is not None and self._process.run is not None:
                self._process.run.stop()
            case Disturbance.RIVAL:
                self._rivals.append(Rival(self.source, self.taken, 1 + int(where * 4)))
                self.network.later(seconds, partial(self._rivals[-1].end, self.chance))
            case Disturbance.CONSUME:
                self._consume(where)
            case Disturbance.PRODUCE | Disturbance.FORGE:
                self._produce(name, entity, is_forged=event is Disturbance.FORGE)
            case _:
                pass

    def _set_status(self, site: str, entity: str, status: EntityStatus) -> None:
        if entity not in self.sites[site].namespace.hubs:
            self.sites[site].set_status(entity, status)

    def _delete(self, site: str, entity: str) -> None:
        """Delete a target with what it holds, unless the source is part of it."""
        place = self.backlog.place
        is_source = place.site == site and place.entity.partition("/")[0] == entity
        if is_source or entity in self.sites[site].namespace.hubs:
            return
        for copies in self.backlog.copies:
            if copies[0] == site and copies[1].partition("/")[0] == entity:
                self.deleted.update(copy.name for copy in self._there(*copies))
                self.lives[copies] += 1
        self.sites[site].create_again(entity)

    def _consume(self, where: float) -> None:
        """Take messages from the target: the first ones, or any, as an application does that has several in hand."""
        site, path = self.backlog.copies[int(where * len(self.backlog.copies))]
        namespace = self.sites[site].namespace
        if path in namespace.hubs:
            return
        store = namespace.store(path)
        ready = [message for message in store.peek(0) if message.state is State.ACTIVE and message.lock_token is None]
        if not self._consumes_in_order:
            ready = [message for message in ready if self.chance.random() < 0.7]
        for message in self._first(ready):
            name = name_of(message.encode())
            store._forget(message)
            if name is None:
                self.foreign += 1
            else:
                self.consumed[site, path].append(Copy(self.lives[site, path], message.original_number, name))

    def _first(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the first of *messages*, or of one session."""
        if self.chance.random() < 0.3:
            return messages
        sessions = {message.content.session_id for message in messages}
        if len(sessions) > 1:
            chosen = self.chance.choice(sorted(sessions, key=str))
            messages = [message for message in messages if message.content.session_id == chosen]
        return messages[: self.chance.randrange(1, 4)]

    def _produce(self, site: str, entity: str, *, is_forged: bool) -> None:
        """Send something else to the target, which may look like a copy."""
        namespace = self.sites[site].namespace
        if entity in namespace.hubs or namespace.target(entity).config.status is not EntityStatus.ACTIVE:
            return
        self.foreign += isinstance(namespace.target(entity), Topic)
        named: dict[str, Value] = {"number": int_(0)}
        if is_forged:
            place, key = self.backlog.place, self.chance.choice(sorted(self.names))
            proof = self.chance.choice(("", "#", f"#{'0' * 32}"))
            named[RESENT_FROM] = string(f"{place.site}/{place.entity.lower()}/{key}{proof}")
        content = encoded(f"other-{self.loop.steps}", f"key-{self.chance.randrange(self.scale.keys)}", named)
        namespace.target(entity).publish(read_content(content))
