"""
Event hubs: partitions are logs that each reader reads at its own pace.

Sources: Microsoft Learn, "Event Hubs features" (partitions, retention, epochs); azure-eventhub for the positions. The
texts of refusals are those of the service: azure-sdk-for-python 30931 and azure-sdk-for-net 9213 for positions,
azure-event-hubs-go 181, azure-sdk-for-java 12483 and 26583 for epochs, azure-sdk-for-java 38117 for too many readers.
"""

import bisect
import itertools
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from busway_broker import errors
from busway_broker.config import HubConfig
from busway_broker.core.event import Event, EventContent
from busway_broker.core.home import Recorder
from busway_broker.core.partition_hash import partition_of_key
from busway_broker.core.times import in_milliseconds, milliseconds
from busway_broker.errors import Refusal
from shared.clock import Clock

DEFAULT_CONSUMER_GROUP = "$default"
MAX_READERS = 5


class Reader(Protocol):
    """A reader of a partition for a consumer group; with an epoch (owner level) it is the only one."""

    epoch: int | None
    """The epoch, None for a reader that shares the partition."""
    name: str
    """What the reader calls itself, `nil` without a name."""

    def wake(self) -> None:
        """Handle the arrival of new events."""
        ...

    def stolen(self, refusal: Refusal) -> None:
        """Stop, because another reader has taken the partition."""
        ...


class Coordinate(Enum):
    """The kind of value that a starting position is given as."""

    OFFSET = "x-opt-offset"
    SEQUENCE_NUMBER = "x-opt-sequence-number"
    ENQUEUED_TIME = "x-opt-enqueued-time"


_GEO_OFFSET = re.compile(r"\d{1,9}:\d{1,19}:(\d{1,19})", re.ASCII)


def sequence_number_in(offset: str) -> int | None:
    """Return the sequence number in an offset of a geo-replicated hub, whatever the region, None for another text."""
    match = _GEO_OFFSET.fullmatch(offset)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class Position:
    """A starting position: after a value, or at it if inclusive; a value of None is the end."""

    coordinate: Coordinate
    value: int | None
    is_inclusive: bool
    text: str | None = None
    """The value as the reader wrote it, if it is another one."""


class Partition:
    """One log of events."""

    def __init__(self, config: HubConfig, number: int, clock: Clock, recorder: Recorder) -> None:
        self.hub = config.name
        self.partition_id = str(number)
        self.path = f"{config.name}/Partitions/{number}"
        """The path that events are sent to this partition at."""
        self._clock = clock
        self._retention = in_milliseconds(config.message_retention)
        self._retention_size = config.retention_size
        self.events: list[Event] = []
        """Those that are retained; the newest one remains `last` even when it is no longer retained."""
        self._first = 0
        self._end_offset = 0
        self.last: Event | None = None
        self.recorder = recorder
        self._readers: dict[str, list[Reader]] = {}

    def restore(self, events: Sequence[Event]) -> None:
        """Load the events of a stored partition, which include its newest one; retention applies at once."""
        self.events = list(events)
        if self.events:
            self.last = self.events[-1]
            self._first = self.events[0].sequence_number
            self._end_offset = self.last.offset + self.last.content.size
            self._forget(milliseconds(self._clock))

    @property
    def begin_sequence_number(self) -> int:
        """Return the number of the oldest event, or of the next one if none is retained; -1 if it never had one."""
        self._forget(milliseconds(self._clock))
        return -1 if self.last is None else self._first

    @property
    def is_empty(self) -> bool:
        """Return whether no event is retained."""
        self._forget(milliseconds(self._clock))
        return not self.events

    @property
    def next_sequence_number(self) -> int:
        """Return the number that the next event will get."""
        return self._first + len(self.events)

    def append(self, contents: Iterable[EventContent]) -> None:
        """Add events and wake the readers."""
        now = milliseconds(self._clock)
        first = len(self.events)
        for content in contents:
            self.last = Event(content, self.next_sequence_number, self._end_offset, now)
            self.events.append(self.last)
            self._end_offset += content.size
        self.recorder.appended(self.path, self.events[first:])
        self._forget(now)
        for reader in list(itertools.chain.from_iterable(self._readers.values())):
            reader.wake()

    def event(self, sequence_number: int) -> Event | None:
        """Return the event with this number, or the oldest one if it is no longer retained; None past the end."""
        index = max(sequence_number - self._first, 0)
        return self.events[index] if index < len(self.events) else None

    def start(self, position: Position) -> int:
        """Return the sequence number to read from; Refusal(ARGUMENT_ERROR) for a position behind the last event."""
        self._forget(milliseconds(self._clock))
        if position.value is None:
            return self.next_sequence_number
        if position.coordinate is not Coordinate.ENQUEUED_TIME:
            name, end = _PLACES[position.coordinate]
            last = -1 if self.last is None else end(self.last)
            if position.value > last:
                given = position.value if position.text is None else position.text
                raise Refusal(
                    errors.ARGUMENT_ERROR,
                    f"The supplied {name} '{given}' is invalid. The last {name} in the system is '{last}'",
                )
        if position.coordinate is Coordinate.SEQUENCE_NUMBER:
            return position.value + (not position.is_inclusive)
        values = {Coordinate.OFFSET: _offset, Coordinate.ENQUEUED_TIME: _enqueued_time}
        find = bisect.bisect_left if position.is_inclusive else bisect.bisect_right
        return self._first + find(self.events, position.value, key=values[position.coordinate])

    def join(self, consumer_group: str, reader: Reader) -> None:
        """
        Add a reader for a consumer group.

        Raises:  Refusal(LINK_STOLEN) while a reader with a higher epoch reads, or one with an epoch and this has none;
                 Refusal(RESOURCE_LIMIT_EXCEEDED) for too many without an epoch. Readers of lower or no epoch are
                 disconnected.
        """
        readers = self._readers.setdefault(consumer_group, [])
        highest = max((reader.epoch for reader in readers if reader.epoch is not None), default=None)
        if highest is not None and reader.epoch is None:
            raise Refusal(
                errors.LINK_STOLEN,
                f"At least one receiver for the endpoint is created with epoch of '{highest}', and so non-epoch "
                "receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are "
                "closed or disconnected.",
            )
        if highest is not None and reader.epoch is not None and reader.epoch < highest:
            raise Refusal(
                errors.LINK_STOLEN,
                f"A receiver with a higher epoch '{highest}' already exists. A new receiver with epoch {reader.epoch} "
                "cannot be created. Make sure you are creating receiver with increasing epoch value to ensure "
                "connectivity, or ensure all old epoch receivers are closed or disconnected.",
            )
        if reader.epoch is None:
            if len(readers) >= MAX_READERS:
                names = ", ".join(reader.name for reader in readers)
                raise Refusal(
                    errors.RESOURCE_LIMIT_EXCEEDED,
                    "Exceeded the maximum number of allowed receivers per partition in a consumer group which is "
                    f"{MAX_READERS}. List of connected receivers - {names}.",
                )
        else:
            losers, readers[:] = list(readers), []
            for loser in losers:
                current = "" if loser.epoch is None else f" with epoch '{loser.epoch}'"
                text = (
                    f"New receiver '{reader.name}' with higher epoch of '{reader.epoch}' is created hence current "
                    f"receiver '{loser.name}'{current} is getting disconnected. If you are recreating the receiver, "
                    "make sure a higher epoch is used."
                )
                loser.stolen(Refusal(errors.LINK_STOLEN, text))
        readers.append(reader)

    def leave(self, consumer_group: str, reader: Reader) -> None:
        """Remove a reader."""
        readers = self._readers.get(consumer_group, [])
        if reader in readers:
            readers.remove(reader)

    def _forget(self, now: int) -> None:
        """Drop the events past their retention and the oldest ones beyond the size, but never the newest one."""
        count = bisect.bisect_right(self.events, now - self._retention, key=_enqueued_time)
        if self._retention_size is not None:
            oldest = bisect.bisect_left(self.events, self._end_offset - self._retention_size, key=_offset)
            count = max(count, min(oldest, len(self.events) - 1))
        if count:
            del self.events[:count]
            self._first += count
            if self.last is not None:
                # The newest event is kept: the next one continues from its number and offset.
                self.recorder.dropped(self.path, min(self._first, self.last.sequence_number))


