"""`busway pause` and `resume` under traffic: a real host, the local broker, its administration and Azurite."""

import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.storage.blob import ContainerClient
from typer.testing import CliRunner

from busway_broker.faults import Effect, Fault, Operation
from cli.first_hour.__main__ import app as first_hour
from tests.site import Site, until

# azure-servicebus tests the truth value of XML elements.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning"),
]

ENTITIES = """
west: {queues: {orders: {requires_session: true}, payments: , rejected: }}
east: {queues: [orders, payments, telemetry]}
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
---
task: dead
source: {connection: west, queue: rejected, dead_letter: true}
routes: [{target: {connection: east, queue: payments}}]
rejects: {connection: west, queue: rejected}
"""
QUEUES = ("orders", "payments", "telemetry")
SESSIONS = 3


class PausedSite(Site):
    """A running app with two namespaces and a hub, and how many messages of each queue were sent."""

    def __init__(self, folder: Path, storage: str) -> None:
        super().__init__(folder, ENTITIES, TASKS, storage=storage, has_admin=True)
        self.sent: Counter[str] = Counter()

    def entity_status(self, queue: str) -> str:
        with self.administrator("west") as client:
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
        until(lambda: self.arrived() == dict(self.sent), text=lambda: (self.arrived(), self.sent))

    def keep_sending(self, stop: threading.Event, pause: float) -> None:
        """Send a message of each kind every *pause* seconds, until *stop*; its body is its number."""
        while True:
            number = self.sent["orders"]
            self.send("west/orders", ServiceBusMessage(str(number), session_id=f"s{number % SESSIONS}"))
            self.send("west/payments", str(number))
            self.publish_events("hubs/telemetry", str(number), partition_id=str(number % 2))
            self.sent.update(QUEUES)
            if stop.wait(pause):
                return

    def numbers(self, queue: str) -> list[tuple[str | None, int]]:
        """Return session and number of all messages that have arrived, in the order of the queue."""
        return [(message.session_id, int(message.body or b"")) for message in self.there(f"east/{queue}")]

    def locked(self) -> tuple[int, int]:
        """Return the number of locked sessions of orders, and of locked messages of payments."""
        return self.broker.inspect(
            "west",
            lambda west: (len(west.store("orders")._held), len(west.store("payments")._locks)),  # type: ignore[attr-defined] # a store with sessions
        )

    def delivery_counts(self, queue: str) -> Counter[int]:
        """Return how many messages wait at the source, by the attempts that they have lost."""
        return self.broker.inspect(
            "west", lambda west: Counter(message.delivery_count for message in west.store(queue).messages.values())
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, storage: str) -> Iterator[PausedSite]:
    with PausedSite(tmp_path_factory.mktemp("pause"), storage) as site, site.running_host():
        yield site


def test_a_pause_under_traffic_locks_loses_and_doubles_nothing(site: PausedSite) -> None:
    tasks = ("orders", "payments", "telemetry")
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(site.keep_sending, stop, 0.05)
        try:
            while not all(site.arrived().values()):
                assert not sending.done()
                time.sleep(0.2)
            closing = ("--close-source", "--reason", "east is moved", "--by", "ops")
            result = site.run("pause", *tasks, *closing, "--yes")
            assert (result.exit_code, result.stderr) == (0, "")
            shown = site.run("evacuate", "west/orders", "--to", "east")
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
    status = site.statuses()
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
    assert {task: site.statuses()[task]["state"] for task in tasks} == dict.fromkeys(tasks, "running")
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


def test_a_pause_touches_neither_the_source_nor_its_senders(site: PausedSite) -> None:
    sent = site.sent["payments"]
    result = site.run("pause", "payments", "dead", "--by", "ops", "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert " --settings BUSWAY_OFF_payments=true\n" in result.stdout
    assert site.entity_status("payments") == "Active"
    site.keep_sending(_stopped(), 0)
    time.sleep(2)
    assert site.arrived()["payments"] == sent
    assert site.statuses()["payments"]["state"] == "paused"
    resumed = site.run("resume", "payments", "dead", "--yes")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    site.until_all_arrived()
    assert site.broker.counts("west")["payments"].dead_lettered == 0


def test_a_closed_source_that_refuses_settlements_loses_and_doubles_nothing(site: PausedSite) -> None:
    """SS10: completing and abandoning fail while a source is ReceiveDisabled (EntityStatus of the .NET reference)."""
    tasks = ("orders", "payments")
    faults, dead = site.broker.faults("west"), site.broker.counts("west")["payments"].dead_lettered
    for queue in tasks:
        manage = frozenset({Operation.MANAGE})
        refusal = Fault(effect=Effect.REFUSE, entity=queue, operations=manage, request="update-disposition")
        faults.add(replace(refusal, condition="com.microsoft:entity-disabled"))
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(site.keep_sending, stop, 0.05)
        try:
            result = site.run("pause", *tasks, "--close-source", "--by", "ops", "--yes")
            assert (result.exit_code, result.stderr) == (0, "")
        finally:
            stop.set()
        sending.result()
    faults.clear()
    assert site.run("resume", *tasks, "--yes").exit_code == 0
    # What was in hand waits for the end of its lock.
    until(lambda: site.arrived() == dict(site.sent), 120, text=lambda: (site.arrived(), site.sent))
    assert site.broker.counts("west")["payments"].dead_lettered == dead


def _stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_the_script_of_the_first_hour_runs_here_as_far_as_it_goes(site: PausedSite) -> None:
    steps = [f"--only={number}" for number in (1, 4, 5, 8, 9, 10)]
    quick = ["--minute=0.05", "--messages=40", f"--config={site.folder}"]
    result = CliRunner(env=site.settings).invoke(first_hour, [*steps, *quick])
    assert result.exit_code == 0, result.output
    found = re.findall(r"^(\d+)\. |^   ((?:not )?(?:as expected|tried)) \(", result.output, re.MULTILINE)
    assert [number or verdict for number, verdict in found] == [
        "1", "not tried", "4", "as expected", "5", "as expected",
        "8", "as expected", "9", "not tried", "10", "as expected",
    ]  # fmt: skip
    lines = [line.strip() for line in result.output.splitlines()]
    for way in ("orders (with sessions), 0 minutes away", "payments (without sessions), 0 minutes away"):
        assert f"{way}: 20 wait at the source with up to 0 deliveries, 0 dead letters" in lines
    assert {"100 of 100 accepted", "20 of 20 waited with up to 0 deliveries"} <= {*lines}
    # What the steps have switched off is on again, and nothing secret is in what is sent back.
    assert site.entity_status("orders") == "Active"
    with site.administrator("east") as east:
        assert str(east.get_queue("payments").status).rpartition(".")[2].lower() == "active"
    assert "SharedAccessKey" not in result.output
