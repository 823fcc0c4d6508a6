"""Two namespaces on the local broker, for the modules that use it."""

from typing import Any

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.clients.endpoints.following import SITES, Register


@pytest.fixture(scope="module")
def broker_namespaces() -> list[Any]:
    queues = (QueueConfig(name="orders"), QueueConfig(name="sessions", requires_session=True))
    return [NamespaceConfig(name=site, queues=queues) for site in SITES]


@pytest.fixture
def register(broker: RunningBroker) -> Register:
    return Register(broker)
