"""What the live tests of Microsoft's SDKs for Python expect of Azure, over the wire."""

import asyncio
import contextlib
import datetime as dt
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.eventhub import EventHubProducerClient
from azure.eventhub.amqp import AmqpAnnotatedMessage as AnnotatedEvent
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

from broker.tests.reading_events import read_events
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from busway_broker.core.session_store import SessionStore
from busway_broker.thread import RunningBroker
from shared.amqp import sections
from shared.amqp.codec import encode
from shared.amqp.values import list_, map_, string, symbol, uint
from shared.clock import ManualClock

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

CONFIG = NamespaceConfig(
    name="n",
    queues=(
        *(QueueConfig(name=name) for name in ("annotated", "empty")),
        QueueConfig(name="sessions", requires_session=True),
    ),
    topics=(TopicConfig(name="counted"),),
    hubs=(HubConfig(name="hub"),),
)
LOCK_TOKEN = b"x-opt-lock-token"


NAMESPACES, CLOCK = [CONFIG], ManualClock(dt.datetime.now(dt.UTC))


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, queue: str, message: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(message)


# Sections


def test_delivery_annotations_behind_the_footer_are_accepted_and_delivered(client: ServiceBusClient) -> None:
    message = AmqpAnnotatedMessage(
        data_body=[b"a", b"b"],
        footer={"f": 1},
        annotations={"m": 2},
        delivery_annotations={"d": "3", "x-opt-lock-token": 4},
    )
    send(client, "annotated", [message, message])
    with client.get_queue_receiver("annotated") as receiver:
        for received in receiver.receive_messages(2, max_wait_time=5):
            raw = received.raw_amqp_message
            assert list(raw.body) == [b"a", b"b"]
            assert raw.footer == {b"f": 1}
            assert raw.annotations is not None
            assert raw.annotations[b"m"] == 2
            assert raw.delivery_annotations == {b"d": b"3", LOCK_TOKEN: received.lock_token}
        [peeked] = receiver.peek_messages(1, sequence_number=1)
        assert peeked.raw_amqp_message.delivery_annotations == {b"d": b"3"}


def test_what_is_delivered_is_in_order(client: ServiceBusClient, broker: RunningBroker) -> None:
    send(client, "annotated", AmqpAnnotatedMessage(value_body=[1], footer={"f": 1}, delivery_annotations={"d": 3}))
    messages = broker.inspect("n", lambda namespace: list(namespace.store("annotated").peek(0)))
    # A strict reader: it raises for a section out of order.
    found = sections.split(messages[-1].encode())
    assert all((found.header, found.delivery_annotations, found.message_annotations, found.body, found.footer))


def test_events_with_sections_out_of_order_are_accepted(broker: RunningBroker) -> None:
    string_ = broker.connection_string("n")
    event: Any = AnnotatedEvent(data_body=b"x", footer={"f": 1}, delivery_annotations={"d": 3})
    with EventHubProducerClient.from_connection_string(string_, eventhub_name="hub") as producer:
        batch = producer.create_batch(partition_id="0")
        batch.add(event)
        producer.send_batch(batch)
    [(_, seen)] = read_events(string_, "hub", 1)
    assert seen.body_as_str() == "x"
    assert seen.raw_amqp_message.footer == {b"f": 1}


PARTS = {
    "header": b"\x00\x53\x70" + encode(list_([])),
    "delivery": b"\x00\x53\x71" + encode(map_([(symbol("d"), uint(1))])),
    "annotations": b"\x00\x53\x72" + encode(map_([(symbol("m"), uint(2))])),
    "properties": b"\x00\x53\x73" + encode(list_([string("id")])),
    "body": sections.data(b"a") + sections.data(b"b"),
    "footer": b"\x00\x53\x78" + encode(map_([(symbol("f"), uint(3))])),
}


def test_every_order_of_sections_is_one_message() -> None:
    expected = read_content(b"".join(PARTS.values()))
    for order in itertools.permutations(PARTS.values()):
        found = read_content(b"".join(order))
        assert (found.bare, found.annotations, found.delivery_annotations, found.header) == (
            expected.bare,
            expected.annotations,
            expected.delivery_annotations,
            expected.header,
        )


def test_data_sections_apart_are_one_body() -> None:
    apart = sections.data(b"a") + PARTS["properties"] + sections.data(b"b")
    assert read_content(apart).bare == PARTS["properties"] + PARTS["body"]


def test_many_small_sections_take_linear_time() -> None:
    def seconds(count: int) -> float:
        message = PARTS["footer"] + sections.data(b"") * count
        return min(_seconds_of(message) for _ in range(3))

    # Four times as many: quadratic time would take sixteen times as long.
    assert seconds(200_000) < 8 * seconds(50_000)


