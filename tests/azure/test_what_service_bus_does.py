"""
What Busway assumes about Service Bus, on live namespaces.

Needs the queues `busway-test` (no sessions) and `busway-test-sessions` (sessions), empty, in the namespace of
BUSWAY_TEST_WEST; one afternoon with a subscription confirms or refutes each. The same tests pass against the local
broker (tests/broker/test_azure_assumptions.py), which shows that they test something and that the broker agrees.
"""

import asyncio
import os
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from shared.amqp.codec import encode
from shared.amqp.scan import join_list
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, Value, binary, described, long, string, symbol, timestamp, uint
from shared.azure.connections import service_bus_client
from shared.azure.locks import ServiceBusLocks
from shared.azure.senders.service_bus import ServiceBusOutput
from shared.errors import LockLost, MessageRejected
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


def with_locks(namespace: Any, entity: Any, ask: Any, *, sessions: bool = False) -> Any:
    async def run() -> Any:
        locks = ServiceBusLocks(
            "west", entity, lambda: service_bus_client("WEST", {"WEST": namespace}), sessions=sessions
        )
        try:
            return await ask(locks)
        finally:
            await locks.close()

    return asyncio.run(run())


def test_a_lock_is_renewed_over_another_connection(namespace: Any) -> None:
    send(namespace, QUEUE, [outgoing(), outgoing()])
    with (
        ServiceBusClient.from_connection_string(namespace) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        received: list[Any] = []
        while len(received) < 2:
            received += receiver.receive_messages(2 - len(received), max_wait_time=10)
        tokens = [each.lock_token.bytes_le for each in received]
        until = with_locks(namespace, QUEUE, lambda locks: locks.renew(tokens, None, timeout_seconds=30))
        assert until / 1000 >= min(each.locked_until_utc.timestamp() for each in received)
        for each in received:
            receiver.complete_message(each)
        with pytest.raises(LockLost):
            with_locks(namespace, QUEUE, lambda locks: locks.renew(tokens, None, timeout_seconds=30))


def locked_until(receiver: Any) -> Any:
    return receiver.session.locked_until_utc.timestamp()


def test_a_session_is_renewed_over_another_connection(namespace: Any) -> None:
    send(namespace, SESSIONS, [outgoing(session_id="renewed")])
    with ServiceBusClient.from_connection_string(namespace) as client:
        with client.get_queue_receiver(SESSIONS, session_id="renewed") as receiver:
            received: Any = receiver.receive_messages(1, max_wait_time=10)[0]
            before: float = locked_until(receiver)

            def renew(locks: Any) -> Any:
                return locks.renew([], "renewed", timeout_seconds=30)

            assert with_locks(namespace, SESSIONS, renew, sessions=True) / 1000 >= before
            receiver.complete_message(received)
        with pytest.raises(LockLost):
            with_locks(namespace, SESSIONS, renew, sessions=True)


def test_a_message_is_dead_lettered_over_another_connection_and_its_completion_refused(namespace: Any) -> None:
    dead_letter_one(namespace, QUEUE, None)


def test_a_message_of_a_session_is_dead_lettered_over_another_connection_and_its_completion_refused(
    namespace: Any,
) -> None:
    dead_letter_one(namespace, SESSIONS, "poison")


def dead_letter_one(namespace: Any, queue: Any, session_id: Any) -> None:
    sent = [outgoing(session_id=session_id) for _ in range(3)]
    send(namespace, queue, sent)
    options: dict[str, Any] = {} if session_id is None else {"session_id": session_id}
    with ServiceBusClient.from_connection_string(namespace) as client:
        with client.get_queue_receiver(queue, **options) as receiver:
            received: list[Any] = []
            while len(received) < 3:
                received += receiver.receive_messages(3 - len(received), max_wait_time=10)
            token = received[1].lock_token.bytes_le
            with_locks(
                namespace,
                queue,
                lambda locks: locks.dead_letter(token, session_id, "Poison", "it is poison", timeout_seconds=30),
                sessions=session_id is not None,
            )
            receiver.complete_message(received[0])
            with pytest.raises(ServiceBusError):
                receiver.complete_message(received[1])
            receiver.complete_message(received[2])
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=mode) as receiver:
            (dead,) = receiver.receive_messages(1, max_wait_time=10)
    assert dead.message_id == sent[1].message_id
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Poison", "it is poison")
