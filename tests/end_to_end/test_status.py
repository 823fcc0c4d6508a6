"""`busway status` and the status function with a real host, the local broker and Azurite."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusMessage
from azure.storage.blob import ContainerClient
from jsonschema import Draft202012Validator
from typer.testing import Result

from cli.commands.schema import text
from tests.site import Site

pytestmark = pytest.mark.long

ENTITIES = """
west: {queues: {orders: {requires_session: true}, payments: , rejected: }}
east: {queues: {orders: {requires_session: true}, payments: {status: SendDisabled}, telemetry: }}
hubs: {hubs: {telemetry: {partition_count: 2}}}
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


class StatusSite(Site):
    """A running app with two namespaces and a hub; *url* is that of its function."""

    url = ""

    def status(self, *arguments: str, **settings: str) -> Result:
        return self.run("status", *arguments, **settings)

    def get(self, path: str) -> Any:
        """Return the open answer of the function."""
        return urlopen(self.url + path, timeout=30)  # noqa: S310 - of this machine


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[StatusSite]:
    folder = tmp_path_factory.mktemp("status")
    with StatusSite(folder, ENTITIES, TASKS, storage=storage) as site, site.running_host() as host:
        site.url = f"http://127.0.0.1:{host.http_port}/api/status"
        site.send("west/orders", *(ServiceBusMessage("x", session_id=f"s{number % 3}") for number in range(6)))
        site.send("west/payments", *["secret body"] * 4)
        site.publish_events("hubs/telemetry", *["x"] * 5, partition_id="1")
        yield site


def test_a_disabled_target_holds_its_task_and_the_others_run(site: StatusSite) -> None:
    tasks = site.statuses(
        lambda found: (
            found["payments"]["state"] == "held"
            and found["orders"]["last_hour"]["sent"] == 6
            and found["telemetry"]["last_hour"]["sent"] == 5
        ),
        code=1,
    )
    held, orders, telemetry = tasks["payments"], tasks["orders"], tasks["telemetry"]
    assert (held["backlog"], held["in_hand"]) == (4, 4)
    assert held["lag"] > 0
    assert held["obstacles"][0]["place"] == "east/payments"
    assert "it is disabled" in held["reason"]
    assert (orders["backlog"], orders["lag"], orders["lanes"], orders["instances"]) == (0, 0.0, 2, 1)
    assert [(each["place"]["site"], each["messages"]) for each in orders["dead_letters"]] == [("west", 0), ("east", 0)]
    assert (telemetry["backlog"], telemetry["lag"], telemetry["dead_letters"][0]["place"]["site"]) == (0, 0.0, "east")


def test_the_table_says_what_needs_attention(site: StatusSite) -> None:
    site.statuses(lambda found: found["payments"]["state"] == "held")
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


def test_a_site_that_is_down_leaves_the_others_known(site: StatusSite) -> None:
    site.statuses(lambda found: found["payments"]["state"] == "held")
    nowhere = "Endpoint=sb://localhost:9;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    started = time.monotonic()
    result = site.status("--json", "orders", "telemetry", WEST=nowhere)
    assert time.monotonic() - started < 15
    status = json.loads(result.stdout)
    assert (result.exit_code, status["health"]) == (2, "unknown")
    assert {each["site"]: each["reachable"] for each in status["sites"]} == {"west": False, "east": True, "hubs": True}
    orders, telemetry = status["tasks"]
    assert (orders["backlog"], orders["lag"]) == (None, None)
    assert "west/orders" in orders["unknown"]["backlog"]
    assert orders["last_hour"]["sent"] == 6
    assert telemetry["backlog"] == 0


def test_a_storage_account_that_is_down_leaves_the_backlogs_known(site: StatusSite) -> None:
    broken = re.sub(r"127\.0\.0\.1:\d+", "localhost:9", site.settings["AzureWebJobsStorage"])
    result = site.status("--json", "payments", AzureWebJobsStorage=broken)
    status = json.loads(result.stdout)
    assert result.exit_code == 2
    assert status["instances"] is None
    (payments,) = status["tasks"]
    assert (payments["backlog"], payments["rate"]) == (4, None)
    assert "the storage account cannot be reached" in payments["unknown"]["rate"]


def test_the_function_serves_what_the_command_prints_and_changes_nothing(site: StatusSite) -> None:
    site.statuses(lambda found: found["payments"]["state"] == "held")
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
def test_another_request_is_refused_with_the_reason(site: StatusSite, path: str, code: int) -> None:
    with pytest.raises(HTTPError) as error:
        site.get(path)
    assert error.value.code == code
    assert "expected" in json.loads(error.value.read())["error"]


def test_an_instance_writes_one_blob_for_all_its_tasks_beside_the_journal(site: StatusSite) -> None:
    site.statuses(lambda found: found["orders"]["last_hour"]["sent"] == 6)
    with ContainerClient.from_connection_string(site.settings["AzureWebJobsStorage"], "journal-status") as container:
        found = list(container.list_blobs(name_starts_with="instances/"))
        assert len(found) == 1
        assert found[0].size < 4000
        assert {each["task"] for each in json.loads(container.download_blob(found[0].name).readall())["tasks"]} == {
            "orders",
            "payments",
            "telemetry",
        }
