"""`busway pause` and `resume` under traffic: a real host, the local broker, its administration and Azurite."""

import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from azure.storage.blob import ContainerClient
from typer.testing import CliRunner, Result

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from cli.first_hour.__main__ import app as first_hour
from cli.main import app
from shared.ends.service_bus.administration import administration_client
from tests.azurite import running_azurite
from tests.end_to_end.busway_process import BuswayProcess

# azure-servicebus tests the truth value of XML elements.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning"),
]

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
---
task: dead
source: {connection: west, queue: rejected, dead_letter: true}
routes: [{target: {connection: east, queue: payments}}]
rejects: {connection: west, queue: rejected}
"""
QUEUES = ("orders", "payments", "telemetry")
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
            QueueConfig(name="orders"),
            QueueConfig(name="payments"),
            QueueConfig(name="telemetry"),
        ),
    ),
    NamespaceConfig(name="hubs", hubs=(HubConfig(name="telemetry", partition_count=2),)),
]
SESSIONS = 3
SECONDS = 60.0


@dataclass
class Site:
    """A running app with two namespaces and a hub."""

    folder: Path
    broker: RunningBroker
    admin: RunningAdmin
    settings: dict[str, str]
    sent: Counter[str] = field(default_factory=Counter)

    def run(self, *arguments: str) -> Result:
        options = ["--config", str(self.folder)]
        if arguments[0] != "status":
            options += ["--admin", f"west={self.admin.address('west')}"]
        return CliRunner(env=self.settings).invoke(app, [*arguments, *options])

    def status(self) -> dict[str, Any]:
        return {each["task"]: each for each in json.loads(self.run("status", "--json").stdout)["tasks"]}

    def client(self) -> ServiceBusAdministrationClient:
        return administration_client("WEST", self.settings, address=self.admin.address("west"))

    def entity_status(self, queue: str) -> str:
        with self.client() as client:
            return str(getattr(client.get_queue(queue).status, "value", client.get_queue(queue).status))

    def control(self, task: str) -> dict[str, Any]:
        with ContainerClient.from_connection_string(
            self.settings["AzureWebJobsStorage"], "journal-status"
        ) as container:
            found: dict[str, Any] = json.loads(container.download_blob(f"control/{task}.json").readall())
            return found

    def arrived(self) -> dict[str, int]:
        counts = self.broker.counts("east")
        return {queue: counts[queue].active for queue in QUEUES}

    def until_all_arrived(self) -> None:
        end = time.monotonic() + SECONDS
        while self.arrived() != dict(self.sent):
            assert time.monotonic() < end, (self.arrived(), self.sent)
            time.sleep(0.2)

    def send(self, stop: threading.Event, pause: float) -> None:
        """Send a message of each kind every *pause* seconds, until *stop*; its body is its number."""
        with (
            ServiceBusClient.from_connection_string(self.settings["WEST"]) as west,
            west.get_queue_sender("orders") as orders,
            west.get_queue_sender("payments") as payments,
            EventHubProducerClient.from_connection_string(self.settings["HUBS"], eventhub_name="telemetry") as hub,
        ):
            while True:
                number = self.sent["orders"]
                orders.send_messages(ServiceBusMessage(str(number), session_id=f"s{number % SESSIONS}"))
                payments.send_messages(ServiceBusMessage(str(number)))
                batch = hub.create_batch(partition_id=str(number % 2))
                batch.add(EventData(str(number)))
                hub.send_batch(batch)
                self.sent.update(QUEUES)
                if stop.wait(pause):
                    return

    def numbers(self, queue: str) -> list[tuple[str | None, int]]:
        """Return session and number of all messages that have arrived, in the order of the queue."""
        with (
            ServiceBusClient.from_connection_string(self.settings["EAST"]) as east,
            east.get_queue_receiver(queue) as receiver,
        ):
            found: list[tuple[str | None, int]] = []
            while some := receiver.peek_messages(250, sequence_number=len(found) + 1):
                found += [(each.session_id, int(str(each))) for each in some]
            return found

    def locked(self) -> tuple[int, int]:
        """Return the number of locked sessions of orders, and of locked messages of payments."""
        return self.broker.inspect(
            "west",
            lambda west: (len(west.store("orders")._held), len(west.store("payments")._locks)),  # type: ignore[attr-defined] # a store with sessions
        )

    def delivery_counts(self, queue: str) -> Counter[int]:
        """Return how many messages wait at the source, by the attempts that they have lost."""
        return self.broker.inspect(
            "west", lambda west: Counter(each.delivery_count for each in west.store(queue).messages.values())
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("pause")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "all.yaml").write_text(TASKS)
    (folder / "journal.yaml").write_text("blob: {setting: AzureWebJobsStorage, container: journal}\n")
    with (
        running_azurite(tmp_path_factory.mktemp("azurite")) as storage,
        RunningBroker(SITES) as broker,
        RunningAdmin(broker) as admin,
    ):
        settings = {each.name.upper(): broker.connection_string(each.name) for each in SITES}
        settings |= {"AzureWebJobsStorage": storage, "BUSWAY_CONFIG": str(folder)}
        with BuswayProcess("host", settings=settings) as host:
            assert host.lines(1)[0].split()[0] == "ready"
            yield Site(folder, broker, admin, settings)


def test_a_pause_under_traffic_locks_loses_and_doubles_nothing(site: Site) -> None:
    tasks = ("orders", "payments", "telemetry")
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(site.send, stop, 0.05)
        try:
            while not all(site.arrived().values()):
                assert not sending.done()
                time.sleep(0.2)
            closing = ("--close-source", "--reason", "east is moved", "--by", "ops")
            result = site.run("pause", *tasks, *closing, "--yes")
            assert (result.exit_code, result.stderr) == (0, "")
            east = f"--admin=east={site.admin.address('east')}"
            shown = site.run("evacuate", "west/orders", "--to", "east", east)
            assert "  the task orders is paused" in shown.stdout
            arrived = site.arrived()
            time.sleep(3)
            assert site.arrived() == arrived
        finally:
            stop.set()
        sending.result()
    assert site.locked() == (0, 0)
    # A batch that was delivered after the order was given back unsent, once.
    for queue in ("orders", "payments"):
        counts = site.delivery_counts(queue)
        assert sum(counts.values()) == site.sent[queue] - arrived[queue] > 0
        assert set(counts) <= {0, 1}
        assert counts[0] > counts[1]
        assert site.entity_status(queue) == "ReceiveDisabled"
    status = site.status()
    for task in tasks:
        assert (status[task]["state"], status[task]["in_hand"]) == ("paused", 0)
        assert status[task]["reason"] == "paused by ops: east is moved"
    table = site.run("status").stdout
    assert re.search("(?:(?:orders|payments|telemetry)(?:, | )){3}are paused for", table)  # the longest backlog first
    assert max(map(len, table.splitlines())) <= 80

    first = site.control("orders")
    assert site.run("pause", "orders", "--close-source", "--by", "someone else", "--wait", "0", "--yes").exit_code == 0
    assert site.control("orders") == first

    result = site.run("resume", *tasks, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    site.until_all_arrived()
    assert {site.entity_status(queue) for queue in ("orders", "payments")} == {"Active"}
    assert {task: site.status()[task]["state"] for task in tasks} == dict.fromkeys(tasks, "running")
    for queue in QUEUES:
        found = site.numbers(queue)
        assert sorted(number for _, number in found) == list(range(site.sent[queue]))
    by_session = defaultdict(list)
    for session, number in site.numbers("orders"):
        by_session[session].append(number)
    assert len(by_session) == SESSIONS
    assert all(numbers == sorted(numbers) for numbers in by_session.values())
    assert site.broker.counts("west")["payments"].dead_lettered == 0
    assert site.run("resume", "orders", "--yes").stdout == "orders: is not paused\n"


def test_a_pause_touches_neither_the_source_nor_its_senders(site: Site) -> None:
    sent = site.sent["payments"]
    result = site.run("pause", "payments", "dead", "--by", "ops", "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert " --settings BUSWAY_OFF_payments=true\n" in result.stdout
    assert site.entity_status("payments") == "Active"
    site.send(_stopped(), 0)
    time.sleep(2)
    assert site.arrived()["payments"] == sent
    assert site.status()["payments"]["state"] == "paused"
    resumed = site.run("resume", "payments", "dead", "--yes")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    site.until_all_arrived()
    assert site.broker.counts("west")["payments"].dead_lettered == 0


def _stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_the_script_of_the_first_hour_runs_here_as_far_as_it_goes(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    steps = [f"--only={number}" for number in (1, 4, 5, 8, 9, 10)]
    admin = [f"--admin={name}={site.admin.address(name)}" for name in ("west", "east")]
    quick = ["--minute=0.05", "--messages=40", f"--config={site.folder}", f"--out={out}"]
    result = CliRunner(env=site.settings).invoke(first_hour, [*steps, *admin, *quick])
    assert result.exit_code == 0, result.output
    answers = {each["number"]: each for each in json.loads(out.read_text())["answers"]}
    assert {number: each["verdict"] for number, each in answers.items()} == {
        1: "not tried", 4: "as expected", 5: "as expected", 8: "as expected", 9: "not tried", 10: "as expected",
    }  # fmt: skip
    assert [line.split(", ")[0] for line in answers[5]["lines"][::2]] == [
        "orders (with sessions)", "payments (without sessions)",
    ]  # fmt: skip
    assert answers[8]["lines"] == ["100 of 100 accepted"]
    assert "20 of 20 waited with up to 0 deliveries" in answers[10]["lines"]
    # What the steps have switched off is on again, and nothing secret is in what is sent back.
    assert site.entity_status("orders") == "Active"
    with administration_client("EAST", site.settings, address=site.admin.address("east")) as east:
        assert str(east.get_queue("payments").status).rpartition(".")[2].lower() == "active"
    assert "SharedAccessKey" not in out.read_text()
