"""
Messages go through a storage queue and through Event Grid, to which the app signs in with its identity, and the nightly
job reconciles all four tasks.

The SDKs get their tokens from a managed identity's endpoint and find Azurite and the local Event Grid over TLS. `busway
trace` shows both hops. It takes a minute, so only `make faults` runs it.
"""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.storage.queue import QueueServiceClient

from busway_broker.admin.certificate import SERVER_FILE, server_context
from cli.local_services.event_grid import EventGrid, Subscription
from cli.spark import check_spark
from tests.azurite import running_azurite, running_queues
from tests.event_grid_thread import RunningGrid
from tests.faults.night import reconciled
from tests.site import Site
from tests.vault import Vault

pytestmark = pytest.mark.slow

MESSAGES = 100
ENTITIES = "{west: {queues: [orders, alarms, rejected]}, east: {queues: [orders, alarms, rejected]}}"
MORE = "store: {kind: storage-queue, setting: STORE}\ngrid: {kind: event-grid, setting: GRID}"
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
GRID_RESOURCE = "https://eventgrid.azure.net"


def test_a_night_through_both_with_an_identity_is_clean_and_traced(tmp_path: Path) -> None:
    check_spark()
    begun = datetime.now(UTC)
    context = server_context(tmp_path)
    with (
        Vault(tmp_path) as identity,
        running_azurite(tmp_path) as storage,
        running_queues(tmp_path, tmp_path / SERVER_FILE) as account,
        RunningGrid(
            EventGrid("unused", tls=context, takes_token=lambda token: identity.tokens.get(token) == GRID_RESOURCE)
        ) as running,
        Site(tmp_path, ENTITIES, TASKS, more=MORE, storage=storage, settings=identity.identity()) as site,
    ):
        with QueueServiceClient.from_connection_string(account, connection_verify=identity.authority) as service:
            service.create_queue("orders")
        site.settings |= {
            "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
            "STORE__queueServiceUri": account.split("QueueEndpoint=")[1].rstrip(";"),
            "GRID__topicEndpointUri": running.grid.address,
            "SSL_CERT_FILE": identity.authority,
            "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
        }
        subscription = Subscription("")
        with site.running_host() as host:
            subscription.endpoint = f"http://127.0.0.1:{host.http_port}/api/events/alarms"
            running.subscribe("alarms", subscription)
            for queue in ("orders", "alarms"):
                messages = (ServiceBusMessage(b"%d" % n, message_id=f"{queue}-{n}") for n in range(MESSAGES))
                site.send(f"west/{queue}", *messages)
                host.wait_for(partial(has_all, site, queue))
        assert set(identity.tokens.values()) >= {GRID_RESOURCE, "https://storage.azure.com"}
        code, summary = reconciled(storage, tmp_path / "out", begun)
        traces = {name: site.run("trace", name).stdout for name in ("orders-7", "alarms-7")}
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert {task["task"]: task["verdicts"] for task in summary["tasks"]} == {
        task: {"delivered": MESSAGES} for task in ("to-store", "from-store", "to-grid", "from-grid")
    }
    for name, place in (("orders-7", "store/orders"), ("alarms-7", "grid/alarms")):
        assert place in traces[name]
        assert "east/" in traces[name]


def has_all(site: Site, queue: str) -> bool:
    return site.active(f"east/{queue}") >= MESSAGES
