"""The world of one history: sites, network, applications, instances of the app, an operator, and what goes wrong."""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from busway_broker.config import EntityStatus
from busway_broker.core.properties import Changes
from busway_broker.core.store import MessageStore
from host.checkpoints import Checkpoints, Partition
from host.platform import Ending, Losing
from shared.ends.azure_amqp.raw_link import Delivery
from shared.journal.sink import Stream
from tests.simulation.applications import Applications
from tests.simulation.draft import Draft
from tests.simulation.event_loop import SeededLoop
from tests.simulation.faults import LONGEST_SECONDS, Event, Faults
from tests.simulation.instance import Instance
from tests.simulation.journal import Stored
from tests.simulation.network import Network, entity_of
from tests.simulation.site import BEGIN, Site, Sites, SkewedClock
from tests.simulation.topology import DEAD_LETTERS, Input, Topology, configuration, locked, source_path

_HEALING_SECONDS = 1_800.0
_RESTART = 1.0, 30.0
# The time in which nobody reads the partitions of an instance that has ended.
_UNCLAIMED = 30.0, 90.0
# A target has answered, another one has not for a second, and the record has been written.
_UNRECORDED = 10.0
_MOST_INSTANCES = 3
_SPARES = 6
_SLOWEST_EDITOR = 45.0
# While something is away, people restart what waits for it.
_RESTARTS = 0.6
_LOCK_SECONDS = 10.0, 60.0
_LASTING = frozenset((Event.OUTAGE, Event.DISABLE, Event.JOURNAL))


@dataclass(frozen=True)
class Scale:
    """How much a history has of everything."""

    messages: int = 8
    """Each of one of the inputs."""
    keys: int = 3
    rate: float = 0.04
    """The probability that a request goes wrong."""
    events: int = 2
    size: int = 0
    """The bytes of a body; large ones do not fit one call together."""
    window: float = 120.0
    """The seconds in which messages are sent and faults happen."""


class Happening(NamedTuple):
    """What is to happen, for how long, a number that decides where, and how the app is restarted after which share."""

    event: Event
    seconds: float = 0.0
    where: float = 0.0
    restart: tuple[Event, float] | None = None


