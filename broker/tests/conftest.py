"""
Brokers for the tests.

1. A module without NAMESPACES shares one broker with all others like it; each test uses entities of its own.
2. A module with NAMESPACES, and perhaps a CLOCK, has a broker of its own, which each test finds empty and without
   faults.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from broker.tests.admin_requests import AdminRequests
from broker.tests.sdk_calls import Bus
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
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
def shared_broker() -> Iterator[RunningBroker]:
    with RunningBroker(namespaces()) as running:
        yield running


@pytest.fixture(scope="module")
def running_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    if hasattr(request.module, "NAMESPACES"):
        with RunningBroker(request.module.NAMESPACES, getattr(request.module, "CLOCK", None)) as running:
            yield running
    else:
        yield request.getfixturevalue("shared_broker")


@pytest.fixture
def broker(request: pytest.FixtureRequest, running_broker: RunningBroker) -> RunningBroker:
    if hasattr(request.module, "NAMESPACES"):
        running_broker.reset()
    return running_broker


@pytest.fixture(scope="module")
def running_admin(running_broker: RunningBroker) -> Iterator[RunningAdmin]:
    with RunningAdmin(running_broker) as admin:
        yield admin


@pytest.fixture
def admin(running_admin: RunningAdmin, broker: RunningBroker) -> RunningAdmin:  # noqa: ARG001 - reset comes first
    return running_admin


@pytest.fixture
def requests(admin: RunningAdmin) -> AdminRequests:
    return AdminRequests(admin.address("west"))


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client:
        yield client


@pytest.fixture
def bus(broker: RunningBroker, client: ServiceBusClient) -> Bus:
    return Bus(broker, client)


@pytest.fixture
def entity(bus: Bus) -> Callable[[str], str]:
    return bus.entity


@pytest.fixture
def publish(bus: Bus) -> Callable[..., None]:
    return bus.publish


@pytest.fixture
def receive(bus: Bus) -> Callable[..., list[ServiceBusReceivedMessage]]:
    return bus.receive


@pytest.fixture
def take(bus: Bus) -> Callable[..., list[ServiceBusReceivedMessage]]:
    return bus.take
