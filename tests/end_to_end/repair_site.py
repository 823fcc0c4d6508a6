"""A broker with the messages and the manifest of a repair."""

import gzip
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.namespace import Namespace
from busway_broker.thread import RunningBroker
from cli.main import app
from shared.amqp import values
from shared.amqp.sections import Sections
from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from tests.end_to_end.busway_process import PACKAGES

ROOT = Path(__file__).parents[2]

WEST = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders"), QueueConfig(name="gone")),
    topics=(
        TopicConfig(
            name="news", subscriptions=(SubscriptionConfig(name="replication"), SubscriptionConfig(name="journal"))
        ),
    ),
    hubs=(HubConfig(name="telemetry", partition_count=2), HubConfig(name="journal")),
)

EAST = NamespaceConfig(
    name="east",
    queues=(QueueConfig(name="orders"), QueueConfig(name="events")),
    topics=(TopicConfig(name="news", subscriptions=(SubscriptionConfig(name="application"),)),),
)

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
hub-west: {kind: event-hubs, setting: WEST, site: west}
east: {kind: service-bus, setting: EAST}
"""

TASKS = """\
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: orders}}]
---
task: gone
source: {connection: west, queue: gone}
routes: [{target: {connection: east, topic: gone}}]
---
task: news
source: {connection: west, topic: news, subscription: replication,
         rule: {filter: "replication IS NULL", action: "SET replication = 1"}}
routes: [{target: {connection: east, topic: news}}]
---
task: telemetry
source: {connection: hub-west, hub: telemetry, consumer_group: $Default}
routes: [{target: {connection: east, queue: events}}]
rejects: {connection: east, queue: orders}
"""


class Site:
    """A running broker, the configuration of four tasks that do not run, and a manifest."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.settings = {
            "WEST": broker.connection_string("west"),
            "EAST": broker.connection_string("east"),
            "PYTHONPATH": PACKAGES,
        }
        self.west = ServiceBusClient.from_connection_string(self.settings["WEST"])
        self.east = ServiceBusClient.from_connection_string(self.settings["EAST"])
        self.manifest = folder / "runs" / "first-night" / "repair.jsonl"
        self.ledger = folder / "repaired.jsonl"

    def missing(self, rows: list[dict[str, Any]]) -> None:
        head = {"manifest": 1, "run": "r", "messages": len(rows), "missing": len(rows)}
        self.manifest.parent.mkdir(parents=True, exist_ok=True)
        self.manifest.write_text("".join(json.dumps(each) + "\n" for each in (head, *rows)))

    def repair_as_process(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "cli", *self._arguments, *options],
            env={**os.environ, **self.settings},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def repair(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, which takes a tenth of the time of a new one."""
        result = CliRunner().invoke(app, [*self._arguments, *options], env=self.settings)
        return subprocess.CompletedProcess((), result.exit_code, result.stdout, result.stderr)

    @property
    def _arguments(self) -> list[str]:
        return ["repair", str(self.manifest), "--config", str(self.folder)]

    def records_in_journal(self, *, is_repair: bool) -> list[tuple[int, str]]:
        """Return the sequence number and outcome of each record in the hub of the journal."""

        def events(namespace: Namespace) -> list[bytes]:
            return [event.encode() for each in namespace.hub("journal").partitions for event in each.events]

        place = Origin("west", "journal")
        members = [Message.received(each, place).body or b"" for each in self.broker.inspect("west", events)]
        records = [json.loads(line) for member in members for line in gzip.decompress(member).splitlines()]
        assert all(each.get("repair", False) is is_repair for each in records)
        return sorted((each["src_seq"], each["outcome"]) for each in records)

    def arrived(self, queue: str, wait: float = 2) -> list[Any]:
        with self.east.get_queue_receiver(queue) as receiver:
            found: list[Any] = []
            while some := receiver.receive_messages(100, max_wait_time=wait):
                for each in some:
                    receiver.complete_message(each)
                found += some
            return found


def row(task: str, entity: str, sequence_number: int, **more: Any) -> dict[str, Any]:
    """Return the line of the manifest for a message, with the digests that the journal has."""
    content = more.pop("encoded")
    imprint = Imprinter().arriving(Message.received(content, Origin("west", entity)))
    return {
        "task": task,
        "src_site": "west",
        "src_entity": entity,
        "src_part": 0,
        "src_seq": sequence_number,
        "message_id": imprint.message_id,
        "body_digest": imprint.body_digest.hex(),
        "property_digest": (imprint.property_digest or b"").hex(),
        "copies": 0,
        **more,
    }


def encoded(message_id: str, body: bytes, properties: dict[str, int]) -> bytes:

    message = Message(Sections(), Arrival(Origin("west", "")))
    message.message_id = values.string(message_id)
    message.set_properties({name: values.int_(value) for name, value in properties.items()})
    message.body = body
    return message.encode()


def dead_letter(
    site: Site, count: int, queue: str = "orders", *, life: timedelta | None = None
) -> list[dict[str, Any]]:
    with site.west.get_queue_sender(queue) as sender:
        for n in range(count):
            sender.send_messages(
                ServiceBusMessage(
                    b"order %d" % n, message_id=f"o-{n}", application_properties={"n": 100 + n}, time_to_live=life
                )
            )
    rows: list[dict[str, Any]] = []
    each: Any
    with site.west.get_queue_receiver(queue) as receiver:
        while len(rows) < count:
            for each in receiver.receive_messages(count - len(rows), max_wait_time=5):
                n = int(each.message_id[2:])
                properties = {"n": each.application_properties[b"n"]}
                enqueued = round(each.enqueued_time_utc.timestamp() * 1_000_000)
                content = encoded(each.message_id, b"order %d" % n, properties)
                rows.append(row(queue, queue, each.sequence_number, encoded=content, enqueued_time=enqueued))
                receiver.dead_letter_message(each, reason="given up", error_description="for the test")
    return sorted(rows, key=lambda each: each["src_seq"])
