"""`busway status` and the status function with a real host, the local broker and Azurite."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from busway_broker.config import EntityStatus, HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from cli.commands.schema import text
from cli.main import app
from tests.azurite import running_azurite
from tests.end_to_end.busway_process import BuswayProcess

pytestmark = pytest.mark.long

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
hubs: {kind: event-hubs, setting: HUBS}
"""
TASKS = """
task: orders
source: {connection: west, queue: orders, sessions: true}
lanes: 2
routes: [{target: {connection: east, queue: orders}}]
---
task: payments
source: {connection: west, queue: payments}
routes: [{target: {connection: east, queue: payments}}]
---
task: telemetry
source: {connection: hubs, hub: telemetry}
routes: [{target: {connection: east, queue: telemetry}}]
rejects: {connection: west, queue: rejected}
"""
SITES = [
    NamespaceConfig(
        name="west",
        queues=(
            QueueConfig(name="orders", requires_session=True),
            QueueConfig(name="payments"),
            QueueConfig(name="rejected"),
        ),
    ),
    NamespaceConfig(
        name="east",
        queues=(
            QueueConfig(name="orders", requires_session=True),
            QueueConfig(name="payments", status=EntityStatus.SEND_DISABLED),
            QueueConfig(name="telemetry"),
        ),
    ),
    NamespaceConfig(name="hubs", hubs=(HubConfig(name="telemetry", partition_count=2),)),
]
SECONDS = 60.0


