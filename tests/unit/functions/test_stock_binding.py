"""The stock binding, decoded by Microsoft's worker library from what the host sends."""

import json
from copy import replace
from types import MappingProxyType
from typing import Any

import azure.functions as func
import pytest
from azure_functions_runtime.bindings import meta

from functions.stock_binding import event_contents, event_partition, service_bus_content
from local.host.protos import CollectionBytes, ParameterBinding, TypedData
from local.host.worker import Function
from local.host.worker_input import event_hubs_input
from shared.amqp.values import FALSE, NULL, TRUE, double, int_, long, string, timestamp, ulong
from shared.azure.receivers.raw_link import Delivery
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from tests.mapping_table import parts
from tests.messages import delivered

ORIGIN = Origin("west", "q")
PROPERTIES = {
    "null": None,
    "yes": True,
    "no": False,
    "small": -(2**31),
    "int": 5,
    "long": 2**31,
    "longer": -(2**63),
    "ulong": 2**64 - 1,
    "half": 0.5,
    "text": "ä",
    "list": [1, "é"],
    "map": {"a": None},
}
VALUES = {
    "null": NULL,
    "yes": TRUE,
    "no": FALSE,
    "small": int_(-(2**31)),
    "int": int_(5),
    "long": long(2**31),
    "longer": long(-(2**63)),
    "ulong": ulong(2**64 - 1),
    "half": double(0.5),
    "text": string("ä"),
    "list": string('[1, "é"]'),
    "map": string('{"a": null}'),
}


def decoded(binding: str, data: TypedData, metadata: dict[str, Any]) -> Any:
    meta.load_binding_registry()
    return meta.from_incoming_proto(
        binding,
        ParameterBinding("messages", data),
        pytype=None,
        trigger_metadata={
            name: TypedData(string=value) if isinstance(value, str) else TypedData(json=json.dumps(value))
            for name, value in metadata.items()
        },
        function_name="copy",
    )


def service_bus(body: bytes = b"body", **metadata: str | dict[str, Any]) -> Message:
    message = decoded(
        "serviceBusTrigger",
        TypedData(bytes=body),
        {"SequenceNumber": 5, "MessageId": "m", "UserProperties": {}, **metadata},
    )
    assert isinstance(message, func.ServiceBusMessage)
    return Message.received(service_bus_content(message), ORIGIN)


def events(
    *bodies: bytes,
    **metadata: Any,
) -> list[func.EventHubEvent]:
    """Return a batch; SystemPropertiesArray and PropertiesArray are empty for each unless given."""
    empty: dict[str, object] = {name: [{}] * len(bodies) for name in ("SystemPropertiesArray", "PropertiesArray")}
    data = TypedData(collection_bytes=CollectionBytes(list(bodies)))
    batch: list[func.EventHubEvent] = decoded("eventHubTrigger", data, empty | metadata)
    return batch


def test_message_has_everything_that_the_host_passes_on() -> None:
    message = service_bus(
        b"\xff\x00",
        EnqueuedTimeUtc="2026-11-21T08:00:00.123Z",
        ContentType="text/plain",
        CorrelationId="c",
        Subject="s",
        To="t",
        ReplyTo="r",
        SessionId="session",
        ReplyToSessionId="rs",
        PartitionKey="session",
        DeadLetterSource="jobs",
        ApplicationProperties=PROPERTIES,
    )
    assert message.body == b"\xff\x00"
    assert message.arrival == Arrival(ORIGIN, 5, None, 1_795_248_000_123, None, "jobs")
    assert (message.message_id, message.correlation_id) == (string("m"), string("c"))
    assert (message.content_type, message.subject, message.to, message.reply_to) == ("text/plain", "s", "t", "r")
    assert (message.session_id, message.reply_to_session_id, message.partition_key) == ("session", "rs", "session")
    assert dict(message.application_properties()) == VALUES


def test_message_lacks_what_the_host_omits() -> None:
    message = service_bus(b"")
    assert message.body == b""
    assert (message.session_id, message.subject, message.content_type) == (None, None, None)
    assert message.correlation_id is None
    assert message.sections.application_properties == b""
    assert message.encode() == Message.received(message.encode(), ORIGIN).encode()


SYSTEM = {
    "message-id": "m",
    "user-id": {"Length": 4, "IsEmpty": False},
    "to": "t",
    "subject": "s",
    "reply-to": "r",
    "correlation-id": "c",
    "content-type": "text/plain",
    "content-encoding": "gzip",
    "absolute-expiry-time": "2026-11-22T08:00:00+00:00",
    "creation-time": "2026-11-21T08:00:00.123+00:00",
    "group-id": "g",
    "group-sequence": 7,
    "reply-to-group-id": "rg",
    "iothub-connection-device-id": "device",
    "x-opt-sequence-number": 7,
    "x-opt-offset": "4711",
    "x-opt-partition-key": "k",
    "x-opt-enqueued-time": "2026-11-21T08:00:00.123Z",
    "SequenceNumber": 7,
    "Offset": 4711,
    "PartitionKey": "k",
    "EnqueuedTimeUtc": "2026-11-21T08:00:00.123",
}


