"""The function app with a journal: tasks and taps of two sites, and what they have recorded."""

import gzip
import json
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from azure.storage.blob import ContainerClient

from busway_broker.config import NamespaceConfig
from tests.end_to_end.host_process import HostProcess
from tests.site import Site

ENTITIES = """
west:
  queues: [jobs]
  topics: {orders: [replication, journal, application]}
  hubs: {readings: {partition_count: 2, consumer_groups: [busway, tap]}}
east:
  queues: [jobs, rejected]
  topics: {orders: [all, journal]}
  hubs: {readings: {partition_count: 2, consumer_groups: [tap]}, journal: }
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


class JournalSite(Site):
    """The function app with a container of its own."""

    def __init__(
        self,
        folder: Path,
        storage: str,
        entities: str | Sequence[NamespaceConfig] = ENTITIES,
        tasks: str = TASKS,
        *,
        more: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.container = f"journal-{uuid.uuid4().hex}"
        journal = f"blob: {{setting: JOURNAL, container: {self.container}}}\n"
        super().__init__(
            folder, entities, tasks, more=more, journal=journal, settings={"JOURNAL": storage, **(settings or {})}
        )
        self.blobs = ContainerClient.from_connection_string(storage, self.container)

    @cached_property
    def process(self) -> HostProcess:
        """Return the host."""
        return self.host()

    def records(self, task: str, role: str) -> list[Record]:
        """Return the records of one side of a task so far; the order of files is not defined."""
        if not self.blobs.exists():
            return []
        names = sorted(self.blobs.list_blob_names(name_starts_with=f"task={task}/"))
        files = [self.blobs.download_blob(name).readall() for name in names if f"/role={role}/" in name]
        return [json.loads(line) for file in files for line in gzip.decompress(file).splitlines()]

    def wait_for(self, task: str, role: str, count: int, **fields: Any) -> list[Record]:
        """Wait for *count* records with *fields* and return them."""

        def found() -> list[Record]:
            return [record for record in self.records(task, role) if fields.items() <= record.items()]

        self.process.wait_for(lambda: len(found()) >= count, every=0.3)
        return found()
