"""
Resume marks: how far a consumer has come, in a form that lets it continue with the copies in another region.

A position is kept per view: messages published at a site and read there ("west/0", with the partition last), and
messages of west read as copies in east ("west@east/0"). Service Bus has one view per session, without a partition.
Numbers and times of a copy are those of its origin, from the first hop in repl-sequence and repl-enqueue-time. So the
times of one message come from one clock, and the allowance only covers the nodes of one namespace. Only the time at
which to start in a copied hub (`start`) is compared with another namespace's clock.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Protocol

from busway_clients.sessions.errors import JournalMalformed, JournalRefused
from busway_clients.sessions.fields import whole_number
from busway_clients.sessions.received import ENQUEUE_TIME, PATH, SEQUENCE, ReceivedMessage, hops, text_properties
from busway_clients.sessions.rows import Row, Write

SCHEMA = 1
MARK_KEY = "mark"
KEPT_IDS = 200
"""Ids per view; a property of a table holds 32,768 characters, and an id up to 128."""


class ReceivedEvent(Protocol):
    """The properties of azure.eventhub.EventData that are read."""

    @property
    def message_id(self) -> str | None: ...  # noqa: D102 - the SDK's own
    @property
    def sequence_number(self) -> int | None: ...  # noqa: D102 - likewise
    @property
    def enqueued_time(self) -> datetime | None: ...  # noqa: D102 - likewise
    @property
    def properties(self) -> Mapping[Any, Any]: ...  # noqa: D102 - likewise


@dataclass(frozen=True)
class Seen:
    """A message or event as a consumer sees it; number and time are those of its origin."""

    origin: str
    site: str
    partition: str = ""
    message_id: str | None = None
    number: int | None = None
    enqueued: float | None = None

    @property
    def view(self) -> str:
        """The view to which it belongs."""
        return _view(self.origin, self.site, self.partition)


class Place(Enum):
    """Whether a message is covered by a mark; process an UNSURE one again, since it may not have been processed."""

    DONE = "done"
    UNSURE = "unsure"
    NEXT = "next"


@dataclass(frozen=True)
class Position:
    """
    How far a view has been processed.

    *ids* are the latest ids, with their times. *complete_since* is the time after which no id is missing, None if no id
    was ever dropped.
    """

    number: int | None = None
    enqueued: float | None = None
    ids: tuple[tuple[str, float], ...] = ()
    complete_since: float | None = None

    def after(self, seen: Seen) -> "Position":
        """Return the position after *seen* is processed too."""
        ids, since = list(self.ids), self.complete_since
        if seen.message_id is not None and seen.enqueued is not None:
            ids.append((seen.message_id, seen.enqueued))
        elif seen.enqueued is not None:
            since = _later(since, seen.enqueued)
        while len(ids) > KEPT_IDS:
            left_out = min(ids, key=lambda each: each[1])
            ids.remove(left_out)
            since = _later(since, left_out[1])
        return Position(_later(self.number, seen.number), _later(self.enqueued, seen.enqueued), tuple(ids), since)


@dataclass(frozen=True)
class Mark:
    """The positions of a consumer, by view; *version* is that of its row."""

    positions: Mapping[str, Position] = field(default_factory=dict)
    version: str | None = None

    def after(self, seen: Seen) -> "Mark":
        """Return the mark after *seen* is processed too; messages of a view must come in their order."""
        position = self.positions.get(seen.view, Position()).after(seen)
        return replace(self, positions={**self.positions, seen.view: position})


def joined(marks: Collection[Mark]) -> Mark:
    """Return several marks, such as those of all partitions, as one; raises JournalRefused where two overlap."""
    positions: dict[str, Position] = {}
    for mark in marks:
        if shared := positions.keys() & mark.positions.keys():
            raise JournalRefused(f"two marks have {', '.join(sorted(shared))}, expected each view in one")
        positions |= mark.positions
    return Mark(positions)


@dataclass(frozen=True)
class Translation:
    """
    A mark, for a consumer that continues at another site.

    *partitions*: the partitions of each site's hub. While the mark lacks a position for one of them, no message is
    considered processed because of its time. Omit it for Service Bus. *numbers_agree*: whether the numbers in a copy's
    repl-sequence are those that a consumer at the origin sees. That holds for hubs where copies keep their partition
    (`partition: keep`, or all events have keys and partition counts are equal), and for subscriptions that select the
    same messages.
    """

    mark: Mark
    partitions: Mapping[str, Collection[str]] = field(default_factory=dict)
    numbers_agree: bool = False
    allowance_seconds: float = 5.0
    quiet_until: Mapping[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for site, until in self.quiet_until.items():
            if until.tzinfo is None:
                raise JournalRefused(f"quiet_until of {site} has no time zone, expected one")

    def place(self, seen: Seen) -> Place:
        """Return whether *seen* has been processed, at any site."""
        views = {site: self._views(seen.origin, site) for site in self._sites(seen.origin)}
        positions = [position for view in views.values() for position in view.values()]
        if seen.message_id is not None and any(seen.message_id == name for each in positions for name, _ in each.ids):
            return Place.DONE
        numbered = [each for each in map(self.mark.positions.get, self._comparable(seen)) if each is not None]
        known = [each.number for each in numbered if each.number is not None]
        if seen.number is not None and known and seen.number <= max(known):
            return Place.DONE
        if seen.number is not None and self.numbers_agree:
            return Place.NEXT
        if not positions:
            return Place.NEXT
        if seen.enqueued is None:
            return Place.UNSURE
        return self._by_time(seen, seen.enqueued, list(views.items()))

    def _by_time(self, seen: Seen, enqueued: float, views: list[tuple[str, Mapping[str, Position]]]) -> Place:
        allowance = self.allowance_seconds
        is_after_all = True
        for site, view in views:
            # Numbers and times of a hub are per partition: one without a position may not have been processed at all.
            times = [each.enqueued for each in view.values() if each.enqueued is not None]
            is_whole = len(times) == len(self.partitions.get(site, ("",)))
            if is_whole and enqueued < min(times) - allowance:
                return Place.DONE
            known_by_id = seen.message_id is not None and all(
                each.complete_since is None or each.complete_since < enqueued for each in view.values()
            )
            if not known_by_id and any(enqueued <= time + allowance for time in times):
                is_after_all = False
        return Place.NEXT if is_after_all else Place.UNSURE

    def start(self, site: str) -> dict[str, datetime | str]:
        """
        Return the starting_position of each partition of *site*'s hub, for `EventHubConsumerClient.receive`.

        A copy arrives later than its original, so every copy that was enqueued before the earliest unprocessed time has
        been processed. The allowance is subtracted for differences between clocks. Skip each event for which `place`
        returns DONE. If a position of any partition is missing, reading starts at the beginning ("-1"), also for
        events of *site* itself, unless *quiet_until* covers them.
        """
        partitions = self.partitions.get(site)
        if not partitions:
            raise JournalRefused(f"the partitions of {site} are missing, expected those of its hub")
        origins = {view.partition("@")[0] if "@" in view else view.rpartition("/")[0] for view in self.mark.positions}
        starts: list[float | None] = [self._done_until(origin) for origin in sorted(origins | {site})]
        known = [each for each in starts if each is not None]
        if len(known) < len(starts):
            return dict.fromkeys(partitions, "-1")
        begin = datetime.fromtimestamp(min(known), UTC) - timedelta(seconds=self.allowance_seconds)
        return dict.fromkeys(partitions, begin)

    def _done_until(self, origin: str) -> float | None:
        """Return the time up to which everything of *origin* is processed, according to the most advanced view."""
        reached: list[float] = []
        for site in self._sites(origin):
            view = self._views(origin, site)
            times = [each.enqueued for each in view.values() if each.enqueued is not None]
            if len(times) == len(self.partitions.get(site, ("",))):
                reached.append(min(times))
        if origin in self.quiet_until:
            reached.append(self.quiet_until[origin].timestamp())
        return max(reached, default=None)

    def _sites(self, origin: str) -> list[str]:
        views = self.mark.positions
        copies = {view.split("@")[1].rpartition("/")[0] for view in views if view.startswith(f"{origin}@")}
        native = {origin} if any(view.startswith(f"{origin}/") for view in views) else set[str]()
        return sorted(copies | native)

    def _views(self, origin: str, site: str) -> dict[str, Position]:
        prefix = _view(origin, site, "")
        return {view: position for view, position in self.mark.positions.items() if view.startswith(prefix)}

    def _comparable(self, seen: Seen) -> list[str]:
        """Return the views whose numbers belong to the same sequence as that of *seen*."""
        is_one_sequence = seen.origin == seen.site or seen.partition == "" or self.numbers_agree
        own = [seen.view] if is_one_sequence else []
        if not self.numbers_agree:
            return own
        others = [_view(seen.origin, site, seen.partition) for site in self._sites(seen.origin)]
        return list(dict.fromkeys([*own, *others]))


def seen_message(message: ReceivedMessage, site: str) -> Seen:
    """Return a Service Bus message as a consumer at *site* sees it."""
    return _seen(
        message.application_properties,
        site,
        "",
        message_id=message.message_id,
        number=message.sequence_number,
        enqueued=message.enqueued_time_utc,
    )


def seen_event(event: ReceivedEvent, site: str, partition: str) -> Seen:
    """Return an Event Hubs event as a consumer of *partition* at *site* sees it."""
    return _seen(
        event.properties,
        site,
        partition,
        message_id=event.message_id,
        number=event.sequence_number,
        enqueued=event.enqueued_time,
    )


def mark_row(mark: Mark) -> Write:
    """Return a mark as the row of its partition; it must not have been written by another since it was read."""
    positions = {
        view: {"number": each.number, "enqueued": each.enqueued, "ids": each.ids, "since": each.complete_since}
        for view, each in mark.positions.items()
    }
    properties: dict[str, str | int] = {"Open": 0, "Schema": SCHEMA, "Views": json.dumps(sorted(positions))}
    for number, view in enumerate(sorted(positions)):
        properties[f"View{number}"] = json.dumps(positions[view], separators=(",", ":"), ensure_ascii=False)
    return Write(MARK_KEY, properties, mark.version)


def mark_of(rows: Collection[Row], place: str) -> Mark:
    """Return the mark in *rows*, an empty one without any; raises JournalMalformed."""
    row = next((row for row in rows if row.key == MARK_KEY), None)
    if row is None:
        return Mark()
    if row.properties.get("Schema") != SCHEMA:
        raise JournalMalformed(f"{place}: the mark has schema {row.properties.get('Schema')}, expected {SCHEMA}")
    try:
        names = json.loads(str(row.properties["Views"]))
        views = {view: json.loads(str(row.properties[f"View{number}"])) for number, view in enumerate(names)}
        positions = {view: _position(each) for view, each in views.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise JournalMalformed(f"{place}: the mark is not well formed, expected views with their positions") from error
    return Mark(positions, row.version)


def mark_partition(consumer: str, scope: str) -> str:
    """Return the partition of a mark; *scope* is a session, or a partition of a hub."""
    # Neither part contains the separator after escaping, so that two pairs never get the same partition.
    return f"k.{_escaped(consumer)}.{_escaped(scope)}"


def _escaped(text: str) -> str:
    return "".join(
        each if each.isascii() and each.isalnum() else "".join(f"={byte:02X}" for byte in each.encode())
        for each in text
    )


def _position(read: Mapping[str, Any]) -> Position:
    ids = tuple((str(name), float(time)) for name, time in read["ids"])
    number, enqueued, since = read["number"], read["enqueued"], read["since"]
    return Position(
        None if number is None else int(number),
        None if enqueued is None else float(enqueued),
        ids,
        None if since is None else float(since),
    )


def _seen(
    carried: Mapping[Any, Any] | None,
    site: str,
    partition: str,
    *,
    message_id: str | None,
    number: int | None,
    enqueued: datetime | None,
) -> Seen:
    properties = text_properties(carried)
    path = hops(properties, PATH)
    if not path:
        return Seen(site, site, partition, message_id, number, None if enqueued is None else enqueued.timestamp())
    numbers, times = hops(properties, SEQUENCE), hops(properties, ENQUEUE_TIME)
    first = whole_number(numbers[0]) if numbers else None
    return Seen(path[0], site, partition, message_id, first, _time(times[0]) if times else None)


def _time(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.timestamp() if time.tzinfo is not None else None


def _view(origin: str, site: str, partition: str) -> str:
    return f"{origin}/{partition}" if origin == site else f"{origin}@{site}/{partition}"


def _later(one: Any, other: Any) -> Any:  # noqa: ANN401 - two numbers or two times
    return max((each for each in (one, other) if each is not None), default=None)
