"""The broker of broker/tests, for tests that use entities of it, and a storage account."""

from collections.abc import Iterator

import pytest

from broker.tests.conftest import _impatient_clients, broker, bus, client, entity, publish, receive, take
from tests.azurite import running_azurite

__all__ = ["_impatient_clients", "broker", "bus", "client", "entity", "publish", "receive", "take"]


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the connection string of an account, where each test has containers of its own."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as connection_string:
        yield connection_string
