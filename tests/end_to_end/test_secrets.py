"""The function app of this repository in the host, with a target whose connection string is in a key vault."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.vault import Vault

WEST = NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))
EAST = NamespaceConfig(
    name="east",
    queues=(QueueConfig(name="copies"),),
    shared_access_keys=(SharedAccessKey(name="Root", key="the-key-of-today"),),
)
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, secret: east-connection}
"""
TASK = """
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: copies}}]
"""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([WEST, EAST]) as running:
        yield running


def connection_string(broker: RunningBroker, key: str) -> str:
    where = f"Endpoint=sb://localhost:{broker.port('east')};SharedAccessKeyName=Root;SharedAccessKey={key}"
    return f"{where};UseDevelopmentEmulator=true"


def send(broker: RunningBroker, *bodies: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("west")) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def test_the_running_app_uses_a_rotated_secret(broker: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "tasks" / "orders.yaml").write_text(TASK)
    with Vault(tmp_path / "certificate") as vault:
        vault.set("east-connection", connection_string(broker, "the-key-of-yesterday"))
        settings = {
            "BUSWAY_CONFIG": str(tmp_path),
            "BUSWAY_KEY_VAULT": vault.url,
            "WEST": broker.connection_string("west"),
            "SSL_CERT_FILE": vault.authority,
            **vault.identity(),
        }
        with HostProcess(str(ROOT), tmp_path, settings) as host:
            host.wait_until_ready()
            send(broker, "one", "two")
            host.wait_for(lambda: "east/copies: the target refuses to take messages" in host.log())
            assert broker.counts("east")["copies"].active == 0
            vault.set("east-connection", connection_string(broker, "the-key-of-today"))
            host.wait_for(lambda: broker.counts("east")["copies"].active == 2, 40)
            send(broker, "three")
            host.wait_for(lambda: broker.counts("east")["copies"].active == 3)
            assert host.stop() == 0
            log = host.log()
    assert "reconnecting, secret east-connection has a new version" in log
    assert not re.search("the-key-of|SharedAccessKey=", log)
