"""
Messages go through a storage queue and through Event Grid, to which the app signs in with its identity, and the nightly
job reconciles all four tasks.

The SDKs get their tokens from a managed identity's endpoint and find Azurite and the local Event Grid over TLS. `busway
trace` shows both hops. It takes a minute, so only `make faults` runs it.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueServiceClient

from busway_broker.admin.certificate import SERVER_FILE, server_context
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from cli.local_services.event_grid import EventGrid, Subscription
from cli.spark import check_spark, run_job
from tests.azurite import running_azurite, running_queues
from tests.end_to_end.busway_process import BuswayProcess
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.event_grid_thread import RunningGrid
from tests.vault import Vault

pytestmark = pytest.mark.slow

MESSAGES = 100
CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
store: {kind: storage-queue, setting: STORE}
grid: {kind: event-grid, setting: GRID}
east: {kind: service-bus, setting: EAST}
"""
TASKS = """\
task: to-store
source: {connection: west, queue: orders}
routes: [{target: {connection: store, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: from-store
source: {connection: store, queue: orders}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: east, queue: rejected}
---
task: to-grid
source: {connection: west, queue: alarms}
routes: [{target: {connection: grid, topic: alarms}}]
rejects: {connection: west, queue: rejected}
---
task: from-grid
source: {connection: grid, webhook: alarms}
routes: [{target: {connection: east, queue: alarms}}]
rejects: {connection: east, queue: rejected}
"""
NAMES = ("orders", "alarms", "rejected")
SITES = [
    NamespaceConfig(name=site, queues=tuple(QueueConfig(name=each) for each in NAMES)) for site in ("west", "east")
]
GRID_RESOURCE = "https://eventgrid.azure.net"


def test_a_night_through_both_with_an_identity_is_clean_and_traced(tmp_path: Path) -> None:
    check_spark()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "journal.yaml").write_text("blob: {setting: JOURNAL}\n")
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    begun = datetime.now(UTC)
    context = server_context(tmp_path)
    with (
        Vault(tmp_path) as identity,
        RunningBroker(SITES) as broker,
        running_azurite(tmp_path) as storage,
        running_queues(tmp_path, tmp_path / SERVER_FILE) as account,
        RunningGrid(
            EventGrid("unused", tls=context, takes_token=lambda token: identity.tokens.get(token) == GRID_RESOURCE)
        ) as running,
    ):
        with QueueServiceClient.from_connection_string(account, connection_verify=identity.authority) as service:
            service.create_queue("orders")
        settings = {
            "BUSWAY_CONFIG": str(tmp_path),
            "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
            "WEST": broker.connection_string("west"),
            "EAST": broker.connection_string("east"),
            "STORE__queueServiceUri": account.split("QueueEndpoint=")[1].rstrip(";"),
            "GRID__topicEndpointUri": running.grid.address,
            "JOURNAL": storage,
            "SSL_CERT_FILE": identity.authority,
            "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
            **identity.identity(),
        }
        subscription = Subscription("")
        with HostProcess(str(ROOT), tmp_path, settings) as host:
            host.wait_until_ready(60)
            subscription.endpoint = f"http://127.0.0.1:{host.http_port}/api/events/alarms"
            running.subscribe("alarms", subscription)
            for queue in ("orders", "alarms"):
                send(settings["WEST"], queue, range(MESSAGES))
                host.wait_for(partial(have_arrived, broker, queue))
            assert host.stop(30) == 0
        assert set(identity.tokens.values()) >= {GRID_RESOURCE, "https://storage.azure.com"}
        out = tmp_path / "out"
        url = ContainerClient.from_connection_string(storage, "journal").url
        start = begun.replace(minute=0, second=0, microsecond=0)
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        hours = ["--start", start.strftime("%Y-%m-%dT%H"), "--end", end.strftime("%Y-%m-%dT%H")]
        code = run_job(url, out, [*hours, "--grace-minutes", "0", "--writers-stopped", "--memory", "1g"], storage)
        traces = {name: traced(name, tmp_path, settings) for name in ("orders-7", "alarms-7")}
    (summary,) = (json.loads(path.read_text()) for path in out.glob("runs/*/summary.json"))
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert {task["task"]: task["verdicts"] for task in summary["tasks"]} == {
        task: {"delivered": MESSAGES} for task in ("to-store", "from-store", "to-grid", "from-grid")
    }
    for name, place in (("orders-7", "store/orders"), ("alarms-7", "grid/alarms")):
        assert place in traces[name]
        assert "east/" in traces[name]


def send(connection_string: str, queue: str, numbers: Sequence[int]) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(b"%d" % each, message_id=f"{queue}-{each}") for each in numbers])


def have_arrived(broker: RunningBroker, queue: str) -> bool:
    return broker.inspect("east", lambda east: sum(1 for _ in east.store(queue).peek(0))) >= MESSAGES


def traced(name: str, folder: Path, settings: dict[str, str]) -> str:
    with BuswayProcess("trace", name, folder=folder, settings=settings) as tracing:
        code, out, errors = tracing.result(60)
    assert code == 0, errors
    return out
