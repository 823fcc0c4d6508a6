"""The broker of broker/tests, for tests that use entities of it, and a storage account."""

import pytest

from broker.tests.conftest import (
    _impatient_clients,
    broker,
    bus,
    client,
    entity,
    publish,
    receive,
    running_broker,
    shared_broker,
    take,
)
from tests.azurite import blob_account

__all__ = [
    "_impatient_clients",
    "broker",
    "bus",
    "client",
    "entity",
    "publish",
    "receive",
    "running_broker",
    "shared_broker",
    "take",
]


@pytest.fixture(scope="session")
def storage() -> str:
    """Return the connection string of an account, where each test has containers of its own."""
    return blob_account()
