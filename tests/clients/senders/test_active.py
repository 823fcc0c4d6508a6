"""The active sender over the wire: two namespaces of the local broker, the SDKs of both kinds, real faults."""

import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from busway_clients import ActiveSender, PassiveSender, SendFailed, WrongUse
from shared.clock import ManualClock
from tests.clients.applications import Application, connection_string
from tests.clients.site import Site, both_kinds

pytestmark = pytest.mark.long

VALUE = AmqpMessageBodyType.VALUE


@both_kinds
def test_both_namespaces_get_the_same_ids_and_sessions(site: Site) -> None:
    entity = site.queue("sessions")
    messages = [ServiceBusMessage(f"{number}", session_id="parcel") for number in range(3)]
    outcome = site.call(site.active(entity, delay=timedelta()).send(messages))
    assert outcome.accepted_by == ("west", "east")
    ids = [message.message_id for message in messages]
    assert len(set(ids)) == 3
    assert site.ids("west", entity) == site.ids("east", entity) == ids
    assert [message.session_id for message in site.held("east", entity)] == ["parcel"] * 3
    assert outcome.deliveries["east"].accepted == tuple(ids)


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_the_secondary_is_enqueued_later_and_in_order(kind: str) -> None:
    clock = ManualClock(datetime.now(UTC))
    both = [NamespaceConfig(name=name, queues=(QueueConfig(name="q"),)) for name in ("west", "east")]
    with RunningBroker(both, clock) as broker:
        places = {name: broker.connection_string(name) for name in ("west", "east")}
        with Application(kind, places) as application:
            sender = application.active("q", now=clock.now)
            for number in range(20):
                application.call(sender.send(ServiceBusMessage(f"{number}")))
            receivers = application.receivers("q")
            sent = [str(number) for number in range(20)]
            assert [str(each) for each in _received(application, receivers["west"], 20)] == sent
            broker.advance(14)
            assert _received(application, receivers["east"], 1, 1.0) == []
            broker.advance(2)
            assert [str(each) for each in _received(application, receivers["east"], 20)] == sent


def _received(site: Application, receiver: Any, count: int, seconds: float = 5.0) -> Any:
    messages: list[Any] = []
    while len(messages) < count:
        more = site.call(receiver.receive_messages(count - len(messages), max_wait_time=seconds))
        if not more:
            break
        for each in more:
            site.call(receiver.complete_message(each))
        messages += more
    return messages


def test_a_retry_of_the_same_object_sends_the_same_id_and_nothing_else_of_it_changes(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity, delay=timedelta())
    message = ServiceBusMessage("once", application_properties={"kind": "order"}, time_to_live=timedelta(hours=1))
    before = (dict(message.application_properties or {}), message.raw_amqp_message.annotations, message.time_to_live)
    site.call(sender.send(message))
    kept = message.message_id
    site.call(sender.send(message))
    assert site.ids("west", entity) == site.ids("east", entity) == [kept, kept]
    assert before == (
        dict(message.application_properties or {}),
        message.raw_amqp_message.annotations,
        message.time_to_live,
    )
    assert message.scheduled_enqueue_time_utc is None


def test_a_schedule_of_the_application_holds_in_the_primary_and_is_delayed_in_the_secondary(site: Site) -> None:
    entity = site.queue()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    site.call(site.active(entity).send(ServiceBusMessage("later", scheduled_enqueue_time_utc=due)))
    receivers = site.receivers(entity)
    peeked = {name: site.call(receiver.peek_messages(1))[0] for name, receiver in receivers.items()}
    assert peeked["west"].scheduled_enqueue_time_utc == due
    assert peeked["east"].scheduled_enqueue_time_utc == due + timedelta(seconds=15)


def test_bodies_of_every_kind_arrive_at_both(site: Site) -> None:
    entity = site.queue()
    messages: list[Any] = [
        ServiceBusMessage(b"\x00\xff"),
        ServiceBusMessage("text"),
        ServiceBusMessage(None),
        AmqpAnnotatedMessage(value_body={"answer": 42}),
        AmqpAnnotatedMessage(sequence_body=[[1, "two"], [3.0]]),
        AmqpAnnotatedMessage(data_body=[b"in ", b"pieces"]),
        {"body": "a mapping", "subject": "s"},
    ]
    site.call(site.active(entity, delay=timedelta()).send(messages))
    west, east = (
        [(each.body_type, [*each.body] if each.body_type is not VALUE else each.body) for each in peeked]
        for peeked in (site.call(receiver.peek_messages(10)) for receiver in site.receivers(entity).values())
    )
    assert west == east
    assert [body for _, body in west] == [
        [b"\x00\xff"],
        [b"text"],
        None,
        {b"answer": 42},
        [[1, b"two"], [3.0]],
        [b"in ", b"pieces"],
        [b"a mapping"],
    ]
    assert messages[-1]["message_id"] == site.ids("west", entity)[-1]