class Site:
    """A running app with two namespaces and a hub, its folder, and its settings."""

    def __init__(self, folder: Path, settings: dict[str, str], url: str) -> None:
        self.folder = folder
        self.settings = settings
        self.url = url

    def status(self, *arguments: str, settings: dict[str, str] | None = None) -> Result:
        environment = {**self.settings, **(settings or {})}
        return CliRunner().invoke(app, ["status", *arguments, "--config", str(self.folder)], env=environment)

    def get(self, path: str) -> Any:
        """Return the open answer of the function."""
        return urlopen(self.url + path, timeout=30)  # noqa: S310 - of this machine

    def until(self, is_reached: Callable[[dict[str, Any]], bool]) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the tasks by name, once they are as expected."""
        end = time.monotonic() + SECONDS
        while True:
            result = self.status("--json")
            assert result.stderr == ""
            tasks = {each["task"]: each for each in json.loads(result.stdout)["tasks"]}
            if is_reached(tasks):
                return result.exit_code, tasks
            assert time.monotonic() < end, tasks
            time.sleep(2)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("status")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "all.yaml").write_text(TASKS)
    (folder / "journal.yaml").write_text("blob: {setting: AzureWebJobsStorage, container: journal}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_azurite(tmp_path_factory.mktemp("azurite")) as storage, RunningBroker(SITES) as broker:
        settings = {each.name.upper(): broker.connection_string(each.name) for each in SITES}
        settings |= {"AzureWebJobsStorage": storage, "BUSWAY_CONFIG": str(folder)}
        with BuswayProcess("host", "--http-port", str(port), settings=settings) as host:
            assert host.lines(1)[0].split()[0] == "ready"
            _send(settings)
            yield Site(folder, settings, f"http://127.0.0.1:{port}/api/status")


def _send(settings: dict[str, str]) -> None:
    with ServiceBusClient.from_connection_string(settings["WEST"]) as west:
        with west.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x", session_id=f"s{number % 3}") for number in range(6)])
        with west.get_queue_sender("payments") as sender:
            sender.send_messages([ServiceBusMessage("secret body") for _ in range(4)])
    with EventHubProducerClient.from_connection_string(settings["HUBS"], eventhub_name="telemetry") as producer:
        batch = producer.create_batch(partition_id="1")
        for _ in range(5):
            batch.add(EventData("x"))
        producer.send_batch(batch)


def test_a_disabled_target_holds_its_task_and_the_others_run(site: Site) -> None:
    code, tasks = site.until(
        lambda found: (
            found["payments"]["state"] == "held"
            and found["orders"]["last_hour"]["sent"] == 6
            and found["telemetry"]["last_hour"]["sent"] == 5
        )
    )
    held, orders, telemetry = tasks["payments"], tasks["orders"], tasks["telemetry"]
    assert code == 1
    assert (held["backlog"], held["in_hand"]) == (4, 4)
    assert held["lag"] > 0
    assert held["obstacles"][0]["place"] == "east/payments"
    assert "it is disabled" in held["reason"]
    assert (orders["backlog"], orders["lag"], orders["lanes"], orders["instances"]) == (0, 0.0, 2, 1)
    assert [(each["place"]["site"], each["messages"]) for each in orders["dead_letters"]] == [("west", 0), ("east", 0)]
    assert (telemetry["backlog"], telemetry["lag"], telemetry["dead_letters"][0]["place"]["site"]) == (0, 0.0, "east")


def test_the_table_says_what_needs_attention(site: Site) -> None:
    site.until(lambda found: found["payments"]["state"] == "held")
    result = site.status()
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0] == "1 of 3 tasks needs attention: payments is held."
    assert lines[3].split()[:3] == ["payments", "held", "4"]
    assert "payments is held for" in result.stdout
    assert max(map(len, lines)) <= 80
    alone = site.status("orders")
    assert (alone.exit_code, alone.stdout.count("\norders ")) == (0, 1)
    assert "payments" not in alone.stdout


def test_a_site_that_is_down_leaves_the_others_known(site: Site) -> None:
    site.until(lambda found: found["payments"]["state"] == "held")
    nowhere = "Endpoint=sb://localhost:9;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    started = time.monotonic()
    result = site.status("--json", "orders", "telemetry", settings={"WEST": nowhere})
    assert time.monotonic() - started < 15
    status = json.loads(result.stdout)
    assert (result.exit_code, status["health"]) == (2, "unknown")
    assert {each["site"]: each["reachable"] for each in status["sites"]} == {"west": False, "east": True, "hubs": True}
    orders, telemetry = status["tasks"]
    assert (orders["backlog"], orders["lag"]) == (None, None)
    assert "west/orders" in orders["unknown"]["backlog"]
    assert orders["last_hour"]["sent"] == 6
    assert telemetry["backlog"] == 0


def test_a_storage_account_that_is_down_leaves_the_backlogs_known(site: Site) -> None:
    broken = (
        site.settings["AzureWebJobsStorage"].replace("127.0.0.1", "localhost").rsplit(":", 1)[0]
        + ":9/devstoreaccount1;"
    )
    result = site.status("--json", "payments", settings={"AzureWebJobsStorage": broken})
    status = json.loads(result.stdout)
    assert result.exit_code == 2
    assert status["instances"] is None
    (payments,) = status["tasks"]
    assert (payments["backlog"], payments["rate"]) == (4, None)
    assert "the storage account cannot be reached" in payments["unknown"]["rate"]


def test_the_function_serves_what_the_command_prints_and_changes_nothing(site: Site) -> None:
    site.until(lambda found: found["payments"]["state"] == "held")
    validator = Draft202012Validator(json.loads(text("status")))
    for path in ("/json", "/history?hours=1"):
        with site.get(path) as answer:
            assert answer.headers["Cache-Control"] == "no-store"
            found = json.load(answer)
        validator.validate(found)
    assert sum(point["sent"] for point in found["tasks"]["orders"]) == 6
    with site.get("") as answer:
        assert "default-src 'none'; script-src 'sha256-" in answer.headers["Content-Security-Policy"]
        assert answer.read().decode().startswith("<!doctype html>")
    with site.get("/json") as answer:
        assert "secret body" not in answer.read().decode()


@pytest.mark.parametrize(("path", "code"), [("/history?hours=0", 400), ("/history?hours=x", 400), ("/other", 404)])
def test_another_request_is_refused_with_the_reason(site: Site, path: str, code: int) -> None:
    with pytest.raises(HTTPError) as error:
        site.get(path)
    assert error.value.code == code
    assert "expected" in json.loads(error.value.read())["error"]


def test_an_instance_writes_one_blob_for_all_its_tasks_beside_the_journal(site: Site) -> None:
    site.until(lambda found: found["orders"]["last_hour"]["sent"] == 6)
    with ContainerClient.from_connection_string(site.settings["AzureWebJobsStorage"], "journal-status") as container:
        found = list(container.list_blobs(name_starts_with="instances/"))
        assert len(found) == 1
        assert found[0].size < 4000
        assert {each["task"] for each in json.loads(container.download_blob(found[0].name).readall())["tasks"]} == {
            "orders",
            "payments",
            "telemetry",
        }
