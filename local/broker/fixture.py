"""
Fixtures for pytest: a broker on free ports, in a thread of its own, as it was configured at the start of each test.

A test module asks for them with `pytest_plugins = "local.broker.fixture"` and says which entities it needs:

    @pytest.fixture(scope="module")
    def broker_namespaces():
        return [NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))]

    def test_orders_are_taken(broker):
        with ServiceBusClient.from_connection_string(broker.connection_string("west")) as client:
            ...

Entities may as well come from an emulator's file: `return load_config(["Config.json"])`. With a `broker_clock` that
returns a ManualClock, time stands still until `broker.advance(seconds)`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from local.broker.config import NamespaceConfig
from local.broker.thread import RunningBroker
from shared.clock import Clock, SystemClock


@pytest.fixture(scope="module")
def broker_namespaces() -> Sequence[NamespaceConfig]:
    """Fail: a test module that uses the broker says which namespaces it has."""
    raise pytest.UsageError("define a fixture broker_namespaces (scope module) that returns the broker's namespaces")


@pytest.fixture(scope="module")
def broker_clock() -> Clock:
    """Return the broker's clock."""
    return SystemClock()


@pytest.fixture(scope="module")
def running_broker(broker_namespaces: Sequence[NamespaceConfig], broker_clock: Clock) -> Iterator[RunningBroker]:
    """Return a broker that serves the whole module; ports in the configuration give way to free ones."""
    with RunningBroker([replace(each, port=None) for each in broker_namespaces], broker_clock) as running:
        yield running


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    """Return the broker with its entities as configured and empty, and no faults set."""
    running_broker.reset()
    return running_broker
