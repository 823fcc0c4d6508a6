"""
Links to event hubs: sending to a hub or one of its partitions, reading a partition for a consumer group.

And the `$management` node of an Event Hubs namespace, which answers with the properties of hubs and partitions.
"""

import itertools
import re

from busway_broker import errors
from busway_broker.core.content import read_batch
from busway_broker.core.event import EventContent, read_event, read_partition_key
from busway_broker.core.hub import Coordinate, Hub, Partition, Position, sequence_number_in
from busway_broker.core.namespace import Namespace
from busway_broker.core.on_demand import create_hub
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.incoming_link import BATCH_FORMAT, IncomingLink
from busway_broker.protocol.link_session import LinkSession
from busway_broker.protocol.outgoing_link import TAG_SIZE, OutgoingLink
from busway_broker.protocol.requests import Node, Request, Response, by_text, ok, refused
from busway_broker.protocol.terminus import SELECTOR_FILTER, filters_of
from shared.amqp.codec import encode
from shared.amqp.errors import NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, AmqpError
from shared.amqp.performatives import Attach
from shared.amqp.values import Value, array, boolean, int_, long, map_, string, symbol, timestamp

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
_HUB = "com.microsoft:eventhub"
_PARTITION = "com.microsoft:partition"
_STATUS = {errors.NOT_FOUND: 404, UNAUTHORIZED_ACCESS: 401, errors.AUTH_FAILED: 401}


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


def hub_node(namespace: Namespace, claims: Claims) -> Node:
    """Return the node of a namespace; .NET sends its token with each request, the other SDKs put one first."""

    def answer(request: Request) -> Response:
        try:
            claims.check_request(_text(request, "name"), _text(request, "security_token"))
            create_hub(namespace, _text(request, "name"))
            return ok(_read(namespace, request))
        except AmqpError as refusal:
            return refused(refusal, _STATUS)

    return Node("$management", answer)


def _read(namespace: Namespace, request: Request) -> Value:
    kind = _text(request, "type")
    if request.operation != "READ" or kind not in (_HUB, _PARTITION):
        raise Refusal(NOT_IMPLEMENTED, f"operation {request.operation!r} of {kind!r}, expected READ")
    hub = namespace.hub(_text(request, "name"))
    pairs = (
        _hub_properties(hub, is_replicated=namespace.region is not None)
        if kind == _HUB
        else _partition_properties(hub, hub.partition(_text(request, "partition")))
    )
    return map_((string(name), value) for name, value in pairs.items())


def _hub_properties(hub: Hub, *, is_replicated: bool) -> dict[str, Value]:
    ids = [Value(0xB1, partition.partition_id) for partition in hub.partitions]
    return {
        "name": string(hub.path),
        "type": string(_HUB),
        "created_at": timestamp(hub.created_at),
        "partition_count": int_(len(ids)),
        "partition_ids": array(0xB1, ids),
        # The regions that hold the hub. azeventhubs for Go cannot read the properties without it.
        "georeplication_factor": int_(2 if is_replicated else 1),
    }


def _partition_properties(hub: Hub, partition: Partition) -> dict[str, Value]:
    last = partition.last
    return {
        "name": string(hub.path),
        "type": string(_PARTITION),
        "partition": string(partition.partition_id),
        "begin_sequence_number": long(partition.begin_sequence_number),
        "last_enqueued_sequence_number": long(-1 if last is None else last.sequence_number),
        # Geo-replication or not: azeventhubs for Go tests that no reader can start at it then.
        "last_enqueued_offset": string("-1" if last is None else str(last.offset)),
        "last_enqueued_time_utc": timestamp(0 if last is None else last.enqueued_time),
        "is_partition_empty": boolean(partition.is_empty),
    }


def _text(request: Request, key: str) -> str:
    value = request.properties.get(key)
    return value.payload if value is not None and isinstance(value.payload, str) else ""