def _seconds_of(message: bytes) -> float:
    started = time.process_time()
    read_content(message)
    return time.process_time() - started


@pytest.mark.parametrize(
    "message",
    [
        PARTS["body"] + PARTS["header"] + PARTS["header"],
        PARTS["footer"] + PARTS["body"] + PARTS["footer"],
        PARTS["body"] + b"\x00\x53\x77\x43",
        PARTS["footer"] + PARTS["body"][:-1],
        PARTS["footer"] + b"\x00\x53\x79\x43",
    ],
)
def test_two_of_a_kind_and_damaged_sections_are_refused(message: bytes) -> None:
    with pytest.raises(Exception, match="amqp:decode-error"):
        read_content(message)


def publish(namespace: Namespace) -> None:
    namespace.target("q").publish(read_content(PARTS["body"]))


def test_a_file_of_the_first_version_is_read_and_changed(tmp_path: Path) -> None:
    config = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),))
    with RunningBroker([config], data=tmp_path) as running:
        running.inspect("n", publish)
    with contextlib.closing(sqlite3.connect(tmp_path / "n/broker.sqlite")) as file:
        file.executescript("ALTER TABLE contents DROP COLUMN delivery_annotations; PRAGMA user_version = 1")
    for expected in (1, 2):
        with RunningBroker([config], data=tmp_path) as running:
            messages = running.inspect("n", lambda namespace: list(namespace.store("q").peek(0)))
            assert [message.content.delivery_annotations for message in messages] == [b""] * expected
            running.inspect("n", publish)


def test_delivery_annotations_survive_with_stored_state(tmp_path: Path) -> None:
    config = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),))
    with RunningBroker([config], data=tmp_path) as running:
        content = read_content(b"".join(PARTS.values()))
        running.inspect("n", lambda namespace: namespace.target("q").publish(content))
    with RunningBroker([config], data=tmp_path) as running:
        [message] = running.inspect("n", lambda namespace: list(namespace.store("q").peek(0)))
        assert message.content.delivery_annotations == content.delivery_annotations


# Sessions


def has_waiting(namespace: Namespace) -> bool:
    store = namespace.store("sessions")
    assert isinstance(store, SessionStore)
    return bool(store._waiting)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def open_next(broker: RunningBroker) -> str:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client,
        client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=70) as receiver,
    ):
        return receiver.session.session_id


def open_next_async(broker: RunningBroker) -> str:
    async def run() -> str:
        async with (
            AsyncClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client,
            client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=70) as receiver,
        ):
            return receiver.session.session_id

    return asyncio.run(run())


@pytest.mark.parametrize("open_receiver", [open_next, open_next_async])
def test_a_receiver_waits_seventy_seconds_for_the_next_session(
    broker: RunningBroker, client: ServiceBusClient, open_receiver: Callable[[RunningBroker], str]
) -> None:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(open_receiver(broker))
        except OperationTimeoutError as error:
            results.append(error)

    for action in ("send", "wait"):
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: broker.inspect("n", has_waiting))
        broker.advance(69)
        assert broker.inspect("n", has_waiting)
        if action == "send":
            send(client, "sessions", ServiceBusMessage("x", session_id="late"))
        else:
            broker.advance(1)
        thread.join(30)
        # The session is left, and its message expires from the test's view: it is taken away for the next round.
        broker.inspect("n", lambda namespace: namespace.store("sessions").messages.clear())
    assert results[0] == "late"
    assert isinstance(results[1], OperationTimeoutError)


# Arrays


def test_an_empty_array_is_no_decode_error(client: ServiceBusClient) -> None:
    with client.get_queue_receiver("empty") as receiver:
        assert receiver.receive_deferred_messages([]) == []
        # The SDK does not send that request any more; earlier versions and other stacks do.
        raw: Any = receiver
        answer = raw._mgmt_request_response_with_retry(
            b"com.microsoft:receive-by-sequence-number",
            {"sequence-numbers": {"TYPE": "ARRAY", "VALUE": []}, "receiver-settle-mode": {"TYPE": "UINT", "VALUE": 1}},
            lambda status, message, *_, **__: (status, message.value),
        )
    assert answer == (200, {b"messages": []})


# Administration


@pytest.fixture(scope="module")
def running_admin(running_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdmin]:
    with RunningAdmin(running_broker, tmp_path_factory.mktemp("tls")) as admin:
        yield admin