class Hub:
    """An event hub."""

    def __init__(self, config: HubConfig, clock: Clock, recorder: Recorder | None = None) -> None:
        self.path = config.name
        self.key = f"{config.name.lower()} (hub)"
        """What it is registered as: a hub and a queue of one namespace may share a name."""
        self.config = config
        self.created_at = milliseconds(clock)
        self.partitions = [
            Partition(config, number, clock, recorder or Recorder()) for number in range(config.partition_count)
        ]
        self.consumer_groups = {DEFAULT_CONSUMER_GROUP, *(group.lower() for group in config.consumer_groups)}
        self._turns = itertools.cycle(self.partitions)

    def partition(self, partition_id: str) -> Partition:
        """Return a partition; Refusal(ARGUMENT_OUT_OF_RANGE) if it does not exist."""
        for partition in self.partitions:
            if partition.partition_id == partition_id:
                return partition
        raise Refusal(
            errors.ARGUMENT_OUT_OF_RANGE,
            f"{self.path}: the partition is invalid, expected 0 to {len(self.partitions) - 1}",
        )

    def add_consumer_group(self, name: str) -> None:
        """Add a consumer group, unless it exists."""
        if name.lower() not in self.consumer_groups:
            self.config = replace(self.config, consumer_groups=(*self.config.consumer_groups, name))
            self.consumer_groups.add(name.lower())

    def consumer_group(self, name: str) -> str:
        """Return a consumer group's name in lower case; Refusal(NOT_FOUND) if it does not exist."""
        if name.lower() not in self.consumer_groups:
            raise Refusal(errors.NOT_FOUND, f"{self.path}: the consumer group {name} could not be found")
        return name.lower()

    def partition_for(self, partition_key: str | None) -> Partition:
        """Return the partition that a key always maps to, or the next one in turn without a key."""
        if partition_key is None:
            return next(self._turns)
        return self.partitions[partition_of_key(partition_key, len(self.partitions))]


_offset, _enqueued_time = operator.attrgetter("offset"), operator.attrgetter("enqueued_time")
_sequence_number = operator.attrgetter("sequence_number")
_PLACES = {Coordinate.OFFSET: ("offset", _offset), Coordinate.SEQUENCE_NUMBER: ("sequence number", _sequence_number)}
