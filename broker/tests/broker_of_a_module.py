"""
Fixtures for pytest: a broker on free ports, in a thread of its own, reset to its configuration before each test.

A test module enables them with `pytest_plugins = "broker.tests.broker_of_a_module"` and defines the entities it needs:

    @pytest.fixture(scope="module")
    def broker_namespaces():
        return [NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))]

    def test_orders_are_taken(broker):
        with ServiceBusClient.from_connection_string(broker.connection_string("west")) as client:
            ...

Entities may also come from a file of the emulators: `return load_config(["Config.json"])`. With a `broker_clock`
fixture that returns a ManualClock, time stops until `broker.advance(seconds)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from busway_broker.config import NamespaceConfig
from busway_broker.thread import RunningBroker
from shared.clock import Clock, SystemClock


@pytest.fixture(scope="module")
def broker_namespaces() -> Sequence[NamespaceConfig]:
    """Fail: a test module that uses the broker must define its namespaces."""
    raise pytest.UsageError("define a fixture broker_namespaces (scope module) that returns the broker's namespaces")


@pytest.fixture(scope="module")
def broker_clock() -> Clock:
    """Return the broker's clock."""
    return SystemClock()


@pytest.fixture(scope="module")
def running_broker(broker_namespaces: Sequence[NamespaceConfig], broker_clock: Clock) -> Iterator[RunningBroker]:
    """Return a broker that serves the whole module, on free ports instead of the configured ones."""
    with RunningBroker(
        [replace(broker_namespace, port=None) for broker_namespace in broker_namespaces], broker_clock
    ) as running:
        yield running


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    """Return the broker with its configured entities, empty, and without faults."""
    running_broker.reset()
    return running_broker