@both_kinds
@pytest.mark.parametrize(("success", "is_enough"), [("any", True), ("all", False)])
def test_unavailable_namespace_is_reported_and_the_policy_decides(site: Site, success: str, is_enough: bool) -> None:
    entity = site.queue()
    sender = site.active(entity, success=success, delay=timedelta())
    message = ServiceBusMessage("one")
    site.go_down("east")
    if is_enough:
        outcome = site.call(sender.send(message, timeout=5))
    else:
        with pytest.raises(SendFailed, match=r"west accepted 1 of 1; east accepted 0 of 1, ServiceBus") as caught:
            site.call(sender.send(message, timeout=5))
        outcome = caught.value.outcome
        assert caught.value.__cause__ is caught.value.errors["east"]
    assert outcome.accepted_by == ("west",)
    assert outcome.missing_in == ("east",)
    assert isinstance(outcome.errors["east"], ServiceBusConnectionError)
    site.come_up("east")
    assert site.call(sender.send(message, to=outcome.missing_in)).accepted_by == ("east",)
    assert site.ids("west", entity) == site.ids("east", entity) == [message.message_id]


def test_if_all_namespaces_fail_each_error_is_reported(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity)
    site.go_down("west")
    site.faults("east").add(Fault(effect=Effect.FILL))
    with pytest.raises(SendFailed) as caught:
        site.call(sender.send(ServiceBusMessage("secret content"), timeout=5))
    assert {name: type(error).__name__ for name, error in caught.value.errors.items()} == {
        "west": "ServiceBusConnectionError",
        "east": "ServiceBusQuotaExceededError",
    }
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert set(caught.value.__cause__.exceptions) == set(caught.value.errors.values())
    assert "secret" not in str(caught.value)
    assert len(caught.value.outcome.accepted_nowhere) == 1


@both_kinds
def test_failure_between_two_batches_reports_which_messages_were_accepted(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity, delay=timedelta())
    messages = [ServiceBusMessage("x" * 100_000) for _ in range(25)]
    site.faults("east").add(
        Fault(effect=Effect.DROP_CONNECTION, entity=entity, operations=frozenset({Operation.SEND}), at=2, times=1)
    )
    outcome = site.call(sender.send(messages, timeout=10))
    ids = [message.message_id for message in messages]
    assert site.ids("west", entity) == ids
    east = outcome.deliveries["east"]
    assert east.accepted
    assert [*east.accepted, *east.failed] == ids
    assert site.ids("east", entity) == [*east.accepted]


def test_oversized_message_stops_the_following_ones(site: Site) -> None:
    entity = site.queue()
    messages = [ServiceBusMessage("a"), ServiceBusMessage("x" * 2_000_000), ServiceBusMessage("b")]
    with pytest.raises(SendFailed) as caught:
        site.call(site.active(entity, delay=timedelta()).send(messages, timeout=10))
    assert all(isinstance(error, MessageSizeExceededError) for error in caught.value.errors.values())
    assert site.ids("west", entity) == site.ids("east", entity) == [messages[0].message_id]
    assert caught.value.outcome.accepted_nowhere == tuple(message.message_id for message in messages[1:])


@both_kinds
def test_a_lost_acknowledgement_ends_with_the_timeout_and_the_retry_has_the_same_id(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity, success="all", delay=timedelta())
    message = ServiceBusMessage("twice at most")
    site.call(sender.send(ServiceBusMessage("before")))
    site.faults("east").add(
        Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity=entity, operations=frozenset({Operation.SEND}))
    )
    with pytest.raises(SendFailed) as caught:
        site.call(sender.send(message, timeout=0.5))
    assert isinstance(caught.value.errors["east"], OperationTimeoutError)
    site.faults("east").clear()
    site.call(sender.send(message, to=caught.value.outcome.missing_in))
    assert site.ids("east", entity)[1:] == [message.message_id] * 2