def test_each_event_of_a_batch_has_its_own_metadata() -> None:
    other = {"SequenceNumber": 8, "Offset": -1, "OffsetString": "0x12", "PartitionKey": None}
    given = events(
        b"\xff",
        b"",
        SystemPropertiesArray=[SYSTEM, other],
        PropertiesArray=[PROPERTIES, {}],
        PartitionContext={"PartitionId": "3"},
    )
    first, second = (Message.received(content, ORIGIN) for content in event_contents(given))
    assert first.body == b"\xff"
    assert first.arrival == Arrival(ORIGIN, 7, "4711", 1_795_248_000_123, None, None)
    assert first.partition_key == "k"
    assert first.annotation("iothub-connection-device-id") == string("device")
    assert dict(first.application_properties()) == VALUES
    values = parts(first)
    assert {name: values[name].payload for name in values if not name.startswith(("property", "annotation"))} == {
        "message id": "m",
        "to": "t",
        "subject": "s",
        "reply to": "r",
        "correlation id": "c",
        "content type": "text/plain",
        "content encoding": "gzip",
        "creation time": 1_795_248_000_123,
        "session id": "g",
        "group sequence": 7,
        "reply-to session id": "rg",
        "partition key": "k",
    }
    assert values["creation time"] == timestamp(1_795_248_000_123)
    assert second.body == b""
    assert second.arrival == Arrival(ORIGIN, 8, "0x12", None, None, None)
    assert (second.partition_key, list(second.application_properties())) == (None, [])
    assert event_partition(given) == "3"


def test_both_triggers_report_the_same_origin() -> None:
    """Its id, where it has none, is made of that: a task may change its trigger and send nothing twice for it."""
    wire = delivered(7, message_id=None, annotated={"x-opt-offset": string("4711")}, locked_until=None)
    function = Function(
        "id",
        "copy",
        MappingProxyType(
            {"type": "eventHubTrigger", "name": "m", "dataType": "BINARY", "cardinality": "MANY"},
        ),
        {},
        None,
    )
    handed = event_hubs_input(function, [Delivery(0, b"", wire)], 0, {"PartitionId": "3"}, wire=False)
    meta.load_binding_registry()
    taken = meta.from_incoming_proto(
        "eventHubTrigger",
        ParameterBinding("messages", handed.data),
        pytype=None,
        trigger_metadata=handed.metadata,
        function_name="copy",
    )
    origin = ORIGIN._replace(partition=event_partition(taken))
    stock = Message.received(event_contents(taken)[0], origin).arrival
    raw = Message.received(wire, ORIGIN._replace(partition="3")).arrival
    assert stock == replace(raw, locked_until=None)
    assert deterministic_id(stock) == deterministic_id(raw)


@pytest.mark.parametrize("name", ["SystemPropertiesArray", "PropertiesArray"])
def test_batch_with_too_few_metadata_entries_is_refused(name: str) -> None:
    given = events(b"a", b"b")
    for each in given:
        assert each.metadata is not None
        each.metadata[name].pop()
    with pytest.raises(ValueError, match=f"{name}: got 1, expected one entry for each of 2 events"):
        event_contents(given)


@pytest.mark.parametrize("metadata", [{}, {"PartitionContext": {}}, {"PartitionContext": {"PartitionId": None}}])
def test_event_without_partition_metadata(metadata: dict[str, dict[str, None]]) -> None:
    assert event_partition(events(b"", **metadata)) is None


def test_partition_context_as_text() -> None:
    assert event_partition(events(b"", PartitionContext='{"PartitionId":"1"}')) == "1"


@pytest.mark.parametrize(
    ("expires", "life"),
    [
        ("2026-11-21T08:01:30.623", 90_500),
        ("9999-12-31T23:59:59.9999999", None),
        ("2027-02-21T08:00:00.123", None),
        ("2026-11-21T08:00:00.123", None),
        (None, None),
    ],
)
def test_time_to_live_is_computed_from_the_times(expires: str | None, life: int | None) -> None:
    expiry: dict[str, Any] = {"ExpiresAtUtc": expires} if expires else {}
    message = service_bus(EnqueuedTimeUtc="2026-11-21T08:00:00.123", **expiry)
    assert message.time_to_live == life
