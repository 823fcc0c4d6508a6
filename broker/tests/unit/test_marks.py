"""The marks of the pytest plugin with mistakes."""

from pathlib import Path
from typing import Any

import pytest

from busway_broker.config import OnDemand, QueueConfig
from busway_broker.plugin.marks import namespaces_of


def mark(**arguments: Any) -> pytest.Mark:
    # The mark is registered by the plugin, which this session does not have.
    return pytest.Mark("busway", (), arguments, _ispytest=True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"queue": ["q"]}, "expected one of queues, topics, hubs, config"),
        ({"queues": "orders"}, "got the text 'orders', expected a list"),
        ({"queues": [5]}, "5 is no queue"),
        ({"queues": ["a b"]}, "'a b' is no name for an entity, expected letters"),
        ({"queues": ["q", QueueConfig(name="Q")]}, "two entities named 'Q'"),
        ({"queues": ["t"], "topics": ["T"]}, "two entities named 'T'"),
        ({"topics": {"t": "s"}}, "topic t: got 's', expected a list of subscriptions"),
        ({"topics": {"t": 5}}, "topic t: got 5"),
        ({"topics": [5]}, "5 is no topic"),
        ({"hubs": {"h": 0}}, "is no hub, expected a name, a HubConfig or the number of partitions"),
        ({"links": 20}, "links=20, expected LinkLimits"),
        ({"hubs": ["h", "H"]}, "two entities named 'H'"),
    ],
)
def test_a_mistake_in_a_mark_is_reported(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(pytest.UsageError) as error:
        namespaces_of([mark(**arguments)], Path())
    assert problem in str(error.value)


def test_a_namespace_without_declared_entities_creates_them() -> None:
    marks = [mark(queues=["q"]), mark(topics={"t": ["s"]})]
    service_bus, event_hubs = namespaces_of(marks, Path())
    assert (service_bus.on_demand, event_hubs.on_demand) == (None, OnDemand.HUBS)
    assert [queue.name for queue in service_bus.queues] == ["q"]