@both_kinds
def test_closed_links_are_reopened(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity, delay=timedelta())
    site.call(sender.send(ServiceBusMessage("1")))
    for name in ("west", "east"):
        site.faults(name).cut_connections()
    assert site.call(sender.send(ServiceBusMessage("2"), timeout=10)).accepted_by == ("west", "east")
    assert site.bodies("west", entity) == site.bodies("east", entity) == ["1", "2"]


def test_an_entity_that_is_missing_on_one_side_is_reported(site: Site) -> None:
    entity = site.queue()
    senders = site.senders(entity)
    senders["east"] = site.senders("nowhere")["east"]
    sender = site.classes.ActiveSender(senders)
    outcome = site.call(sender.send(ServiceBusMessage("x"), timeout=5))
    assert isinstance(outcome.errors["east"], MessagingEntityNotFoundError)


def test_ids_derived_from_a_key_are_the_same_in_a_new_process(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity, delay=timedelta())
    for _ in range(2):
        messages = [ServiceBusMessage("same"), ServiceBusMessage("same"), ServiceBusMessage("other")]
        site.call(sender.send(messages, key="order-4711"))
    ids = site.ids("west", entity)
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3
    site.call(sender.send([ServiceBusMessage("same")], key="order-4712"))
    assert site.ids("west", entity)[-1] not in ids


def test_sent_or_received_object_has_the_same_derived_id(site: Site) -> None:
    entity = site.queue()
    properties: dict[Any, Any] = {"text": b"x", b"name": "y", "number": 1}
    message = ServiceBusMessage("same", application_properties=dict(properties), subject="s")
    sender = site.active(entity, delay=timedelta())
    site.call(sender.send(message, key="k"))
    assert properties != message.application_properties
    message.application_properties = {**(message.application_properties or {}), "traceparent": "00-1-2-01"}
    site.call(sender.send(message, key="k"))
    [*received] = site.call(site.receivers(entity)["west"].peek_messages(1))
    site.call(sender.send(received, key="k"))
    assert len({*site.ids("west", entity), *site.ids("east", entity)}) == 1


@pytest.mark.parametrize(
    ("session_of", "expected"),
    [
        (lambda _: 7, "returned a int, expected text or None"),
        (lambda _: b"p1", "returned a bytes, expected text or None"),
        (lambda raw: raw.application_properties["parcel"], "raised TypeError, expected a session id or None"),
        (lambda _: "x" * 129, "session id: has 129 characters"),
    ],
)
def test_an_invalid_session_is_refused(session_of: Any, expected: str) -> None:
    nobody: dict[str, Any] = {"west": None, "east": None}
    with pytest.raises(WrongUse, match=expected):
        ActiveSender(nobody, session_of=session_of).send(ServiceBusMessage("x"))


def test_the_session_of_a_message_without_one_comes_from_the_message(site: Site) -> None:
    entity = site.queue("sessions")
    sender = site.active(entity, delay=timedelta(), session_of=lambda raw: raw.application_properties["parcel"])
    site.call(sender.send(ServiceBusMessage("x", application_properties={"parcel": "p1"})))
    assert [message.session_id for message in site.held("east", entity)] == ["p1"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ("text", "got a str, expected one message"),
        (["text"], "got a str, expected a ServiceBusMessage"),
        ({"boody": "x"}, "mapping: is invalid"),
        (AmqpAnnotatedMessage(value_body=1, properties={"message_id": "x" * 129}), "has 129 characters"),
    ],
)
def test_invalid_message_is_refused_before_any_is_sent(sync_site: Site, messages: Any, expected: str) -> None:
    with Application("sync", sync_site.places) as application:
        entity = sync_site.queue()
        with pytest.raises(WrongUse, match=expected):
            application.active(entity).send(messages)
        assert sync_site.ids("west", entity) == []


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    nobody: dict[str, Any] = {"west": None, "east": None}
    with pytest.raises(WrongUse, match="at least two"):
        ActiveSender({"west": nobody["west"]})
    with pytest.raises(WrongUse, match="expected 'any' or 'all'"):
        ActiveSender(nobody, success=cast("Any", "most"))
    with pytest.raises(WrongUse, match="expected zero or more"):
        ActiveSender(nobody, delay=timedelta(seconds=-1))
    with pytest.raises(WrongUse, match="unknown namespace north, expected west, east"):
        ActiveSender(nobody).send(ServiceBusMessage("x"), to=["north"])


