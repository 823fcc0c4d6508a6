"""
What a copy must be: its original, as the source delivered it, with stamps that name each site that it has left.

Between Service Bus and Event Hubs a session is a partition key, and the header and what only one of them takes are
stored in `repl-*` properties; docs/mapping.md.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import starmap
from typing import NamedTuple

from shared.amqp.codec import decode_all, items_of, pairs_of
from shared.amqp.sections import Sections, split
from shared.amqp.values import Described, Value
from shared.message.ttl import MIN_MILLISECONDS

# A rule of the source sets the first two; the others are in a dead letter.
_OF_THE_SOURCE = ("replication", "RuleName", "DeadLetter")
_ASSIGNED = {
    *("x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-offset"),
    *("x-opt-partition-id", "x-opt-locked-until", "x-opt-scheduled-enqueue-time"),
}
_PARTITION_KEY = "x-opt-partition-key"
_STORED_LIFE = "repl-sb-time-to-live"
# Fields of a header, and of properties.
_PRIORITY, _LIFE = 1, 2
_SESSION = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Expected(NamedTuple):
    """What is expected of a copy beside its original."""

    path: Sequence[str]
    """The sites that it has left."""
    key: str
    """Its session, or its partition key."""
    is_event: bool
    """Whether it lies in a hub."""
    crosses: bool
    """Whether it has been carried from Service Bus to Event Hubs, or back."""
    ends_within: int | None = None
    """How many milliseconds it may live longer than its original, None if it has a life of its own."""


class Parts:
    """What the oracles compare of a message."""

    def __init__(self, sections: Sections) -> None:
        """Decode its *sections* when they are asked for."""
        self.sections = sections

    @cached_property
    def header(self) -> Sequence[Value | None]:
        """Return the fields of its header."""
        return _fields(self.sections.header)

    @cached_property
    def fields(self) -> Sequence[Value | None]:
        """Return the fields of its properties."""
        return _fields(self.sections.properties)

    @cached_property
    def annotations(self) -> Mapping[str, Value]:
        """Return its message annotations."""
        return _named(self.sections.message_annotations)

    @cached_property
    def properties(self) -> Mapping[str, Value]:
        """Return the properties of the application."""
        return _named(self.sections.application_properties)


@lru_cache(maxsize=512)
def read(content: bytes) -> Parts:
    """Return the parts of a message, which the oracles ask for several times."""
    return Parts(split(content))


def properties_of(content: bytes) -> Mapping[str, Value]:
    """Return the application properties of a message."""
    return read(content).properties


def difference(original: bytes, copy: bytes, expected: Expected) -> str | None:
    """Return what is wrong with *copy*, None if nothing is."""
    source, found = read(original), read(copy)
    wrong = wrong_stamps(original, copy, expected.path)
    if wrong is not None:
        return wrong
    if source.sections.body != found.sections.body or source.sections.footer != found.sections.footer:
        return "its body"
    own, kept = _own(source.properties), _own(found.properties)
    if own != kept:
        return f"its application properties: {sorted(own)}, now {sorted(kept)}"
    return _crossed(source, found, expected) if expected.crosses else _carried(source, found, expected)


def wrong_stamps(original: bytes, copy: bytes, path: Sequence[str]) -> str | None:
    """Return what is wrong with the stamps of a copy that has left the sites of *path*, None if nothing is."""
    found = properties_of(copy)
    stamps = {name: _text(found, name) for name in ("repl-path", "repl-enqueue-time", "repl-sequence", "repl-offset")}
    if not path:
        return None if not any(stamps.values()) else f"its stamps, {sorted(stamps.items())}, though it is no copy"
    if stamps["repl-path"] != [*path]:
        return f"its path {stamps['repl-path']}, expected {[*path]}"
    annotations = read(original).annotations
    moment = _EPOCH + timedelta(milliseconds=int(str(annotations["x-opt-enqueued-time"].payload)))
    firsts = {
        "repl-enqueue-time": f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
        "repl-sequence": str(annotations["x-opt-sequence-number"].payload),
    }
    if "x-opt-offset" in annotations:
        firsts["repl-offset"] = str(annotations["x-opt-offset"].payload)
    for name, first in firsts.items():
        if len(stamps[name]) != len(path) or stamps[name][0] != first:
            return f"its {name} {stamps[name]}, expected {len(path)} that begin with {first}"
    return None


def _carried(source: Parts, found: Parts, expected: Expected) -> str | None:
    """Return what is wrong with a message that has stayed in one kind of namespace, apart from what all must keep."""
    if source.sections.properties != found.sections.properties:
        return "its properties"
    if _given(source.annotations) != _given(found.annotations):
        return "its annotations"
    if source.sections.header != found.sections.header:
        before, after = source.header, found.header
        if before[_PRIORITY] != after[_PRIORITY] or (before[_LIFE] != after[_LIFE] and expected.ends_within is None):
            return "its header"
    life = found.header[_LIFE]
    is_over = life is not None and life.payload == MIN_MILLISECONDS  # it ended while it waited
    if expected.ends_within is not None and not is_over and _end(found) - _end(source) > expected.ends_within:
        return "its end, which is after that of its original"
    return None


def _crossed(source: Parts, found: Parts, expected: Expected) -> str | None:
    """Return what is wrong with a message that was an event, or the reverse, apart from what is as it was."""
    if source.fields[:_SESSION] != found.fields[:_SESSION]:
        return "its properties"
    key = found.annotations.get(_PARTITION_KEY) if expected.is_event else found.fields[_SESSION]
    if key is None or key.payload != expected.key:
        return f"its key {key}"
    if expected.is_event and found.properties.get(_STORED_LIFE) != source.header[_LIFE]:
        return "its stored time to live"
    return None


def _own(properties: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in properties.items() if not name.startswith(("repl-", *_OF_THE_SOURCE))}


def _given(annotations: Mapping[str, Value]) -> dict[str, Value]:
    """Return the annotations that the service has not assigned."""
    return {name: value for name, value in annotations.items() if name not in _ASSIGNED}


def _end(parts: Parts) -> int:
    """Return when a message expires, in milliseconds since 1970 by the clock of its site."""
    ends = parts.annotations["x-opt-enqueued-time"], parts.header[_LIFE]
    return sum(int(str(end.payload)) for end in ends if end is not None)


def _text(properties: Mapping[str, Value], name: str) -> list[str]:
    """Return the values of a stamp, one for each hop."""
    return str(properties[name].payload).split(";") if name in properties else []


def _named(section: bytes) -> dict[str, Value]:
    described = decode_all(section).payload if section else None
    if not isinstance(described, Described):
        return {}
    return dict(starmap(lambda key, value: (str(key.payload), value), pairs_of(described.value)))


def _fields(section: bytes) -> list[Value | None]:
    """Return the fields of a list, filled up with None: trailing nulls may be left out."""
    described = decode_all(section).payload if section else None
    values = items_of(described.value) if isinstance(described, Described) else ()
    fields = [None if value.payload is None else value for value in values]
    return [*fields, *[None] * (13 - len(fields))]
