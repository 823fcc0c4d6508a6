"""
The pytest plugin of busway-broker: fixtures for tests of code that uses Service Bus or Event Hubs.

Each test that asks for one of them gets a broker of its own, on free ports, with no messages. A test that declares no
entities may use any name: its entities are created at their first use. With the mark, only the declared ones exist:

    @pytest.mark.busway(queues=["orders", QueueConfig(name="jobs", requires_session=True)])
    @pytest.mark.busway(topics={"prices": ["eu", "us"]}, hubs={"telemetry": 4})
    @pytest.mark.busway(config="Config.json")
    @pytest.mark.busway(links=LinkLimits(link_idle=timedelta(seconds=20)))

Every test run imports this module, so it imports the broker when a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from busway_broker.plugin.fixtures import BrokerClock, BrokerFaults, EventHubs, ServiceBus
    from busway_broker.thread import RunningBroker


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "busway(queues, topics, hubs, config, links): the entities of the fixtures service_bus and event_hubs; "
        "without any they are created at their first use; and how long links last",
    )


@pytest.fixture
def busway_broker(request: pytest.FixtureRequest) -> "Iterator[RunningBroker]":
    """Return the broker behind the other fixtures; its namespaces are `service-bus` and `event-hubs`."""
    from busway_broker.plugin.fixtures import new_clock
    from busway_broker.plugin.marks import namespaces_of
    from busway_broker.thread import RunningBroker

    clock = new_clock() if "busway_clock" in request.fixturenames else None
    with RunningBroker(namespaces_of(request.node.iter_markers("busway"), request.path.parent), clock) as broker:
        yield broker


@pytest.fixture
def service_bus(busway_broker: "RunningBroker") -> "ServiceBus":
    """Return the connection string of a Service Bus namespace; its methods create entities and show messages."""
    from busway_broker.plugin.fixtures import ServiceBus

    return ServiceBus(busway_broker)


@pytest.fixture
def event_hubs(busway_broker: "RunningBroker") -> "EventHubs":
    """Return the connection string of an Event Hubs namespace; its method creates hubs."""
    from busway_broker.plugin.fixtures import EventHubs

    return EventHubs(busway_broker)


@pytest.fixture
def busway_clock(busway_broker: "RunningBroker") -> "BrokerClock":
    """Return the clock of both namespaces, which moves only when the test advances it."""
    from busway_broker.plugin.fixtures import BrokerClock

    return BrokerClock(busway_broker)


@pytest.fixture
def busway_faults(busway_broker: "RunningBroker") -> "BrokerFaults":
    """Return the faults of both namespaces: which operations fail, and how."""
    from busway_broker.plugin.fixtures import BrokerFaults

    return BrokerFaults(busway_broker)
