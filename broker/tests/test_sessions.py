"""Sessions, as azure-servicebus sees them."""

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from broker.tests.sdk_calls import Bus, some
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.backlog import Counts
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.ends.service_bus.management import ManagementConnection
from shared.message.arrival import Origin
from shared.message.message import Message

YEAR_10000 = 253_402_300_800_000


def messages_of(*sessions: str, each: int = 2) -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(f"{session}{number}", session_id=session) for number in range(each) for session in sessions
    ]


def receive_for_ever(receiver: ServiceBusReceiver) -> None:
    while True:
        receiver.receive_messages(5, max_wait_time=0.5)


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


@pytest.fixture
def patient(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    """Return a client that tries again soon."""
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_backoff_factor=0.1) as client:
        yield client


def test_a_named_session_yields_its_messages_in_order(bus: Bus) -> None:
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a", "b", each=3))
    with bus.client.get_queue_receiver(queue, session_id="b") as receiver:
        assert receiver.session.session_id == "b"
        messages = receiver.receive_messages(3, max_wait_time=1)
        assert bodies(messages) == ["b0", "b1", "b2"]
        assert {message.session_id for message in messages} == {"b"}
        for message in messages:
            receiver.complete_message(message)


def test_the_next_available_sessions_come_one_after_the_other(bus: Bus) -> None:
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a", "b"))
    with (
        bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as one,
        bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as two,
    ):
        found = {each.session.session_id: bodies(each.receive_messages(2, max_wait_time=1)) for each in (one, two)}
        assert found == {"a": ["a0", "a1"], "b": ["b0", "b1"]}


def test_any_of_the_available_sessions_is_the_next(bus: Bus) -> None:
    # SR57
    queue = bus.entity("sessions")
    names = [f"s{number:02}" for number in range(20)]
    bus.publish(queue, messages_of(*names, each=1))
    accepted: list[str] = []
    with contextlib.ExitStack() as receivers:
        for _ in names:
            receiver = bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
            accepted.append(receivers.enter_context(receiver).session.session_id)
    assert sorted(accepted) == names
    assert accepted != names


def test_a_late_session_is_granted_to_a_waiting_receiver(bus: Bus) -> None:
    queue = bus.entity("sessions")
    late = threading.Timer(0.5, bus.publish, [queue, messages_of("late")])
    late.start()
    with bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
        assert receiver.session.session_id == "late"
        assert bodies(receiver.receive_messages(2, max_wait_time=1)) == ["late0", "late1"]
    late.join()


def test_a_session_has_one_receiver_at_a_time(bus: Bus, patient: ServiceBusClient) -> None:
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a"))
    with (
        bus.client.get_queue_receiver(queue, session_id="a"),
        pytest.raises(SessionCannotBeLockedError),
        bus.client.get_queue_receiver(queue, session_id="a"),
    ):
        pass
    # SR28: a client without retries would be refused.
    with patient.get_queue_receiver(queue, session_id="a") as receiver:
        assert bodies(receiver.receive_messages(2, max_wait_time=1)) == ["a0", "a1"]


def test_an_unsettled_message_comes_back_uncounted_when_the_session_is_accepted_anew(bus: Bus) -> None:
    """SR26 while the session is held; SR44 for the count and SR45 for the time afterwards."""
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a", each=3))
    with bus.client.get_queue_receiver(queue, session_id="a") as receiver:
        first, _, third = receiver.receive_messages(3, max_wait_time=1)
        receiver.complete_message(first)
        receiver.complete_message(third)
        bus.publish(queue, messages_of("a", each=1))
        (later,) = receiver.receive_messages(5, max_wait_time=1)
        assert str(later) == "a0"
        receiver.complete_message(later)
    with bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        (message,) = receiver.receive_messages(2, max_wait_time=1)
        assert (str(message), message.delivery_count) == ("a1", 0)