def test_a_silent_peer_blocks_no_sender(sync_site: Site) -> None:
    entity = sync_site.queue()
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        Application("sync", {"mute": connection_string(mute)}) as stuck,
        Application("sync", sync_site.places) as application,
    ):
        senders = {"west": application.senders(entity)["west"], **stuck.senders(entity)}
        with ActiveSender(senders, delay=timedelta()) as sender:
            started = time.monotonic()
            first = sender.send(ServiceBusMessage("1"), timeout=0.2)
            second = sender.send(ServiceBusMessage("2"), timeout=60)
            assert time.monotonic() - started < 10
            mute.accept()[0].close()
            third = sender.send(ServiceBusMessage("3"), timeout=0.2)
    assert isinstance(first.errors["mute"], OperationTimeoutError)
    assert "not started" in str(second.errors["mute"])
    assert "mute" in third.errors
    assert sync_site.bodies("west", entity) == ["1", "2", "3"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_silent_peer_blocks_no_task(sync_site: Site, count: int) -> None:
    entity = sync_site.queue()
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        Application("aio", {**sync_site.places, "mute": connection_string(mute)}) as application,
    ):
        senders = application.senders(entity)
        sender = application.classes.ActiveSender({each: senders[each] for each in ("west", "mute")})
        application.call(sender.send(ServiceBusMessage("before"), to=["west"]))
        started = time.monotonic()
        # Long enough for the other namespace to accept on a busy machine.
        outcome = application.call(sender.send([ServiceBusMessage("x")] * count, timeout=2))
        assert time.monotonic() - started < 10
    assert outcome.accepted_by == ("west",)
    assert isinstance(outcome.errors["mute"], OperationTimeoutError)


def test_scheduled_message_delays_no_other(site: Site) -> None:
    entity = site.queue()
    sender = site.active(entity)
    later = datetime.now(UTC) + timedelta(hours=1)
    site.call(sender.send(ServiceBusMessage("later", scheduled_enqueue_time_utc=later)))
    site.call(sender.send(ServiceBusMessage("now")))
    peeked = site.call(site.receivers(entity)["east"].peek_messages(10))
    due = {str(each): each.scheduled_enqueue_time_utc for each in peeked}
    assert due["now"] < datetime.now(UTC) + timedelta(minutes=1)


class StuckSender:
    """A sender whose second send returns only when it is let."""

    def __init__(self) -> None:
        self.sends = 0
        self.let = threading.Event()

    def create_message_batch(self, _: int | None = None) -> None:
        raise AssertionError

    def send_messages(self, _: Any, **__: Any) -> None:
        self.sends += 1
        if self.sends == 2:
            assert self.let.wait(30)


class QuickSender(StuckSender):
    def send_messages(self, _: Any, **__: Any) -> None:
        pass


def test_open_link_that_is_stuck_in_the_sdk_holds_one_send_only() -> None:
    stuck = StuckSender()
    senders: dict[str, Any] = {"west": QuickSender(), "east": stuck}
    sender = ActiveSender(senders, delay=timedelta())
    outcomes = [sender.send(ServiceBusMessage(f"{number}"), timeout=0.1) for number in range(2)]
    assert [outcome.missing_in for outcome in outcomes] == [(), ("east",)]
    began = time.monotonic()
    refused = sender.send(ServiceBusMessage("2"), timeout=60)
    assert time.monotonic() - began < 10
    assert "this send was not started" in str(refused.errors["east"])
    stuck.let.set()
    while sender.send(ServiceBusMessage("3"), timeout=5).missing_in:
        time.sleep(0.01)
    assert stuck.sends == 3


def test_passive_sender_leaves_an_open_link_that_is_stuck_in_the_sdk() -> None:
    stuck = StuckSender()
    senders: dict[str, Any] = {"west": stuck, "east": QuickSender()}
    sender = PassiveSender(senders)
    began = time.monotonic()
    accepted = [sender.send(ServiceBusMessage(f"{number}"), timeout=0.1).accepted_by for number in range(3)]
    assert time.monotonic() - began < 10
    assert accepted == [("west",), ("east",), ("east",)]
    stuck.let.set()


def test_a_send_that_was_interrupted_does_not_go_on_beside_the_next() -> None:
    stuck = StuckSender()
    senders: dict[str, Any] = {"west": stuck, "east": QuickSender()}
    sender = PassiveSender(senders)
    sender.send(ServiceBusMessage("1"))
    threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sender.send(ServiceBusMessage("2"))
    assert sender.send(ServiceBusMessage("3")).accepted_by == ("east",)
    assert stuck.sends == 2
    stuck.let.set()
