"""
Random histories of a consumer with marks that moves between two sites: a seed draws what is published, copied and read.

Events share their times, and clocks differ within the allowance; events have no ids, and copies no times; editors
change copies; a hub is deleted and created again; the consumer is killed before it has saved its mark.
"""

import itertools
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from busway_clients.sessions import Bookmarks, Place, Seen, Translation, joined, seen_event, seen_message
from tests.clients.sessions.region import new_store

SITES = ("west", "east")
START = 1_790_000_000.0
_ALLOWANCE = 5.0


@dataclass
class Published:
    """What an application has published once; its copies are the same."""

    name: str
    origin: str
    message_id: Any
    body: bytes
    is_processed: bool = False
    is_unsaved: bool = False
    """Whether the consumer was killed before its mark had it."""


@dataclass
class Stored:
    """An event in a partition of a site."""

    published: Published
    number: int
    enqueued: float
    properties: dict[bytes, bytes]
    body: list[bytes]


@dataclass
class Hub:
    """The partitions of one site."""

    partitions: Sequence[str]
    events: dict[str, list[Stored]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events = {partition: [] for partition in self.partitions}
        self._numbers = {partition: itertools.count() for partition in self.partitions}

    def number(self, partition: str) -> int:
        return next(self._numbers[partition])


class MarkHistory:
    """What happens under one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.log: list[str] = []
        self.found: list[str] = []
        self.now = 0.0
        self.is_bus = chance.random() < 0.3
        # One session of Service Bus is a view without a partition.
        counts = (1, 1) if self.is_bus else (chance.choice((1, 2)), chance.choice((1, 2)))
        self._partitions = {
            site: [str(n) if not self.is_bus else "" for n in range(count)]
            for site, count in zip(SITES, counts, strict=True)
        }
        self.numbers_agree = counts[0] == counts[1] and chance.random() < 0.6
        self.hubs = {site: Hub(partitions) for site, partitions in self._partitions.items()}
        self._offsets = {site: chance.choice((0.0, 0.0, -1.0, 1.0)) for site in SITES}
        self._jitter = chance.choice((0.0, 0.0, 1.0))
        self._kinds = chance.choice((("text",), ("none",), ("text", "none"), ("number", "bytes", "uuid", "text")))
        self._edits = chance.random() < 0.2
        self._bad_times = chance.choice((0.0, 0.0, 0.1))
        self._recreates = chance.choice((0, 0, 1))
        self._publishers = chance.choice((("west",), ("west", "east")))
        self._copying: list[tuple[float, int, Stored, str, str]] = []
        self._copied = dict.fromkeys(SITES, 0.0)
        self._sequence = itertools.count(1)
        self.published: list[Published] = []
        self.lost: set[str] = set()
        self._store = new_store()
        self._store.open()
        self.books = Bookmarks(self._store, "c")
        self._first_native: dict[str, float] = {}
        self._visited: list[str] = []

    def run(self) -> bool:
        chance = self.chance
        site = "west"
        for _ in range(chance.choice((2, 3, 5))):
            for _ in range(chance.choice((0, 1, 3))):
                self._publish(chance.choice((1, 5, 5, 40, 230)))
            self._visit(site, chance.choice((0.0, 0.3, 0.9, 1.0)))
            if self._recreates and chance.random() < 0.5:
                self._recreates -= 1
                self._recreate(chance.choice(SITES))
            site = chance.choice(SITES)
        self.now += 10_000.0
        self._copy()
        for _ in range(3):
            self._visit(site, 1.0)
        return True

    def _publish(self, count: int) -> None:
        for _ in range(count):
            site = self.chance.choice(self._publishers)
            self.now += self.chance.choice((0.0, 0.0, 0.0, 0.001, 0.4, 3.0))
            name = f"{site[0]}{next(self._sequence)}"
            published = Published(name, site, self._id(name), self.chance.choice((b"same", name.encode())))
            self.published.append(published)
            self._first_native.setdefault(site, self._clock(site))
            partition = self.chance.choice(self._partitions[site])
            stored = self._store_in(site, partition, published, {})
            (other,) = {*SITES} - {site}
            delay = self.chance.choice((0.1, 0.1, 2.0, 60.0, 600.0))
            target = partition if self.numbers_agree else self.chance.choice(self._partitions[other])
            # A task copies a partition in its order.
            self._copied[site] = max(self._copied[site], self.now + delay)
            self._copying.append((self._copied[site], next(self._sequence), stored, other, target))

    def _id(self, name: str) -> Any:
        kind = self.chance.choice(self._kinds)
        number = int(name[1:])
        return {
            "none": None,
            "text": name,
            "number": number,
            "bytes": b"\xff" + name.encode(),
            "uuid": uuid.UUID(int=number),
        }[kind]

    def _clock(self, site: str) -> float:
        return round(START + self.now + self._offsets[site] + self.chance.uniform(-self._jitter, self._jitter), 3)

    def _store_in(self, site: str, partition: str, published: Published, properties: dict[bytes, bytes]) -> Stored:
        hub = self.hubs[site]
        body = [published.body + b"!"] if properties and self._edits else [published.body]
        stored = Stored(published, hub.number(partition), self._clock(site), properties, body)
        hub.events[partition].append(stored)
        return stored

    def _copy(self) -> None:
        """Let copies arrive that are due."""
        now = self.now
        self._copying.sort(key=lambda each: each[:2])
        while self._copying and self._copying[0][0] <= now:
            at, _, stored, site, partition = self._copying.pop(0)
            self.now = at
            time = datetime.fromtimestamp(stored.enqueued, UTC).isoformat(timespec="milliseconds")
            if self.chance.random() < self._bad_times:
                time = self.chance.choice(("soon", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00Z"))
            properties = {
                "repl-path": stored.published.origin,
                "repl-sequence": str(stored.number),
                "repl-enqueue-time": time,
            }
            self._store_in(
                site, partition, stored.published, {name.encode(): text.encode() for name, text in properties.items()}
            )
        self.now = now

    def _recreate(self, site: str) -> None:
        """Delete the hub, with what was not copied, and create it again."""
        self._copy()
        self.log.append(f"{site} is created again")
        # Nobody can know any more what was in it; only what comes after that must be right.
        self.lost |= {each.name for each in self.published if each.origin == site}
        self.lost |= {stored.published.name for events in self.hubs[site].events.values() for stored in events}
        self._copying = [each for each in self._copying if each[2].published.origin != site]
        self.hubs[site] = Hub(self._partitions[site])
        self.now += 60.0

    def _visit(self, site: str, part: float) -> None:
        """Read at a site from the start that the mark allows, and stop after a part of what is there."""
        self._copy()
        self.log.append(f"{self.now:.3f} visit of {site}")
        if site not in self._visited:
            self._visited.append(site)
        scopes = sorted({partition for partitions in self._partitions.values() for partition in partitions})
        marks = {scope: self.books.load(scope) for scope in scopes}
        quiet: dict[str, datetime] = {}
        for each in SITES:
            if self.chance.random() < 0.7:
                first = self._first_native.get(each)
                # What an operator knows: nothing was published there until then.
                quiet[each] = datetime.fromtimestamp(START + self.now - 30 if first is None else first - 3.0, UTC)
        partitions = {} if self.is_bus else self._partitions
        translation = Translation(
            joined(marks.values()),
            partitions,
            numbers_agree=self.numbers_agree,
            allowance_seconds=_ALLOWANCE,
            quiet_until=quiet,
        )
        starts: dict[str, Any] = {"": "-1"} if self.is_bus else translation.start(site)
        for partition in self._partitions[site]:
            events = [*self.hubs[site].events[partition]]
            start = starts[partition]
            if isinstance(start, datetime):
                first_at = next((n for n, each in enumerate(events) if each.enqueued >= start.timestamp()), len(events))
                events = events[first_at:]
            mark, unsaved = marks[partition], list[Published]()
            for stored in events[: int(len(events) * part + 0.5)]:
                seen = self._seen(site, partition, stored)
                if self._is_processed(partition, stored, translation.place(seen)):
                    mark = mark.after(seen)
                    unsaved.append(stored.published)
                    if self.chance.random() < 0.03:
                        mark, unsaved = self.books.save(partition, mark), []
                if self.is_bus:
                    self.hubs[site].events[partition].remove(stored)
            if part == 1.0 or self.chance.random() < 0.5:
                self.books.save(partition, mark)
                unsaved = []
            for published in unsaved:
                published.is_unsaved = True

    def _is_processed(self, partition: str, stored: Stored, place: Place) -> bool:
        """Process an event unless it is done, and return whether it was."""
        published = stored.published
        known = ", processed" if published.is_processed else ""
        at = f"{stored.number}@{stored.enqueued - START:.3f} in {partition}"
        self.log.append(f"{published.name} {at}: {place.value}{known}")
        if place is Place.DONE:
            if not published.is_processed and published.name not in self.lost:
                self.found.append(f"{published.name} is skipped, and was not processed")
            return False
        if (
            place is Place.NEXT
            and published.is_processed
            and not published.is_unsaved
            and published.name not in self.lost
        ):
            self.found.append(f"{published.name} is taken for new, and was processed")
        if place is Place.UNSURE and self.numbers_agree and len(self._visited) == 1:
            self.found.append(f"{published.name} is unsure before any switch")
        published.is_processed, published.is_unsaved = True, False
        return True

    def _seen(self, site: str, partition: str, stored: Stored) -> Seen:
        event: Any = SimpleNamespace(
            message_id=stored.published.message_id, sequence_number=stored.number, body=stored.body
        )
        enqueued = datetime.fromtimestamp(stored.enqueued, UTC)
        if self.is_bus:
            event.enqueued_time_utc, event.application_properties = enqueued, stored.properties
            return seen_message(event, site)
        event.enqueued_time, event.properties = enqueued, stored.properties
        return seen_event(event, site, partition)

    def objections(self) -> list[str]:
        """Return what is wrong after the last visit."""
        left = [each.name for each in self.published if not each.is_processed and each.name not in self.lost]
        return [*self.found, *(f"{name} was never read" for name in left)]


History = MarkHistory