def test_a_message_names_an_end_in_the_year_10000_and_its_session_the_real_one(bus: Bus) -> None:
    """SR1, and SR63: renewing the message is answered and does not extend the session; renewing the session does."""
    queue = bus.entity("short-session")
    bus.publish(queue, messages_of("a"))
    with bus.client.get_queue_receiver(queue, session_id="a") as receiver:
        renew: Any = receiver._renew_locks  # typed as taking text
        first, second = receiver.receive_messages(2, max_wait_time=1)
        assert some(first.raw_amqp_message.annotations)[b"x-opt-locked-until"] == YEAR_10000
        assert some(receiver.session.locked_until_utc) - dt.datetime.now(dt.UTC) <= dt.timedelta(seconds=1)
        time.sleep(0.6)
        assert receiver.session.renew_lock() == receiver.session.locked_until_utc
        time.sleep(0.6)
        receiver.complete_message(first)
        assert renew(second.lock_token, timeout=5)[b"expirations"] == [YEAR_10000]
        time.sleep(0.6)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(second)
    with bus.client.get_queue_receiver(queue, session_id="a") as receiver:
        (again,) = receiver.receive_messages(2, max_wait_time=1)
        assert (str(again), again.delivery_count) == ("a1", 1)


@pytest.mark.parametrize(("kind", "session_id"), [("sessions", "a"), ("plain", None)])
def test_only_the_connection_that_holds_a_session_settles_over_management(
    bus: Bus, kind: str, session_id: str | None
) -> None:
    """SR3 and SR12; without sessions any connection does."""
    queue = bus.entity(kind)
    bus.publish(queue, messages_of("a", each=4))

    async def run() -> None:
        string = bus.broker.connection_string("west")
        has_sessions = session_id is not None
        async with AsyncClient.from_connection_string(string, retry_total=0) as other:
            connection = await ServiceBusConnection.open(
                Namespace("WEST", string), {"queue_name": queue}, sessions=has_sessions
            )
            link = await connection.attach(session_id=session_id)
            deliveries = await link.receive(4, 1)
            tokens = [delivery.tag for delivery in deliveries]
            own, foreign = connection.management(link), ManagementConnection.to(other, queue)
            await own.defer(tokens[:1], session_id, 5)
            number = some(Message.received(deliveries[0].payload, Origin("west", queue)).arrival.sequence_number)
            for management in (foreign, own):
                may = management is own or session_id is None
                refusal = pytest.raises(SessionLockLostError, match="Accept a new MessageSession")
                for request in (
                    partial(management.receive_deferred, [number], session_id, 5),
                    partial(management.renew_locks, tokens[1:2], 5),
                    partial(management.complete, tokens[1:2], session_id, 5),
                    partial(management.defer, tokens[2:3], session_id, 5),
                    partial(management.dead_letter, tokens[3:], session_id, "why", "because", 5),
                ):
                    with contextlib.nullcontext() if may else refusal:
                        await request()
                if may:
                    break
            await foreign.close()
            await connection.close()

    asyncio.run(run())
    assert bus.broker.counts("west")[queue] == Counts(0, 2, 0, 1, 0)


def test_the_broker_detaches_a_receiver_whose_session_lock_expired(bus: Bus) -> None:
    queue = bus.entity("short-session")
    bus.publish(queue, messages_of("a"))
    with bus.client.get_queue_receiver(queue, session_id="a") as receiver, pytest.raises(SessionLockLostError):
        receive_for_ever(receiver)


def test_session_state_outlives_the_receiver(bus: Bus, patient: ServiceBusClient) -> None:
    queue = bus.entity("sessions")
    with patient.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"halfway")
    with patient.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() == b"halfway"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_sessions_are_listed(bus: Bus) -> None:
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a", "b"))
    with bus.client.get_queue_receiver(queue, session_id="c") as receiver:
        receiver.session.set_state(b"state")
    assert sorted(bus.client.list_queue_sessions(queue)) == ["a", "b", "c"]


