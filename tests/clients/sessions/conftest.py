import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from busway_broker.thread import RunningBroker
from busway_clients.aio.sessions import SqliteStore as AsyncSqliteStore
from busway_clients.aio.tables import TableStore as AsyncTableStore
from busway_clients.sessions import SqliteStore
from busway_clients.tables import TableStore
from tests.azurite import table_account
from tests.clients.conftest import fresh
from tests.clients.sessions.consumers import Regions
from tests.clients.sessions.region import OPENED, closed_after

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _closed_stores() -> Iterator[Any]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture(scope="module")
def tables() -> str:
    return table_account()


@pytest.fixture
def table(tables: Any) -> Any:
    """Return connection string and name of a table that no other test uses."""
    return tables, f"journal{next(_numbers)}"


@pytest.fixture
def table_store(table: tuple[str, str]) -> TableStore:
    return closed_after(TableStore.from_connection_string(*table))


class Synchronous:
    """An awaited store as the contract's tests call it."""

    def __init__(self, make: Any) -> None:
        self.runner = asyncio.Runner()

        async def made() -> Any:
            return make()

        self.store = self.runner.run(made())
        self.name = self.store.name

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.store, name)
        return lambda *arguments, **options: self.runner.run(asked(*arguments, **options))

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()


@pytest.fixture(params=["tables", "sqlite", "tables awaited", "sqlite awaited"])
def store(request: pytest.FixtureRequest, table: tuple[str, str], tmp_path: Path) -> Any:
    stores: dict[str, Callable[[], Any]] = {
        "tables": lambda: TableStore.from_connection_string(*table),
        "sqlite": lambda: SqliteStore(tmp_path / "journal.db"),
        "tables awaited": lambda: Synchronous(lambda: AsyncTableStore.from_connection_string(*table)),
        "sqlite awaited": lambda: Synchronous(lambda: AsyncSqliteStore(tmp_path / "journal.db")),
    }
    made = closed_after(stores[request.param]())
    made.open()
    return made


@pytest.fixture
def regions(shared_broker: RunningBroker) -> Iterator[Regions]:
    """Return both namespaces."""
    clients = {
        site: ServiceBusClient.from_connection_string(shared_broker.connection_string(site), retry_total=0)
        for site in ("west", "east")
    }
    yield Regions(shared_broker, clients, fresh())
    for client in clients.values():
        client.close()
