"""Receivers that follow a source, on two namespaces of the local broker, through the SDK."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageLockLostError, OperationTimeoutError, ServiceBusError

from busway_broker.thread import RunningBroker
from busway_clients import EndpointWatch, FollowingReceiver, FollowingSender
from busway_clients.endpoints.dns import DnsSource
from busway_clients.endpoints.endpoint import Endpoint
from tests.clients.endpoints.following import DOMAIN, FreshWatch, Register, endpoint, held, put
from tests.clients.endpoints.name_server import NameServer

pytest_plugins = "broker.tests.broker_of_a_module"

# The SDK leaves sockets of connections that broke, or links that were refused, to the garbage collector.


def test_receiver_settles_at_the_old_site_before_it_moves(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a", "b", "c")
    put(broker, "east", "d")
    with register.receiver() as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=5)
        register.point_to(endpoint("east"))
        assert receiver.receive_messages(2, max_wait_time=0.05) == []
        assert receiver.endpoint == endpoint("west")
        receiver.complete_message(first)
        worker = threading.Timer(0.1, receiver.complete_message, [second])
        worker.start()
        (other,) = receiver.receive_messages(2, max_wait_time=5)
        worker.join()
        assert str(other) == "d"
        receiver.complete_message(other)
        assert receiver.endpoint == endpoint("east")
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(second)
    assert held(broker) == [1, 0]


def test_a_receiver_leaves_unsettled_messages_behind(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    put(broker, "west", "a", "b")
    with register.receiver(drain_seconds=0.1) as receiver:
        kept, _ = receiver.receive_messages(2, max_wait_time=5)
        put(broker, "east", "c")
        register.point_to(endpoint("east"))
        (other,) = receiver.receive_messages(1, max_wait_time=5)
        assert str(other) == "c"
        with pytest.raises(MessageLockLostError, match="its link was closed"):
            receiver.complete_message(kept)
        receiver.abandon_message(other)
    assert "west.servicebus.windows.net:5671: 2 messages were not settled" in caplog.text
    broker.faults("west").expire_locks("orders")
    assert held(broker) == [2, 1]


def test_receiver_of_an_unavailable_site_follows_the_source(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a")
    put(broker, "east", "b")
    with register.receiver() as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        broker.faults("west").go_down()
        register.point_to(endpoint("east"))
        with pytest.raises((ServiceBusError, OSError, ValueError)):
            receiver.complete_message(message)
        (other,) = receiver.receive_messages(1, max_wait_time=10)
        assert str(other) == "b"
        receiver.complete_message(other)
    broker.faults("west").come_up()
    broker.faults("west").expire_locks("orders")
    assert held(broker) == [1, 0]


def test_receive_and_delete_does_not_delay_a_move(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a")
    put(broker, "east", "b")
    with register.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["a"]
        register.point_to(endpoint("east"))
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["b"]


def test_sessions_are_received_one_after_the_other_at_the_new_site(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a", queue="sessions", session="one")
    put(broker, "east", "c", queue="sessions", session="three")
    with register.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver:
        taken = []
        for site in ("west", "east"):
            register.point_to(endpoint(site))
            (message,) = receiver.receive_messages(5, max_wait_time=5)
            assert receiver.session is not None
            taken.append((receiver.session.session_id, str(message)))
            receiver.complete_message(message)
            receiver.release()
        assert taken == [("one", "a"), ("three", "c")]
        with pytest.raises(OperationTimeoutError):
            receiver.receive_messages(5, max_wait_time=1)


def test_dns_alias_moves_sender_and_receiver(register: Register, broker: RunningBroker) -> None:
    def connect(to: Any) -> Any:
        return register.connect(Endpoint(to.namespace.replace("-example", ""), to.port))

    with NameServer() as server:
        ticks = iter(range(0, 10**9, 400))
        source = DnsSource("servicebus.example.test", nameservers=["127.0.0.1"], port=server.port, timeout_seconds=1)
        watch = FreshWatch(EndpointWatch(source, monotonic=lambda: float(next(ticks))))
        sender = FollowingSender(watch, connect, lambda client: client.get_queue_sender("orders"))
        receiver = FollowingReceiver(watch, connect, lambda client: client.get_queue_receiver("orders"))
        with sender, receiver:
            for site in ("west", "east"):
                server.replace("20 CNAME west", f"20 CNAME {site}")
                sender.send_messages(ServiceBusMessage(site))
                (message,) = receiver.receive_messages(1, max_wait_time=5)
                assert (str(message), receiver.endpoint) == (site, Endpoint(f"{site}-example.{DOMAIN}"))
                receiver.complete_message(message)
                server.is_silent = site == "west"
                sender.send_messages(ServiceBusMessage("while nobody answers"))
                assert sender.endpoint == receiver.endpoint
                server.is_silent = False
    assert held(broker) == [1, 1]


@pytest.mark.parametrize("session", [NEXT_AVAILABLE_SESSION, "one", None], ids=["next session", "one session", "plain"])
@pytest.mark.parametrize("releases", [True, False], ids=["released", "open"])
def test_receiver_of_a_dead_namespace_moves_before_the_source_is_due(
    session: Any, releases: bool, register: Register, broker: RunningBroker
) -> None:
    queue = "orders" if session is None else "sessions"
    for site in ("west", "east"):
        put(broker, site, site, queue=queue, session=None if session is None else "one")
    options = {} if session is None else {"session_id": session, "max_wait_time": 1}
    with FollowingReceiver(
        register.slow_watch(), register.connect, lambda client: client.get_queue_receiver(queue, **options)
    ) as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(first)
        if releases:
            receiver.release()
        broker.faults("west").go_down()
        register.point_to(endpoint("east"))
        (second,) = receiver.receive_messages(1, max_wait_time=5)
        assert str(second) == "east"
        receiver.complete_message(second)
    broker.faults("west").come_up()


def test_receiver_whose_session_lock_has_ended_reads_the_source(register: Register, broker: RunningBroker) -> None:
    for site in ("west", "east"):
        put(broker, site, site, queue="sessions", session="one")
    with FollowingReceiver(
        register.slow_watch(),
        register.connect,
        lambda client: client.get_queue_receiver("sessions", session_id="one"),
    ) as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(first)
        register.point_to(endpoint("east"))
        assert receiver.session is not None
        # As the SDK sees it when nobody could renew the lock: it raises without asking the namespace.
        receiver.session._locked_until_utc = datetime.now(UTC) - timedelta(seconds=1)
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["east"]


def test_receiver_of_a_dead_namespace_raises_if_the_source_still_names_it(
    register: Register, broker: RunningBroker
) -> None:
    broker.faults("west").go_down()
    with register.receiver() as receiver, pytest.raises((ServiceBusError, OSError)):
        receiver.receive_messages(1, max_wait_time=1)
    broker.faults("west").come_up()
