"""Two namespaces with their administration, and the commands that change them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient
from typer.testing import CliRunner, Result

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig
from busway_broker.thread import RunningBroker
from cli.main import app
from shared.ends.service_bus.administration import administration_client

ROOT = Path(__file__).parents[2]
TASKS = (ROOT / "config/examples/all-active/tasks/all-active.yaml").read_text(encoding="utf-8")
CONNECTIONS = (ROOT / "config/examples/all-active/connections.yaml").read_text(encoding="utf-8")
TOPOLOGY = """
west: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
east: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
"""

SITES = ("west", "east")


class Pair:
    """Two namespaces, empty at first, and the commands that administer them."""

    def __init__(self, broker: RunningBroker, admin: RunningAdmin, folder: Path) -> None:
        self.broker, self.admin, self.folder = broker, admin, folder
        self.settings = {site.upper(): broker.connection_string(site) for site in SITES}
        self.options = ["--config", str(folder)]
        for site in SITES:
            self.options += ["--admin", f"{site}={admin.address(site)}"]

    def run(self, command: str, *options: str) -> Result:
        return CliRunner(env=self.settings).invoke(app, [command, *options, *self.options])

    def client(self, site: str) -> ServiceBusAdministrationClient:
        return administration_client(site.upper(), self.settings, address=self.admin.address(site))

    def clear(self) -> None:
        for site in SITES:
            client = self.client(site)
            for queue in client.list_queues():
                client.delete_queue(queue.name)
            for topic in client.list_topics():
                client.delete_topic(topic.name)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningBroker, RunningAdmin]]:
    with RunningBroker([NamespaceConfig(name=site) for site in SITES]) as broker, RunningAdmin(broker) as admin:
        yield broker, admin


@pytest.fixture
def pair(running: tuple[RunningBroker, RunningAdmin], tmp_path: Path) -> Iterator[Pair]:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/orders.yaml").write_text(TASKS)
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    pair = Pair(*running, tmp_path)
    yield pair
    pair.clear()
