"""
Resume marks: how far a consumer has come, in a form that lets it continue with the copies in another region.

A position is kept per view: messages published at a site and read there ("west/0", with the partition last), and
messages of west read as copies in east ("west@east/0"). Service Bus has one view per session, without a partition.
Numbers and times of a position are those of the site where its messages were read: its service gives them, and no
producer can forge them, as it can the stamps of a copy. The ids come with the time at the origin, so that the times of
one message come from one clock, and the allowance only covers the nodes of one namespace.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import JournalMalformed, JournalRefused
from busway_clients.rows import Row, Write
from busway_clients.sessions.entries import ALPHANUMERIC, escaped, whole_number
from busway_clients.stamps import ENQUEUE_TIME, PATH, SEQUENCE, hop_time, hops, text_of, text_properties

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STAMPS = "repl-"
_CLOCKS_DIFFER = 300.0
"""How far the clocks of two namespaces may differ, in seconds: no copy arrives earlier than it was sent."""


@dataclass(frozen=True)
class Seen:
    """
    A message or event as a consumer sees it; number and time are those of its origin.

    *read_number*, *read_enqueued*: of a copy, the number and the time that the service at *site* gave it. *content*: a
    digest by which copies are recognised besides the id.
    """

    origin: str
    site: str
    partition: str = ""
    message_id: str | None = None
    number: int | None = None
    enqueued: float | None = None
    read_number: int | None = None
    read_enqueued: float | None = None
    content: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether it is read at another site than its origin."""
        return self.origin != self.site

    @property
    def view(self) -> str:
        """The view to which it belongs."""
        return view_name(self.origin, self.site, self.partition)


def seen_message(message: ServiceBusReceivedMessage, site: str) -> Seen:
    """Return a Service Bus message as a consumer at *site* sees it."""
    return _seen(message, text_properties(message.application_properties), site, "", message.enqueued_time_utc)


def seen_event(event: Any, site: str, partition: str) -> Seen:  # noqa: ANN401 - of a package that is not required
    """Return an azure.eventhub.EventData as a consumer of *partition* at *site* sees it."""
    return _seen(event, text_properties(event.properties), site, partition, event.enqueued_time)


def _seen(
    message: Any,  # noqa: ANN401 - of either service
    properties: Mapping[str, Any],
    site: str,
    partition: str,
    enqueued: datetime | None,
) -> Seen:
    path = hops(properties, PATH)
    arrived = None if enqueued is None else enqueued.timestamp()
    content = _digest(message, properties)
    named = None if message.message_id is None else text_of(message.message_id)
    own = Seen(site, site, partition, named, message.sequence_number, arrived, content=content)
    # What names no other site is no copy, whatever its path says.
    if not path or path[0] == site or not _SITE.fullmatch(path[0]):
        return own
    numbers, times = hops(properties, SEQUENCE), hops(properties, ENQUEUE_TIME)
    first = whole_number(numbers[0]) if numbers else None
    stamped = hop_time(times[0]) if times else None
    sent = None if stamped is None else stamped.timestamp()
    if sent is not None and arrived is not None and sent > arrived + _CLOCKS_DIFFER:
        sent = None
    return replace(own, origin=path[0], number=first, enqueued=sent, read_number=own.number, read_enqueued=own.enqueued)


def _digest(message: Any, properties: Mapping[str, Any]) -> str:  # noqa: ANN401 - of either service
    """Return a digest of the body and of the properties, without those that Busway writes."""
    body = getattr(message, "body", None)
    if isinstance(body, Iterable) and not isinstance(body, str | bytes | Mapping):
        body = list(body)
    named = sorted((name, repr(value)) for name, value in properties.items() if not str(name).startswith(_STAMPS))
    return short_digest(repr((body, named)))


def short_digest(text: str) -> str:
    """Return a digest of *text* that fits into a mark many times."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def view_name(origin: str, site: str, partition: str) -> str:
    """Return the name of the view of messages from *origin* that are read at *site*."""
    return f"{origin}/{partition}" if origin == site else f"{origin}@{site}/{partition}"


def view_parts(view: str) -> tuple[str, str, str]:
    """Return the origin of a view's messages, the site where they are read, and the partition there."""
    place, _, partition = view.rpartition("/")
    origin, _, site = place.partition("@")
    return origin, site or origin, partition


SCHEMA = 2
_WITH_STAMPS = 1
"""An earlier schema, in which the positions of copies are what their stamps said."""
MARK_KEY = "mark"
KEPT_IDS = 200
"""Ids per view; a property of a table holds 32,768 characters."""
KEPT_IDS_OF_MANY = 20
MANY_VIEWS = 16
MOST_VIEWS = 150
"""Messages can name any site as their origin, and a row of a table has 252 properties and 1 MiB."""