def administration(admin: RunningAdmin, **options: Any) -> ServiceBusAdministrationClient:
    string_ = admin.connection_string("n")
    return ServiceBusAdministrationClient.from_connection_string(
        string_, connection_verify=str(admin.authority), retry_total=0, **options
    )


def test_an_entity_with_sessions_cannot_forward(admin: RunningAdmin) -> None:
    """Azure/azure-service-bus issues 317 and 660."""
    with administration(admin) as administrator:
        administrator.create_queue("target")
        with pytest.raises(HttpResponseError, match=r"SubCode=40000\. Bad Request\."):
            administrator.create_queue("sources", requires_session=True, forward_to="target")
        assert "sources" not in [queue.name for queue in administrator.list_queues()]


def test_forwarding_to_itself_is_accepted_and_its_address_absolute(
    admin: RunningAdmin, client: ServiceBusClient, broker: RunningBroker
) -> None:
    with administration(admin) as administrator:
        queue = administrator.create_queue("Round/Trip")
        queue.forward_to = "sb://west.servicebus.windows.net/Round/Trip"
        administrator.update_queue(queue)
        found = administrator.get_queue("round/trip").forward_to
        assert found is not None
        assert found.startswith("sb://localhost:")
        assert found.endswith("/Round/Trip")
        send(client, "Round/Trip", ServiceBusMessage("x"))
        counts = broker.counts("n")["Round/Trip"]
        assert (counts.active, counts.dead_lettered, counts.transfer_dead_lettered) == (0, 1, 0)
        administrator.update_queue(queue, forward_to=None)


TIMES = (
    dt.datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001 - without a zone, as the live test gives it
    dt.datetime(2020, 7, 5, 11, 12, 13, tzinfo=dt.UTC),
    dt.datetime(2020, 7, 5, 11, 12, 13, tzinfo=dt.timezone(dt.timedelta(hours=2))),
)


@pytest.mark.parametrize("at", TIMES)
def test_parameters_and_properties_of_a_rule_come_back_as_they_were_given(admin: RunningAdmin, at: dt.datetime) -> None:
    parameters: Any = {
        "@at": at,
        "@text": "a",
        "@number": 2**31 + 3,
        "@flag": False,
        "@for": dt.timedelta(days=1, minutes=3),
    }
    with administration(admin) as administrator:
        administrator.create_topic("ruled")
        try:
            administrator.create_subscription("ruled", "s")
            sql = SqlRuleFilter("Priority = @text", parameters=parameters)
            action = SqlRuleAction("SET at = @at", parameters={"@at": at})
            administrator.create_rule("ruled", "s", "sql", filter=sql, action=action)
            correlation = CorrelationRuleFilter(correlation_id="c", properties={"at": at, "n": 1.5})
            administrator.create_rule("ruled", "s", "correlation", filter=correlation)
            found: Any = administrator.get_rule("ruled", "s", "sql")
            assert (found.filter.parameters, found.action.parameters) == (parameters, {"@at": at})
            assert found.action.parameters["@at"].tzinfo == at.tzinfo or at.utcoffset() == (
                found.action.parameters["@at"].utcoffset()
            )
            listed: Any = {rule.name: rule for rule in administrator.list_rules("ruled", "s")}
            assert listed["correlation"].filter.properties == {"at": at, "n": 1.5}
        finally:
            administrator.delete_topic("ruled")


def test_a_topic_reports_the_filters_of_its_subscriptions(admin: RunningAdmin) -> None:
    with administration(admin) as administrator:
        for name in ("a", "b"):
            administrator.create_subscription("counted", name)
        administrator.create_rule("counted", "a", "sql", filter=SqlRuleFilter("1=1"))
        administrator.create_rule("counted", "b", "by-id", filter=CorrelationRuleFilter(correlation_id="c"))
        found = administrator.get_topic_runtime_properties("counted")
        assert (found.sql_filter_count, found.correlation_filter_count) == (3, 1)
    with administration(admin, api_version=ApiVersion.V2021_05) as administrator:
        assert administrator.get_topic_runtime_properties("counted").sql_filter_count is None


def test_an_old_version_refuses_what_it_did_not_know(admin: RunningAdmin) -> None:
    with administration(admin, api_version=ApiVersion.V2017_04) as administrator:
        for create in (administrator.create_queue, administrator.create_topic):
            with pytest.raises(HttpResponseError, match="api-version 2017-04 does not have it"):
                create("large", max_message_size_in_kilobytes=1024)
        assert administrator.create_queue("old").max_message_size_in_kilobytes is None
        administrator.update_queue(administrator.get_queue("old"))
