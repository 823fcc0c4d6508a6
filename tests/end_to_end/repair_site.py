"""A broker with the messages and the manifest of a repair."""

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from typer.testing import Result

from shared.amqp import values
from shared.amqp.sections import Sections
from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from tests.site import Site

ENTITIES = """
west:
  queues: [orders, gone]
  topics: {news: [replication, journal]}
  hubs: {telemetry: {partition_count: 2}, journal: }
east: {queues: [orders, events], topics: {news: [application]}}
"""
MORE = "hub-west: {kind: event-hubs, setting: WEST, site: west}"
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


class RepairSite(Site):
    """Four tasks that do not run, and a manifest."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ENTITIES, TASKS, more=MORE)
        self.manifest = folder / "runs" / "first-night" / "repair.jsonl"
        self.ledger = folder / "repaired.jsonl"

    def missing(self, rows: list[dict[str, Any]]) -> None:
        head = {"manifest": 1, "run": "r", "messages": len(rows), "missing": len(rows)}
        self.manifest.parent.mkdir(parents=True, exist_ok=True)
        self.manifest.write_text("".join(json.dumps(each) + "\n" for each in (head, *rows)))

    def repair(self, *options: str) -> Result:
        """Run the command."""
        return self.run("repair", str(self.manifest), *options)

    def records_in_journal(self, *, is_repair: bool) -> list[tuple[int, str]]:
        """Return the sequence number and outcome of each record in the hub of the journal."""
        members = [message.body or b"" for partition in self.events("west/journal") for message in partition]
        records = [json.loads(line) for member in members for line in gzip.decompress(member).splitlines()]
        assert all(record.get("repair", False) is is_repair for record in records)
        return sorted((record["src_seq"], record["outcome"]) for record in records)

    def arrived(self, queue: str) -> list[Any]:
        """Take all messages of a queue of *east*."""
        return self.take(f"east/{queue}", self.active(f"east/{queue}"))


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
    site: RepairSite, count: int, queue: str = "orders", *, life: timedelta | None = None
) -> list[dict[str, Any]]:
    made = [
        ServiceBusMessage(
            b"order %d" % n, message_id=f"o-{n}", application_properties={"n": 100 + n}, time_to_live=life
        )
        for n in range(count)
    ]
    site.send(f"west/{queue}", *made)
    rows: list[dict[str, Any]] = []
    each: Any
    with site.receiver(f"west/{queue}") as receiver:
        while len(rows) < count:
            for each in receiver.receive_messages(count - len(rows), max_wait_time=5):
                n = int(each.message_id[2:])
                properties = {"n": each.application_properties[b"n"]}
                enqueued = round(each.enqueued_time_utc.timestamp() * 1_000_000)
                content = encoded(each.message_id, b"order %d" % n, properties)
                rows.append(row(queue, queue, each.sequence_number, encoded=content, enqueued_time=enqueued))
                receiver.dead_letter_message(each, reason="given up", error_description="for the test")
    return sorted(rows, key=lambda each: each["src_seq"])
