"""The `$management` node of an Event Hubs namespace: properties of hubs and partitions."""

from busway_broker import errors
from busway_broker.core.hub import Hub, Partition
from busway_broker.core.namespace import Namespace
from busway_broker.core.on_demand import create_hub
from busway_broker.errors import Refusal
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.requests import Node, Request, Response, ok
from shared.amqp.errors import NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, AmqpError
from shared.amqp.values import Value, array, boolean, int_, long, map_, string, symbol, timestamp

_HUB = "com.microsoft:eventhub"
_PARTITION = "com.microsoft:partition"
_STATUS = {errors.NOT_FOUND: 404, UNAUTHORIZED_ACCESS: 401, errors.AUTH_FAILED: 401}


def hub_node(namespace: Namespace, claims: Claims) -> Node:
    """Return the node of a namespace; .NET sends its token with each request, the other SDKs put one first."""

    def answer(request: Request) -> Response:
        try:
            claims.check_request(_text(request, "name"), _text(request, "security_token"))
            create_hub(namespace, _text(request, "name"))
            return ok(_read(namespace, request))
        except AmqpError as refusal:
            status = _STATUS.get(refusal.condition, 400)
            return Response(status, refusal.description, properties={"error-condition": symbol(refusal.condition)})

    return Node("$management", answer, "status-code", "status-description")


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
