"""The tests for live namespaces on the local broker: that they test something, and that the broker agrees with them."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker

_PATH = Path(__file__).parents[2] / "tests/azure" / "test_what_service_bus_does.py"
_spec = importlib.util.spec_from_file_location("what_service_bus_does", _PATH)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

TESTS = [test for name, test in vars(_module).items() if name.startswith("test_")]


@pytest.fixture(scope="module")
def west() -> Iterator[str]:
    queues = (QueueConfig(name=_module.QUEUE), QueueConfig(name=_module.SESSIONS, requires_session=True))
    with RunningBroker([NamespaceConfig(name="west", queues=queues)]) as broker:
        yield broker.connection_string("west")


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_the_broker_agrees(test: Callable[[str], None], west: str) -> None:
    test(west)
