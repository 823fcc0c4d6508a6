"""A broker for the tests that use it with the SDKs. It starts once; each test uses entities of its own."""

import contextlib
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from broker.tests.sdk_calls import ReceiveMessages, SendMessages, TakeEntity
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker
from shared.rules import CorrelationFilter, Rule, parse_action, parse_filter
from tests.impatience import impatient_clients

_SECOND = timedelta(seconds=1)
QUEUES_OF_A_KIND = 40


def _queues(kind: str, **options: Any) -> list[QueueConfig]:
    return [QueueConfig(name=f"{kind}-{number}", **options) for number in range(QUEUES_OF_A_KIND)]


def _topics() -> list[TopicConfig]:
    replication = Rule("replication", parse_filter("replication IS NULL"), parse_action("SET replication = 1"))
    subscriptions = (
        SubscriptionConfig(name="all"),
        SubscriptionConfig(name="replicated", rules=(replication,)),
        SubscriptionConfig(name="express", rules=(Rule("express", parse_filter("priority > 5")),)),
        SubscriptionConfig(name="orders", rules=(Rule("orders", CorrelationFilter(subject="order")),)),
        SubscriptionConfig(
            name="many",
            rules=(
                Rule("plain", parse_filter("1 = 1")),
                Rule("other", parse_filter("2 = 2")),
                Rule("marked", parse_filter("1 = 1"), parse_action("SET marked = 'yes'; SET sys.Label = 'new'")),
            ),
        ),
        SubscriptionConfig(name="sessions", requires_session=True),
    )
    return [TopicConfig(name=f"topic-{number}", subscriptions=subscriptions) for number in range(10)]


def namespaces() -> list[NamespaceConfig]:
    west = NamespaceConfig(
        name="west",
        queues=(
            *_queues("plain"),
            *_queues("sessions", requires_session=True),
            *_queues("short-lock", lock_duration=_SECOND, max_delivery_count=2),
            *_queues("short-session", lock_duration=_SECOND, requires_session=True),
            *_queues("expiring", dead_lettering_on_message_expiration=True),
            *_queues("dropping", default_message_time_to_live=_SECOND),
            *_queues("unique", requires_duplicate_detection=True),
            QueueConfig(name="first", forward_to="second"),
            QueueConfig(name="second", forward_to="third"),
            QueueConfig(name="third", forward_dead_lettered_messages_to="morgue"),
            QueueConfig(name="morgue"),
            QueueConfig(name="circle", forward_to="circle"),
            QueueConfig(name="premium", max_message_size=2 * 1024 * 1024),
        ),
        topics=tuple(_topics()),
    )
    east = NamespaceConfig(name="east", queues=(*_queues("plain"),))
    hubs = NamespaceConfig(
        name="hubs",
        hubs=tuple(
            HubConfig(name=f"hub-{number}", partition_count=4, consumer_groups=("second",))
            for number in range(QUEUES_OF_A_KIND)
        ),
    )
    return [west, east, hubs]


@pytest.fixture(scope="session", autouse=True)
def _impatient_clients() -> Iterator[None]:
    with impatient_clients():
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(namespaces()) as running:
        yield running


_numbers: dict[str, "itertools.count[int]"] = {}


@pytest.fixture
def entity() -> TakeEntity:
    """Return the name of an entity of a kind that no other test uses."""

    def take(kind: str) -> str:
        return f"{kind}-{next(_numbers.setdefault(kind, itertools.count()))}"

    return take


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client:
        yield client


@pytest.fixture
def send(client: ServiceBusClient) -> SendMessages:
    """Send messages to a queue or topic."""

    def send_messages(name: str, messages: ServiceBusMessage | list[ServiceBusMessage]) -> None:
        with contextlib.closing(client.get_queue_sender(name)) as sender:
            sender.send_messages(messages)

    return send_messages


@pytest.fixture
def publish(broker: RunningBroker) -> SendMessages:
    """Add messages to a queue or topic without a sender, for tests of what happens afterwards."""

    def encoded(message: ServiceBusMessage) -> bytes:
        outgoing = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
        return bytes(encode_payload(bytearray(), outgoing))

    def publish_messages(name: str, messages: ServiceBusMessage | list[ServiceBusMessage]) -> None:
        contents = [
            read_content(encoded(message)) for message in (messages if isinstance(messages, list) else [messages])
        ]
        broker.inspect("west", lambda west: [west.target(name).publish(content) for content in contents])

    return publish_messages


@pytest.fixture
def receive(client: ServiceBusClient) -> ReceiveMessages:
    """Receive messages of a queue, up to a number or until none comes for two seconds."""

    def receive_messages(name: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        with client.get_queue_receiver(name, **options) as receiver:
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < count and (more := receiver.receive_messages(count - len(messages), max_wait_time=2)):
                messages += more
            return messages

    return receive_messages


@pytest.fixture
def take(receive: ReceiveMessages) -> ReceiveMessages:
    """Receive and delete."""

    def take_messages(name: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        return receive(name, count, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options)

    return take_messages
