"""Links to event hubs: sending to a hub or one of its partitions, reading a partition for a consumer group."""

import itertools
import re

from busway_broker import errors
from busway_broker.core.content import read_batch
from busway_broker.core.event import EventContent, read_event, read_partition_key
from busway_broker.core.hub import Coordinate, Hub, Partition, Position, sequence_number_in
from busway_broker.core.store import milliseconds
from busway_broker.errors import Refusal
from busway_broker.protocol.incoming_link import BATCH_FORMAT, IncomingLink
from busway_broker.protocol.interfaces import LinkSession
from busway_broker.protocol.outgoing_link import TAG_SIZE, OutgoingLink
from busway_broker.protocol.requests import by_text
from busway_broker.protocol.terminus import SELECTOR_FILTER, filters_of
from shared.amqp.codec import encode
from shared.amqp.performatives import Attach
from shared.amqp.values import Value, long, map_, string, symbol, timestamp

# What a Standard namespace announces (azure-sdk-for-java 10682).
MAX_EVENT_SIZE = 1_046_528

_METRICS = "com.microsoft:enable-receiver-runtime-metric"
_SELECTOR = re.compile(r"amqp\.annotation\.(?P<name>x-opt-[a-z-]+)\s*(?P<comparator>>=?)\s*'?(?P<value>[^']*)'?")
# Of Microsoft's older tools (Azure/iothub-explorer 57).
_EARLIER_TIME = "x-opt-enqueuedtimeutc"
_GEO_REPLICATION = "com.microsoft:georeplication"
_BEGINNING_OFFSET = "-1"
_MAX_SHOWN = 40
_BEGINNING = Position(Coordinate.OFFSET, -1, is_inclusive=False)


class HubPublisherLink(IncomingLink):
    """A sender to a hub, or to one partition of it."""

    publisher_kind = "AmqpEventHubPublisher"
    ends_when_too_large = False

    def __init__(self, session: LinkSession, attach: Attach, hub: Hub, partition_id: str | None) -> None:
        super().__init__(session, attach, MAX_EVENT_SIZE)
        self.capabilities = _offered(session, attach)
        self.hub = hub
        self._partition = None if partition_id is None else hub.partition(partition_id)

    def accept(self, message: bytes, message_format: int) -> None:
        """Append an event, or all events of a batch to one partition."""
        publish(self.hub, self._partition, message, message_format)


class HubReaderLink(OutgoingLink):
    """A reader of one partition."""

    def __init__(self, session: LinkSession, attach: Attach, hub: Hub, consumer_group: str, partition_id: str) -> None:
        super().__init__(session, attach)
        self.hub = hub
        self._partition: Partition = hub.partition(partition_id)
        self._consumer_group = hub.consumer_group(consumer_group)
        properties = {} if attach.properties is None else by_text(attach.properties)
        epoch = properties.get("com.microsoft:epoch")
        name = properties.get("com.microsoft:receiver-name")
        self.name = name.payload if name is not None and isinstance(name.payload, str) else "nil"
        self.epoch = epoch.payload if epoch is not None and isinstance(epoch.payload, int) else None
        self._sends_metrics = _METRICS in attach.desired_capabilities
        self._region = session.connection.namespace.region
        self.capabilities = _offered(session, attach)
        selector = filters_of(attach.source).get(SELECTOR_FILTER)
        self._next = self._partition.start(position_of(selector, is_replicated=self._region is not None))
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Start reading the partition."""
        self._partition.join(self._consumer_group, self)
        self.send_attach()

    def on_release(self) -> None:
        """Stop reading."""
        super().on_release()
        self._partition.leave(self._consumer_group, self)

    def wake(self) -> None:
        """Send new events."""
        self.pump()

    def stolen(self, refusal: Refusal) -> None:
        """End the link: another reader has taken the partition."""
        self.detach(refusal)

    def pump(self) -> None:
        """Send the events that the peer accepts."""
        while self.can_take():
            event = self._partition.event(self._next)
            if event is None:
                return
            self._next = event.sequence_number + 1
            metrics = self._metrics() if self._sends_metrics else b""
            self.send(next(self._numbers).to_bytes(TAG_SIZE), event.encode(metrics, self._region), settled=True)

    def _metrics(self) -> bytes:
        last = self._partition.last
        if last is None:
            return b""
        now = milliseconds(self.session.connection.namespace.clock)
        pairs = {
            "last_enqueued_sequence_number": long(last.sequence_number),
            "last_enqueued_offset": string(last.offset_in(self._region)),
            "last_enqueued_time_utc": timestamp(last.enqueued_time),
            "runtime_info_retrieval_time_utc": timestamp(now),
        }
        return b"\x00\x53\x71" + encode(map_((symbol(name), value) for name, value in pairs.items()))


def publish(hub: Hub, partition: Partition | None, message: bytes, message_format: int) -> None:
    """Append an event, or all events of a batch, to *partition* or that of their key; a Refusal if one is invalid."""
    events: list[EventContent]
    if message_format == BATCH_FORMAT:
        key = read_partition_key(message)
        events = [read_event(each, key) for each in read_batch(message)]
    else:
        events = [read_event(message)]
        key = events[0].partition_key
    (partition or hub.partition_for(key)).append(events)


def _offered(session: LinkSession, attach: Attach) -> tuple[str, ...]:
    """Return the capabilities to offer: geo-replication, if the hub has it and the peer asks for it."""
    is_offered = session.connection.namespace.region is not None and _GEO_REPLICATION in attach.desired_capabilities
    return (_GEO_REPLICATION,) if is_offered else ()


def position_of(selector: Value | None, *, is_replicated: bool) -> Position:
    """Return the starting position of a selector, by default the beginning; with geo-replication, offsets are texts."""
    if selector is None:
        return _BEGINNING
    match = _SELECTOR.fullmatch(str(selector.payload).strip())
    name = Coordinate.ENQUEUED_TIME if match is not None and match["name"] == _EARLIER_TIME else match and match["name"]
    if match is None or name not in Coordinate:
        raise Refusal(
            errors.ARGUMENT_ERROR, "the selector has no position, expected an offset, a sequence number or a time"
        )
    value = match["value"]
    if value == "@latest":
        return Position(Coordinate.OFFSET, None, is_inclusive=False)
    coordinate, is_inclusive = Coordinate(name), match["comparator"] == ">="
    if is_replicated and coordinate is Coordinate.OFFSET and value != _BEGINNING_OFFSET:
        number = sequence_number_in(value)
        if number is None:
            # Of before the replication, in checkpoints: SDKs start again from a default position.
            raise Refusal(
                errors.GEO_REPLICATION_INVALID_OFFSET,
                f"the supplied offset '{value[:_MAX_SHOWN]}' is invalid: the hub is geo-replicated, expected the "
                "offset of an event that was received since",
            )
        return Position(Coordinate.SEQUENCE_NUMBER, number, is_inclusive, value[:_MAX_SHOWN])
    try:
        return Position(coordinate, int(value), is_inclusive)
    except ValueError as error:
        raise Refusal(errors.ARGUMENT_ERROR, "the position in the selector is not a whole number") from error
