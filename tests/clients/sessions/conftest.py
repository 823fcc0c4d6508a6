import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.thread import RunningBroker
from busway_clients.aio.sessions import SqliteStore as AsyncSqliteStore
from busway_clients.aio.sessions.tables import TableStore as AsyncTableStore
from busway_clients.sessions import SqliteStore
from busway_clients.sessions.tables import TableStore
from tests.azurite import running_tables
from tests.clients.sessions.region import OPENED

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _closed_stores() -> Iterator[Any]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_tables(tmp_path_factory.mktemp("azurite")) as connection_string:
        yield connection_string


@pytest.fixture
def table(tables: Any) -> Any:
    """Return connection string and name of a table that no other test uses."""
    return tables, f"journal{next(_numbers)}"


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
        return lambda *arguments: self.runner.run(asked(*arguments))

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
    made = stores[request.param]()
    made.open()
    OPENED.append(made)
    return made


@pytest.fixture
def clients(regions: RunningBroker) -> Iterator[Any]:
    made = {
        site: ServiceBusClient.from_connection_string(regions.connection_string(site), retry_total=0)
        for site in ("west", "east")
    }
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def send(clients: dict[str, ServiceBusClient]) -> Callable[..., None]:
    """Send messages with these ids to queues of both sites, each session's in order."""

    def to_both(
        queue: str, ids: Iterable[str], session: str | None = None, sites: Iterable[str] = ("west", "east")
    ) -> None:
        for site in sites:
            with clients[site].get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(name, message_id=name, session_id=session) for name in ids])

    return to_both
