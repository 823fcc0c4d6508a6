"""The function app with a journal: tasks and taps of two sites, and what they have recorded."""

import gzip
import json
import uuid
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess

WEST = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="jobs"),),
    topics=(
        TopicConfig(
            name="orders",
            subscriptions=tuple(SubscriptionConfig(name=name) for name in ("replication", "journal", "application")),
        ),
    ),
    hubs=(HubConfig(name="readings", partition_count=2, consumer_groups=("busway", "tap")),),
)
EAST = NamespaceConfig(
    name="east",
    queues=(QueueConfig(name="jobs"), QueueConfig(name="rejected")),
    topics=(
        TopicConfig(name="orders", subscriptions=(SubscriptionConfig(name="all"), SubscriptionConfig(name="journal"))),
    ),
    hubs=(HubConfig(name="readings", partition_count=2, consumer_groups=("tap",)),),
)
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
hub-west: {kind: event-hubs, setting: WEST}
hub-east: {kind: event-hubs, setting: EAST}
"""
TASKS = """
task: orders
source:
  connection: west
  topic: orders
  subscription: replication
  rule: {filter: "replication IS NULL", action: "SET replication = 1"}
routes:
  - when: "kind <> 'internal'"
    target: {connection: east, topic: orders}
---
task: watch-orders-east
source: {connection: east, topic: orders, subscription: journal}
tap: {of: orders, side: target}
---
task: watch-orders-west
source: {connection: west, topic: orders, subscription: journal, rule: {filter: "replication IS NULL"}}
tap: {of: orders, side: source}
---
task: readings
source: {connection: hub-west, hub: readings, consumer_group: busway}
routes: [{target: {connection: hub-east, hub: readings}}]
rejects: {connection: east, queue: rejected}
---
task: watch-readings-west
source: {connection: hub-west, hub: readings, consumer_group: tap}
tap: {of: readings, side: source}
---
task: watch-readings-east
source: {connection: hub-east, hub: readings, consumer_group: tap}
tap: {of: readings, side: target}
---
task: jobs
source: {connection: west, queue: jobs}
routes: [{target: {connection: east, queue: jobs}}]
---
task: watch-jobs-east
source: {connection: east, queue: jobs}
tap: {of: jobs, side: target, peek: "* * * * * *"}
"""


Record = dict[str, Any]


class App:
    """The function app with a container of its own."""

    def __init__(self, storage: str, folder: Path, broker: RunningBroker) -> None:
        self.container = f"journal-{uuid.uuid4().hex}"
        self.client = ContainerClient.from_connection_string(storage, self.container)
        self.broker = broker
        (folder / "tasks").mkdir()
        (folder / "connections.yaml").write_text(CONNECTIONS)
        (folder / "journal.yaml").write_text(f"blob: {{setting: JOURNAL, container: {self.container}}}\n")
        (folder / "tasks" / "all.yaml").write_text(TASKS)
        self.settings = {
            "BUSWAY_CONFIG": str(folder),
            "WEST": broker.connection_string("west"),
            "EAST": broker.connection_string("east"),
            "JOURNAL": storage,
        }
        self.host = HostProcess(str(ROOT), folder, self.settings)

    def records(self, task: str, role: str) -> list[Record]:
        """Return the records of one side of a task so far; the order of files is not defined."""
        if not self.client.exists():
            return []
        names = sorted(self.client.list_blob_names(name_starts_with=f"task={task}/"))
        files = [self.client.download_blob(name).readall() for name in names if f"/role={role}/" in name]
        return [json.loads(line) for file in files for line in gzip.decompress(file).splitlines()]

    def wait_for(self, task: str, role: str, count: int, **fields: Any) -> list[Record]:
        """Wait for *count* records with *fields* and return them."""

        def found() -> list[Record]:
            return [each for each in self.records(task, role) if fields.items() <= each.items()]

        self.host.wait_for(lambda: len(found()) >= count)
        return found()

    def send(self, queue_or_topic: str, *messages: ServiceBusMessage) -> None:
        with ServiceBusClient.from_connection_string(self.settings["WEST"]) as client:
            is_topic = queue_or_topic == "orders"
            make = client.get_topic_sender if is_topic else client.get_queue_sender
            with make(queue_or_topic) as sender:
                sender.send_messages(list(messages))
