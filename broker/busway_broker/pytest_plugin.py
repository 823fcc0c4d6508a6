"""
The pytest plugin of busway-broker: fixtures for tests of code that uses Service Bus or Event Hubs.

Each test that asks for one of them gets a broker of its own, on free ports, with no messages. A test that declares no
entities may use any name: its entities are created at their first use. With the mark, only the declared ones exist:

    @pytest.mark.busway(queues=["orders", QueueConfig(name="jobs", requires_session=True)])
    @pytest.mark.busway(topics={"prices": ["eu", "us"]}, hubs={"telemetry": 4})
    @pytest.mark.busway(config="Config.json")
    @pytest.mark.busway(links=LinkLimits(link_idle=timedelta(seconds=20)))

The fixtures of a module, such as busway_module_service_bus, have one broker for all its tests, with the entities of the
marks in its `pytestmark`. Those of the session have one for all tests, with the file that the setting busway_config
names. Every test run imports this module, so it imports the broker when a test asks for it.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from busway_broker.thread import RunningBroker

CONFIG_SETTING = "busway_config"
PARTS = {
    "service_bus": ("ServiceBus", "The connection string of a Service Bus namespace; its methods show messages."),
    "event_hubs": ("EventHubs", "The connection string of an Event Hubs namespace; its methods show events."),
    "clock": ("BrokerClock", "The clock of both namespaces, which moves only when a test advances it."),
    "faults": ("BrokerFaults", "The faults of both namespaces: which operations fail, and how."),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the setting."""
    parser.addini(CONFIG_SETTING, "Config.json with the entities of the fixtures busway_session_*", type="paths")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "busway(queues, topics, hubs, config, links): the entities of the fixtures busway_service_bus and "
        "busway_event_hubs; without any they are created at their first use; and how long links last",
    )


def _broker_fixture(scope: Any, prefix: str) -> Callable[..., "Iterator[RunningBroker]"]:  # noqa: ANN401 - pytest has no public type for it
    @pytest.fixture(scope=scope, name=f"{prefix}_broker")
    def broker(request: pytest.FixtureRequest) -> "Iterator[RunningBroker]":
        """Return the broker behind the other fixtures; its namespaces are `service-bus` and `event-hubs`."""
        from busway_broker.plugin.fixtures import new_clock
        from busway_broker.plugin.marks import namespaces_of
        from busway_broker.thread import RunningBroker

        marks = list(request.node.iter_markers("busway"))
        if scope == "session":
            marks = [pytest.mark.busway(config=file).mark for file in request.config.getini(CONFIG_SETTING)]
        # Whether time stands still must not depend on which test comes first.
        items = [request.node] if scope == "function" else request.session.items
        in_scope = [item for item in items if request.node in item.listchain()]
        is_manual = any(f"{prefix}_clock" in getattr(item, "fixturenames", ()) for item in in_scope)
        folder = request.config.rootpath if scope == "session" else request.path.parent
        with RunningBroker(namespaces_of(marks, folder), new_clock() if is_manual else None) as running:
            yield running

    return broker


def _part_fixture(scope: Any, prefix: str, name: str) -> Callable[..., object]:  # noqa: ANN401 - likewise
    kind, documentation = PARTS[name]

    def part(request: pytest.FixtureRequest) -> object:
        broker = request.getfixturevalue(f"{prefix}_broker")
        return getattr(import_module("busway_broker.plugin.fixtures"), kind)(broker)

    part.__doc__ = documentation
    return pytest.fixture(scope=scope, name=f"{prefix}_{name}")(part)


for _scope, _prefix in (("function", "busway"), ("module", "busway_module"), ("session", "busway_session")):
    globals()[f"{_prefix}_broker"] = _broker_fixture(_scope, _prefix)
    for _name in PARTS:
        globals()[f"{_prefix}_{_name}"] = _part_fixture(_scope, _prefix, _name)
