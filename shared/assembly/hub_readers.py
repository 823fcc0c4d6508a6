"""Builds the reader of a task that reads its hub without the host."""

from collections.abc import Mapping

from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.errors import ConfigError, Problem
from shared.line.hub_reader import HubReader
from shared.line.pipeline import Pipeline
from shared.line.shutdown import Shutdown
from shared.stores.host_checkpoints import CONTAINER, HostCheckpoints
from shared.stores.storage_account import HOST_STORAGE, container_client, host_storage
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.tasks.source import DEFAULT_CONSUMER_GROUP


def hub_reader(
    configuration: Configuration, settings: Mapping[str, str], task: TaskFile, pipeline: Pipeline, shutdown: Shutdown
) -> HubReader:
    """Return the reader of *task*, which opens its connections at the first run; raises ConfigError."""
    journal = configuration.journal
    if journal is not None and journal.event_hub is not None and task.journal is not False:
        hint = "keep the journal in blobs, or set `journal: off` in the task"
        raise ConfigError([Problem(f"{configuration.place(task)}: source.reader", "has a journal in a hub", hint)])
    key = configuration.connections[task.source.connection].key
    name = task.source.hub or ""
    group = task.source.consumer_group or DEFAULT_CONSUMER_GROUP
    hub = EventHub(Namespace.of(key, settings, [name]), name, group)
    client = container_client(HOST_STORAGE, host_storage(settings), CONTAINER)
    checkpoints = HostCheckpoints(client, hub.namespace, hub.name, hub.consumer_group)
    partitions = None if task.source.partitions is None else [str(partition) for partition in task.source.partitions]
    return HubReader(
        task.task,
        hub,
        checkpoints,
        pipeline.run,
        shutdown,
        partitions=partitions,
        is_compacted=task.source.compacted,
    )
