"""The broker as @azure/service-bus and @azure/event-hubs see it."""

import pytest

from broker.tests.javascript_client import run_script
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker

NAMESPACE = NamespaceConfig(
    name="js",
    queues=(
        QueueConfig(name="js-queue"),
        QueueConfig(name="js-copy"),
        QueueConfig(name="js-sessions", requires_session=True),
    ),
    topics=(TopicConfig(name="js-topic", subscriptions=(SubscriptionConfig(name="sub"),)),),
    hubs=(HubConfig(name="js-hub", partition_count=2),),
)


@pytest.mark.parametrize(("script", "package"), [("service_bus", "service-bus"), ("event_hubs", "event-hubs")])
def test_the_client_finds_everything_as_it_expects(script: str, package: str) -> None:
    with RunningBroker([NAMESPACE]) as broker:
        run_script(script, broker.connection_string("js"), package=package)
