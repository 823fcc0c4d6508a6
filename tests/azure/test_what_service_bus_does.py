"""
What Busway assumes about Service Bus, on live namespaces.

Needs the queues `busway-test` (no sessions) and `busway-test-sessions` (sessions), empty, in the namespace of
BUSWAY_TEST_WEST; one afternoon with a subscription confirms or refutes each. The same tests pass against the local
broker (broker/tests/test_azure_assumptions.py), which shows that they test something and that the broker agrees.
"""

import asyncio
import os
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from shared.amqp.codec import encode
from shared.amqp.scan import join_list
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, Value, binary, described, long, string, symbol, timestamp, uint
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import MessageRejected
from shared.protocols import Outgoing
from tests import messages

pytestmark = pytest.mark.azure

QUEUE = "busway-test"
SESSIONS = "busway-test-sessions"


@pytest.fixture(scope="module")
def namespace() -> Any:
    return os.environ["BUSWAY_TEST_WEST"]


def outgoing(
    *, properties: Any = None, annotations: Any = None, session_id: Any = None, header: Any = (), expiry: Any = None
) -> Any:
    identity = uuid.uuid4().hex
    fields: dict[str, Value] = {"message_id": string(identity)}
    if expiry is not None:
        fields["absolute_expiry_time"] = timestamp(expiry)
    if session_id is not None:
        fields["session_id"] = string(session_id)
    content = Sections(
        header=join_list(b"\x00\x53\x70", [encode(field) for field in header]) if header else b"",
        message_annotations=messages.annotations(annotations or {}),
        properties=messages.properties(**fields),
        application_properties=messages.application_properties(properties or {}),
        body=data(b"body"),
    ).encode()
    return Outgoing(content, identity, session_id, None)


def send(namespace: Any, entity: Any, messages: Any) -> Any:
    async def run() -> Any:
        output = ServiceBusOutput("west", lambda: service_bus_client("WEST", {"WEST": namespace}))
        try:
            return await output.send(entity, messages, timeout_seconds=30)
        finally:
            await output.close()

    return asyncio.run(run())


def take(namespace: Any, queue: Any, count: Any, **options: Any) -> Any:
    taken: list[Any] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with (
        ServiceBusClient.from_connection_string(namespace) as client,
        client.get_queue_receiver(queue, receive_mode=mode, **options) as receiver,
    ):
        while len(taken) < count and (more := receiver.receive_messages(count - len(taken), max_wait_time=10)):
            taken += more
    return taken


def test_raw_sections_in_a_batch_are_messages(namespace: Any) -> None:
    sent = [outgoing(properties={"n": long(2**40)}) for _ in range(3)]
    assert send(namespace, QUEUE, sent) == [None] * 3
    received = take(namespace, QUEUE, 3)
    assert [each.message_id for each in received] == [each.message_id for each in sent]
    assert {each.application_properties[b"n"] for each in received} == {2**40}


def test_annotations_that_the_service_assigns_are_ignored_from_a_sender(namespace: Any) -> None:
    forged = {"x-opt-sequence-number": long(7), "x-opt-enqueued-time": timestamp(0), "x-opt-locked-until": timestamp(0)}
    assert send(namespace, QUEUE, [outgoing(annotations=forged)]) == [None]
    (received,) = take(namespace, QUEUE, 1)
    assert received.enqueued_time_utc.year > 2000


def test_the_life_of_a_message_is_its_headers_even_beside_an_old_expiry(namespace: Any) -> None:
    assert send(namespace, QUEUE, [outgoing(header=(NULL, NULL, uint(90_000)), expiry=1_000)]) == [None]
    (received,) = take(namespace, QUEUE, 1)
    assert received.time_to_live.total_seconds() == 90


def test_described_property_values_are_taken(namespace: Any) -> None:
    span = described(symbol("com.microsoft:timespan"), long(600_000_000))
    assert send(namespace, QUEUE, [outgoing(properties={"span": span})]) == [None]
    assert len(take(namespace, QUEUE, 1)) == 1


def test_one_batch_may_hold_several_sessions_and_keeps_the_order_of_each(namespace: Any) -> None:
    sent = [outgoing(session_id=session) for session in ("a", "b", "a", "b", "a")]
    assert send(namespace, SESSIONS, sent) == [None] * 5
    for session, count in (("a", 3), ("b", 2)):
        received = take(namespace, SESSIONS, count, session_id=session)
        assert [each.message_id for each in received] == [
            each.message_id for each in sent if each.session_id == session
        ]


def test_a_message_without_session_is_refused_by_a_session_queue_and_its_neighbours_are_not(namespace: Any) -> None:
    answers = send(namespace, SESSIONS, [outgoing(session_id="c"), outgoing(), outgoing(session_id="c")])
    assert [type(answer) for answer in answers] == [type(None), MessageRejected, type(None)]
    assert len(take(namespace, SESSIONS, 2, session_id="c")) == 2


def test_binary_properties_are_refused(namespace: Any) -> None:
    (answer,) = send(namespace, QUEUE, [outgoing(properties={"bytes": binary(b"\x00\xff")})])
    assert isinstance(answer, MessageRejected)


def test_a_refused_message_leaves_the_link_usable(namespace: Any) -> None:
    async def run() -> Any:
        output = ServiceBusOutput("west", lambda: service_bus_client("WEST", {"WEST": namespace}))
        try:
            refused = await output.send(SESSIONS, [outgoing()], timeout_seconds=30)
            taken = await output.send(SESSIONS, [outgoing(session_id="d")], timeout_seconds=30)
        finally:
            await output.close()
        return refused + taken

    refused, taken = asyncio.run(run())
    assert isinstance(refused, MessageRejected)
    assert taken is None
    assert len(take(namespace, SESSIONS, 1, session_id="d")) == 1
