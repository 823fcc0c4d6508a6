"""The stock binding, decoded by Microsoft's worker library from what the host sends."""

import json

import azure.functions as func
import pytest
from azure_functions_runtime.bindings import meta

from functions.stock_binding import event_content, event_partition, service_bus_content
from local.host.protos import ParameterBinding, TypedData
from shared.amqp.values import FALSE, NULL, TRUE, double, int_, long, string, ulong
from shared.message import Arrival, Message, Origin

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
    "beyond": 2**64,
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
    "beyond": string("18446744073709551616"),
    "half": double(0.5),
    "text": string("ä"),
    "list": string('[1, "é"]'),
    "map": string('{"a": null}'),
}


def decoded(binding, body, metadata):
    meta.load_binding_registry()
    return meta.from_incoming_proto(
        binding,
        ParameterBinding("messages", TypedData(bytes=body)),
        pytype=None,
        trigger_metadata={
            name: TypedData(string=value) if isinstance(value, str) else TypedData(json=json.dumps(value))
            for name, value in metadata.items()
        },
        function_name="copy",
    )


def service_bus(body=b"body", **metadata) -> Message:
    message = decoded(
        "serviceBusTrigger", body, {"SequenceNumber": 5, "MessageId": "m", "UserProperties": {}, **metadata}
    )
    assert isinstance(message, func.ServiceBusMessage)
    return Message.received(service_bus_content(message), ORIGIN)


def event(body=b"body", **metadata) -> func.EventHubEvent:
    return decoded("eventHubTrigger", body, {"SystemProperties": {}, **metadata})


def test_what_the_host_hands_over_is_in_the_message():
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


def test_what_the_host_leaves_out_is_not_in_the_message():
    message = service_bus(b"")
    assert message.body == b""
    assert (message.session_id, message.subject, message.content_type) == (None, None, None)
    assert message.correlation_id is None
    assert message.sections.application_properties == b""
    assert message.encode() == Message.received(message.encode(), ORIGIN).encode()


def test_an_event_with_its_properties_and_place():
    given = event(
        b"\xff",
        EnqueuedTimeUtc="2026-11-21T08:00:00.123Z",
        PartitionKey="k",
        Offset="4711",
        SequenceNumber=7,
        Properties=PROPERTIES,
        PartitionContext={"PartitionId": "3"},
    )
    message = Message.received(event_content(given), ORIGIN)
    assert message.body == b"\xff"
    assert message.arrival == Arrival(ORIGIN, 7, "4711", 1_795_248_000_123, None, None)
    assert message.partition_key == "k"
    assert dict(message.application_properties()) == VALUES
    assert event_partition(given) == "3"


@pytest.mark.parametrize("metadata", [{}, {"PartitionContext": {}}, {"PartitionContext": {"PartitionId": None}}])
def test_an_event_whose_partition_is_not_told(metadata):
    assert event_partition(event(**metadata)) is None


def test_a_partition_context_that_comes_as_text():
    assert event_partition(event(PartitionContext='{"PartitionId":"1"}')) == "1"