class PlantedLosses(Losing):
    """Settles messages without an invocation, and keeps them."""

    def __init__(self, every: int | None = None) -> None:
        """Lose every so manyth, none without it."""
        super().__init__(every)
        self.contents: list[bytes] = []

    def divide(self, name: str, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
        """As `Losing.divide`."""
        kept, lost = super().divide(name, deliveries)
        self.contents += [delivery.payload for delivery in lost]
        return kept, lost


@dataclass
class World:
    """One history in the making; `run` makes it."""

    seed: int
    topology: Topology
    scale: Scale
    most_faults: int | None = None
    loses: int | None = None
    """Every so manyth message is settled without an invocation: a loss that is planted."""
    chance: random.Random = field(init=False)
    records: list[list[dict[str, Any]]] = field(init=False, default_factory=list)
    """The records of each member of the journal."""
    given_up: list[tuple[Sequence[str], int, int]] = field(init=False, default_factory=list)
    """The tasks and number of each message that a source gave up, and how many members the journal had."""
    wrong: defaultdict[str, set[str]] = field(init=False, default_factory=partial(defaultdict, set))
    """What was seen to go wrong while it was made, and with which messages or functions."""
    received: set[str] = field(init=False, default_factory=set)
    """What is on record as received."""

    def __post_init__(self) -> None:
        """Create the sites."""
        self.chance = random.Random(self.seed)
        self.loop = SeededLoop(self.chance)  # type: ignore[abstract] # without sockets, processes and signals
        self.faults = Faults(self.seed + 1, self.scale.rate, self.most_faults)
        self.network = Network(self.loop, self.chance, self.faults)
        skews = {namespace.name: self.skew() for namespace in self.topology.namespaces}
        self.lock_seconds = self.chance.choice(_LOCK_SECONDS)
        self.sites = {
            namespace.name: Site(namespace, SkewedClock(self.loop, skews[namespace.name]))
            for namespace in locked(self.topology, self.lock_seconds)
        }
        self.loop.calendar = Sites(self.sites)
        self.journal: list[bytes] = []
        """The lines of each of its members."""
        self.blobs: dict[str, tuple[datetime, bytearray]] = {}
        """What the journal has by the names of its blobs, and when that was written."""
        self.readers: dict[str, Instance] = {}
        """The instances that read hubs themselves, by their tasks."""
        self.stored = Stored()
        self.recorded: dict[tuple[str, str], float] = {}
        """When a copy or part was first on record as sent: by the place and the name in its body."""
        self._of_number: dict[tuple[object, ...], str] = {}
        self.checkpoints = Checkpoints()
        self.losing = PlantedLosses(self.loses)
        self.paused: dict[str, float] = {}
        """Since when tasks are paused."""
        self.has_journal = True
        self.slowness = 0.0
        """The seconds that an editor takes."""
        self.deleted: dict[tuple[str, str], list[bytes]] = {}
        """What has arrived at a place before it was deleted and created again."""
        self.batch_size = self.chance.choice((1, 3, 250))
        self.calls_per_session = self.chance.choice((1, 3)) if "dispatch: single" in self.topology.tasks else 1
        self.batch_limit = self.chance.choice((700, 4_000)) if not self.scale.size else 2 * self.scale.size
        """The bytes in one transfer."""
        short = timedelta(seconds=max(6.0, self.scale.window / 5))
        self.hold = self.chance.choice((None, short, 3 * short))
        """How long a delivery waits for its targets, None: as long as its task file says."""
        self.accepted: list[Draft] = []
        self.instances: list[Instance] = []
        self.is_quiet = False
        self.seen: dict[Input, list[bytes]] = {}
        """What each source has accepted, as a tap sees it."""
        self.unnumbered: set[str] = set()
        """Those of which the manifest of a repair has no number, as of what only a tap elsewhere has seen."""
        self._configuration = configuration(self.topology)
        self.tasks = self._configuration.tasks
        self._started = 0
        self.applications = Applications(self)

    def skew(self) -> float:
        """Return by how much a clock differs."""
        return self.chance.uniform(-0.5, 0.5)

    def steal_after(self) -> float | None:
        """Return after how many seconds of an invocation a partition gets a second owner, if it does."""
        if self.is_quiet or self.faults.chance.random() < 0.8:
            return None
        return 5.0 if self.faults.happens(Event.STEAL, self.loop.time(), "app") else None

    def run(self) -> bool:
        """Send, copy and break; then heal. Return whether everything came to rest."""
        window = self.scale.window
        self._watch_sources()
        self.applications.begin()
        for at in self._moments():
            self.network.at(at, partial(self._happen, self._drawn()))
        self._in_loop(self._start_instance)
        if self.has_shares and any(file.source.hub is not None for file in self.tasks):
            # One that takes over a partition may have had its first message long before.
            self.network.at(self.chance.random() * _RESTART[1], partial(self._happen, Happening(Event.SCALE)))
        self.loop.run_until(lambda: False, window)
        self._in_loop(self._heal)
        return self.loop.run_until(self.is_drained, window + _HEALING_SECONDS)

    def _moments(self) -> list[float]:
        """Return when something happens: at any time, or all within a minute, as what goes wrong does."""
        chance, window = self.faults.chance, self.scale.window
        if chance.random() < 0.5:
            return [chance.random() * window for _ in range(self.scale.events)]
        begin = chance.random() * window
        return [min(begin + chance.random() ** 2 * 60.0, window) for _ in range(self.scale.events)]

    def _watch_sources(self) -> None:
        """Note what the journal has when a source gives up a message."""
        readers: dict[MessageStore, list[str]] = {}
        for file in self.tasks:
            if file.source.hub is None:
                site = self.sites[self._configuration.site(file.source.connection)]
                readers.setdefault(site.namespace.store(source_path(file)), []).append(file.task)
        for store, tasks in readers.items():
            for settle in (store.complete, store.dead_letter):
                setattr(store, settle.__name__, partial(self._settle, tasks, store, settle))

    def _settle(
        self, tasks: Sequence[str], store: MessageStore, settle: Callable[..., None], token: bytes, **more: Changes
    ) -> None:
        before = [*store.messages]
        settle(token, **more)
        self.given_up += [(tasks, number, len(self.journal)) for number in before if number not in store.messages]

    def lose_journal(self, seconds: float) -> None:
        """Let the storage account be away for a while."""
        self.has_journal = False
        self.network.later(seconds, partial(setattr, self, "has_journal", True))

    def note_unrecorded(self, sent: Mapping[tuple[str, str], float]) -> None:
        """Note what an instance that ends has *sent* a while ago, and has not recorded: others will send it again."""
        latest = self.loop.time() - _UNRECORDED
        targets = {"/".join(place) for place in self.topology.places} if self.has_shares else ()
        self.wrong["sent long before the end of an instance, and not on record"] |= {
            name
            for (place, name), at in sent.items()
            if at < latest and entity_of(place) in targets and (entity_of(place), name) not in self.recorded
        }

    @property
    def has_order(self) -> bool:
        """Whether messages keep their order; `busway check` refuses several calls for a session (0046)."""
        return self.topology.has_order and not (self.calls_per_session > 1 and self.network.has_released)

    @property
    def has_shares(self) -> bool:
        """Whether messages have several targets or parts."""
        return self.topology.splits or any(len(route.targets) > 1 for file in self.tasks for route in file.routes)

    def write(self, stream: Stream, instance: str, member: bytes) -> None:
        """Append a member to the journal."""
        lines = gzip.decompress(member)
        self.journal.append(lines)
        now = BEGIN + timedelta(seconds=self.loop.time())
        name = f"task={stream.task}/{now:date=%Y-%m-%d/hour=%H}/role={stream.role}/{instance}.jsonl.gz"
        content = self.blobs[name][1] if name in self.blobs else bytearray()
        self.blobs[name] = now, content + member
        self.records.append([json.loads(line) for line in lines.splitlines()])
        for record in self.records[-1]:
            self._note(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        """Note what is on record as received, and where it is on record as sent."""
        number = record["task"], record.get("src_part"), record.get("src_seq")
        if record["role"] == "source":
            self._of_number[number] = str(record.get("message_id"))
            self.received.add(self._of_number[number])
        elif record["outcome"] in {"sent", "rejected"} and number in self._of_number and "target" in record:
            name = self._of_number[number]
            if self.topology.splits and record["outcome"] == "sent":
                name += f"/{record['part'] // len(self.topology.inputs[0].targets)}"
            # What the host is to send, and what it is to dead-letter, is on record before. An envelope has an id.
            is_before = record.get("handed_over", False) or record["target"].endswith(DEAD_LETTERS) or "." not in name
            if (record["target"], name) not in self.network.arrived and not is_before:
                self.wrong["on record as sent or rejected before it was there"].add(name)
            if self.has_shares and record["outcome"] == "sent":
                self.recorded.setdefault((record["target"], name), self.loop.time())

    def ended(self, instance: Instance) -> None:
        """Let the platform start another instance when one has ended."""
        if instance in self.instances:
            self.instances.remove(instance)
        if not self.instances:
            self.network.later(self.chance.uniform(*_RESTART), self._start_if_none)
        else:
            self.claim_later()

    def claim_later(self) -> None:
        """Let an instance take the partitions that nobody reads, after a while."""
        self.network.later(self.chance.uniform(*_UNCLAIMED), self._claim)

    def _claim(self) -> None:
        if self.instances:
            self.instances[-1].claim()

    def is_drained(self) -> bool:
        """Return whether no source has messages, and every hub is read to its end."""
        if self.applications.waiting:
            return False
        for file in self._configuration.tasks:
            source = file.source
            site = self.sites[self._configuration.site(source.connection)]
            if source.hub is not None:
                group = source.consumer_group or "$Default"
                for partition in site.namespace.hub(source.hub).partitions:
                    at = self.checkpoints.get(Partition(site.name, source.hub, group, partition.partition_id))
                    if partition.last is not None and at != str(partition.last.offset):
                        return False
                continue
            if site.namespace.store(source_path(file)).messages:
                return False
        return True

    # The platform and the operator

    def _start_instance(self) -> None:
        self._started += 1
        instance = Instance(self, self._started, self._configuration)
        self.instances.append(instance)
        instance.start()

    def _start_if_none(self) -> None:
        if not self.instances:
            self._in_loop(self._start_instance)

    def _in_loop(self, act: Callable[[], None]) -> None:
        self.network.later(0.0, act)

    def _heal(self) -> None:
        """Let everything work again."""
        self.is_quiet = True
        self.faults.end()
        self.paused.clear()
        self.has_journal = True
        self.slowness = 0.0
        for site in self.sites.values():
            site.is_away = False
        for site_name, path in self._targets():
            self._enable(site_name, path)
        self._start_if_none()

    def _drawn(self) -> Happening:
        chance = self.faults.chance
        event = chance.choice(self.faults.events)
        seconds, where = chance.random() ** 2 * LONGEST_SECONDS, chance.random()
        if event not in _LASTING or chance.random() >= _RESTARTS:
            return Happening(event, seconds, where)
        return Happening(event, seconds, where, (chance.choice((Event.KILL, Event.STOP, Event.STOP)), chance.random()))

    def _happen(self, happening: Happening) -> None:
        """Let something happen."""
        event, seconds, where, restart = happening
        if event in {Event.DISABLE, Event.DELETE} and not self._targets():
            event = Event.OUTAGE
        if self.is_quiet or not self.faults.happens(event, self.loop.time(), "world"):
            return
        if restart is not None:
            how, share = restart
            lasts = min(seconds, self.scale.window - self.loop.time())
            self.network.later(share * lasts, partial(self._happen, Happening(how)))
        sites = list(self.sites.values())
        site = sites[int(where * len(sites))]
        match event:
            case Event.OUTAGE:
                site.is_away = True
                self.network.later(seconds, partial(setattr, site, "is_away", False))
            case Event.DISABLE:
                name, path = self._target(where)
                self.sites[name].set_status(path, EntityStatus.SEND_DISABLED)
                self.network.later(seconds, partial(self._enable, name, path))
            case Event.DELETE:
                self._delete(*self._target(where))
            case Event.JOURNAL:
                self.lose_journal(seconds)
            case Event.SLOW_EDITOR:
                self.slowness = min(seconds, _SLOWEST_EDITOR)
                self.network.later(seconds, partial(setattr, self, "slowness", 0.0))
            case Event.LOCKS:
                site.lose_locks()
            case Event.SESSIONS:
                site.lose_sessions()
            case Event.PAUSE:
                task = self._configuration.tasks[int(where * len(self._configuration.tasks))].task
                self.paused.setdefault(task, self.loop.time())
                self.network.later(seconds, partial(self._resume, task))
            case _:
                self._happen_to_app(event, where)

    def _resume(self, task: str) -> None:
        self.paused.pop(task, None)

    def _happen_to_app(self, event: Event, where: float) -> None:
        """Let something happen to an instance."""
        instance = self.instances[int(where * len(self.instances))] if self.instances else None
        match event:
            case Event.KILL if instance is not None:
                instance.kill()
            case Event.DRAIN | Event.STOP if instance is not None and not instance.is_ending:
                ending = Ending.DRAIN if event is Event.DRAIN else Ending.STOP
                self.loop.create_task(instance.end(ending), context=instance.context)
            case Event.SCALE if len(self.instances) < _MOST_INSTANCES and self._started < _SPARES:
                self._start_instance()
            case _:
                pass

    def _targets(self) -> list[tuple[str, str]]:
        """Return the queues and topics that tasks send to."""
        targets = [branch.target for file in self.tasks for branch in file.branches()]
        found = (
            target for target in targets if self._configuration.connections[target.connection].kind == "service-bus"
        )
        return list(dict.fromkeys((self._configuration.site(target.connection), target.entity) for target in found))

    def _target(self, where: float) -> tuple[str, str]:
        targets = self._targets()
        return targets[int(where * len(targets))]

    def _delete(self, site: str, path: str) -> None:
        """Delete a target with what it holds, unless a task takes messages from it; it is created again at once."""
        sources = {(self._configuration.site(task.source.connection), task.source.entity) for task in self.tasks}
        if any(source == site and entity.partition("/")[0] == path for source, entity in sources):
            return
        for place in self.topology.places:
            if place[0] == site and place[1].partition("/")[0] == path:
                self.deleted.setdefault(place, []).extend(self._contents(*place))
        self.sites[site].create_again(path)

    def _contents(self, site: str, path: str) -> list[bytes]:
        """Return the messages of a queue or subscription; those that have expired there count too."""
        namespace = self.sites[site].namespace
        stores = [namespace.store(path)]
        if not path.endswith(DEAD_LETTERS):
            stores.append(namespace.store(path + DEAD_LETTERS))
        messages = sorted(
            (message for store in stores for message in store.peek(0)), key=lambda each: each.original_number
        )
        return [message.encode() for message in messages]

    def contents(self, site: str, path: str) -> list[bytes]:
        """Return all messages that have arrived at a place, in its order; of a hub one partition after the other."""
        namespace = self.sites[site].namespace
        if path in namespace.hubs:
            return [event.encode() for partition in namespace.hub(path).partitions for event in partition.events]
        return self.deleted.get((site, path), []) + self._contents(site, path)

    def _enable(self, site: str, path: str) -> None:
        self.sites[site].set_status(path, EntityStatus.ACTIVE)