@dataclass(frozen=True)
class Position:
    """
    The progress in a view.

    *ids* are the latest ids (see `id_of`), with their times. *since* is the time after which no id is missing,
    None if no id was ever dropped.
    """

    number: int | None = None
    enqueued: float | None = None
    ids: tuple[tuple[str, float], ...] = ()
    since: float | None = None

    def after(self, seen: Seen, kept_ids: int = KEPT_IDS) -> "Position":
        """Return the position after *seen* is processed too, with at most *kept_ids* ids."""
        ids, since = list(self.ids), self.since
        if seen.message_id is not None and seen.enqueued is not None:
            ids.append((id_of(seen.message_id) + seen.content, seen.enqueued))
        elif seen.enqueued is not None:
            since = _later(since, seen.enqueued)
        elif seen.read_enqueued is not None:
            # A copy that does not say when it was sent was sent before it arrived.
            since = _later(since, seen.read_enqueued + _CLOCKS_DIFFER)
        while len(ids) > kept_ids:
            left_out = min(ids, key=lambda each: each[1])
            ids.remove(left_out)
            since = _later(since, left_out[1])
        number, enqueued = seen.number, seen.enqueued
        if seen.is_copy:
            number, enqueued = seen.read_number, seen.read_enqueued
        if _is_later(enqueued, self.enqueued) and _is_later(self.number, number):
            # The entity was created again, and counts from the beginning.
            return Position(number, enqueued, tuple(ids), since)
        return Position(_later(self.number, number), _later(self.enqueued, enqueued), tuple(ids), since)

    def has_read(self, seen: Seen) -> bool:
        """
        Return whether *seen*, a copy of this view, was read before.

        The time counts too, because a hub that was created again has the same numbers again.
        """
        number, enqueued = seen.read_number, seen.read_enqueued
        if number is None or enqueued is None or self.number is None or self.enqueued is None:
            return False
        return number <= self.number and enqueued <= self.enqueued


@dataclass(frozen=True)
class Mark:
    """The positions of a consumer, by view; *version* is that of its row."""

    positions: Mapping[str, Position] = field(default_factory=dict)
    version: str | None = None

    def after(self, seen: Seen) -> "Mark":
        """
        Return the mark after *seen* is processed too; messages of a view must come in their order.

        A view beyond MOST_VIEWS is not noted: its messages may be processed again.
        """
        if seen.view not in self.positions and len(self.positions) >= MOST_VIEWS:
            return self
        kept_ids = KEPT_IDS if len(self.positions) <= MANY_VIEWS else KEPT_IDS_OF_MANY
        position = self.positions.get(seen.view, Position()).after(seen, kept_ids)
        return replace(self, positions={**self.positions, seen.view: position})


def id_of(message_id: str) -> str:
    """Return the first half of an id in a position; the digest of the content follows."""
    return f"{short_digest(message_id)}:"


def joined(marks: Collection[Mark]) -> Mark:
    """Return several marks, such as those of all partitions, as one; raises JournalRefused where two overlap."""
    positions: dict[str, Position] = {}
    for mark in marks:
        if shared := positions.keys() & mark.positions.keys():
            raise JournalRefused(f"two marks have {', '.join(sorted(shared))}, expected each view in one")
        positions |= mark.positions
    return Mark(positions)


def mark_row(mark: Mark) -> Write:
    """Return a mark as the row of its partition; it must not have been written by another since it was read."""
    views = sorted(mark.positions)
    properties: dict[str, str | int] = {"Open": 0, "Schema": SCHEMA, "Views": json.dumps(views)}
    for number, view in enumerate(views):
        position = asdict(mark.positions[view])
        properties[f"View{number}"] = json.dumps(position, separators=(",", ":"), ensure_ascii=False)
    return Write(MARK_KEY, properties, mark.version)


def mark_of(rows: Collection[Row], place: str) -> Mark:
    """Return the mark in *rows*, an empty one without any; raises JournalMalformed."""
    row = next((row for row in rows if row.key == MARK_KEY), None)
    if row is None:
        return Mark()
    schema = row.properties.get("Schema")
    if schema not in (SCHEMA, _WITH_STAMPS):
        raise JournalMalformed(f"{place}: the mark has schema {schema}, expected {SCHEMA}")
    try:
        names = json.loads(str(row.properties["Views"]))
        views = {view: json.loads(str(row.properties[f"View{number}"])) for number, view in enumerate(names)}
        if schema == _WITH_STAMPS:
            views = {view: each for view, each in views.items() if "@" not in view}
        positions = {view: _position(each) for view, each in views.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise JournalMalformed(f"{place}: the mark is not well formed, expected views with their positions") from error
    return Mark(positions, row.version)


def mark_partition(consumer: str, scope: str) -> str:
    """Return the partition of a mark; *scope* is a session, or a partition of a hub."""
    # Neither part contains the separator after escaping, so that two pairs never get the same partition.
    return f"k.{escaped(consumer, ALPHANUMERIC)}.{escaped(scope, ALPHANUMERIC)}"


def _position(read: Mapping[str, Any]) -> Position:
    def held(name: str, kind: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - a number, a time or None
        return None if read[name] is None else kind(read[name])

    ids = tuple((str(name), float(time)) for name, time in read["ids"])
    return Position(held("number", int), held("enqueued", float), ids, held("since", float))


def _is_later(one: float | None, other: float | None) -> bool:
    """Return whether both are known, two numbers or two times, and the first is the larger one."""
    return one is not None and other is not None and one > other


def _later(one: Any, other: Any) -> Any:  # noqa: ANN401 - two numbers or two times
    return max((each for each in (one, other) if each is not None), default=None)