def test_a_message_without_a_session_id_is_refused(bus: Bus) -> None:
    with pytest.raises(ServiceBusError, match="The SessionId was not set on a message"):
        bus.send(bus.entity("sessions"), ServiceBusMessage("body"))


def test_an_empty_session_id_is_one_like_any_other(bus: Bus) -> None:
    # azure-sdk-for-python 21157, azure-sdk-for-js 31736
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("", each=3))
    assert list(bus.client.list_queue_sessions(queue)) == [""]
    with bus.client.get_queue_receiver(queue, session_id="") as receiver:
        messages = receiver.receive_messages(3, max_wait_time=1)
        assert [(str(message), message.session_id) for message in messages] == [("0", ""), ("1", ""), ("2", "")]
        receiver.session.set_state(b"state")
        receiver.complete_message(messages[0])
    with bus.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert (receiver.session.session_id, receiver.session.get_state()) == ("", b"state")
        assert bodies(receiver.receive_messages(3, max_wait_time=1)) == ["1", "2"]


def test_receivers_must_suit_the_entity(bus: Bus) -> None:
    with (
        pytest.raises(ServiceBusError, match="requires sessions"),
        bus.client.get_queue_receiver(bus.entity("sessions")),
    ):
        pass
    with (
        pytest.raises(ServiceBusError, match="does not require sessions"),
        bus.client.get_queue_receiver(bus.entity("plain"), session_id="a"),
    ):
        pass


def test_messages_of_a_session_are_deferred_dead_lettered_and_abandoned(bus: Bus) -> None:
    queue = bus.entity("sessions")
    bus.publish(queue, messages_of("a", each=4))
    with bus.client.get_queue_receiver(queue, session_id="a") as receiver:
        one, two, three, four = receiver.receive_messages(4, max_wait_time=1)
        receiver.defer_message(one)
        receiver.dead_letter_message(two, reason="why")
        receiver.abandon_message(three)
        receiver.complete_message(four)
        (again,) = receiver.receive_messages(1, max_wait_time=1)
        assert (str(again), again.delivery_count) == ("a2", 1)
        assert one.sequence_number is not None
        (deferred,) = receiver.receive_deferred_messages(one.sequence_number)
        receiver.complete_message(deferred)
    with bus.client.get_queue_receiver(
        queue, sub_queue="deadletter", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        (dead,) = receiver.receive_messages(1, max_wait_time=1)
        assert (str(dead), dead.dead_letter_reason, dead.session_id) == ("a1", "why", "a")


def test_many_sessions_at_once_keep_their_order(bus: Bus) -> None:
    queue = bus.entity("sessions")

    async def drain(client: AsyncClient, seen: dict[str | None, list[int]]) -> None:
        async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2) as receiver:
            async for message in receiver:
                seen.setdefault(message.session_id, []).append(int(str(message)))
                await receiver.complete_message(message)
                if str(message) == "9":
                    return

    async def run() -> dict[str | None, list[int]]:
        seen: dict[str | None, list[int]] = {}
        async with AsyncClient.from_connection_string(bus.broker.connection_string("west")) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(
                    [
                        ServiceBusMessage(str(number), session_id=f"s{session}")
                        for number in range(10)
                        for session in range(8)
                    ]
                )
            await asyncio.gather(*(drain(client, seen) for _ in range(8)))
        return seen

    seen = asyncio.run(run())
    assert seen == {f"s{session}": list(range(10)) for session in range(8)}


def test_a_client_waits_for_a_session_by_its_own_clock_while_that_of_the_broker_stands_still() -> None:
    namespace = NamespaceConfig(name="n", queues=(QueueConfig(name="sessions", requires_session=True),))
    with (
        RunningBroker([namespace], ManualClock(dt.datetime.now(dt.UTC))) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client,
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1),
    ):
        pass
