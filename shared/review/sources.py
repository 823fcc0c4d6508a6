"""Checks sources, their hubs and the targets of rejected messages."""

from collections.abc import Iterator

from shared.review.checks import Checks, Finding
from shared.review.network import Network
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target
from shared.tasks.source import DEFAULT_CONSUMER_GROUP, Source


def findings(network: Network) -> Iterator[Finding]:
    """Yield the findings on sources, hubs and targets of rejected messages."""
    yield from _competitors(network)
    for tap in network.configuration.taps:
        yield from _missing(network, f"{network.configuration.place(tap)}: source", tap.source)
    for task in network.tasks:
        yield from _missing(network, network.place(task, "source"), task.source)
        for path, target in task.ends():
            yield from _missing(network, network.place(task, path), target)
        yield from _partitions(network, task)
        yield from _forwarding(network, task)
        yield from _rejects(network, task)
        by_host = task.source.hub is not None and task.source.reader == "host"
        if by_host and task.source.binary_properties is not False:
            seen = f"receives from the hub {task.source.hub}"
            yield Finding(Checks.BINARY_PROPERTIES, network.place(task, "source.hub"), seen)


def _competitors(network: Network) -> Iterator[Finding]:
    readers: dict[tuple[str, str, str], TaskFile] = {}
    for task in network.tasks:
        source = task.source
        group = "" if source.hub is None else source.consumer_group or DEFAULT_CONSUMER_GROUP
        key = network.source_node(source).setting, source.entity.lower(), group.lower()
        other = readers.setdefault(key, task)
        if other is not task:
            seen = f"{other.task!r} also receives from {network.label(source)}"
            yield Finding(Checks.COMPETING_TASKS, network.place(task, "source"), seen)


def _missing(network: Network, place: str, end: Source | Target) -> Iterator[Finding]:
    missing = None if network.namespace(end) is None else _missing_part(network, end)
    if missing is not None:
        seen = f"{network.configuration.site(end.connection)} has no {missing}"
        yield Finding(Checks.ENTITY_MISSING, place, seen)


def _missing_part(network: Network, end: Source | Target) -> str | None:
    """Return the entity of *end* if its namespace does not have it."""
    if isinstance(end, Target) and end.address is not None:
        # For a broker of kind amqp that a namespace replaces.
        entities, connection = network.entities, network.connection(end.connection)
        is_there = entities.queue(connection, end.address) or entities.topic(connection, end.address)
        return None if is_there else f"queue or topic {end.address}"
    if end.queue is not None:
        return None if network.queue(end) else f"queue {end.queue}"
    if end.topic is not None:
        if network.topic(end) is None:
            return f"topic {end.topic}"
        is_missing = isinstance(end, Source) and network.subscription(end) is None
        return f"subscription {end.subscription} of {end.topic}" if is_missing and isinstance(end, Source) else None
    hub = network.hub(end)
    if hub is None:
        return f"hub {end.hub}"
    group = end.consumer_group if isinstance(end, Source) else None
    groups = [DEFAULT_CONSUMER_GROUP.lower(), *(consumer_group.lower() for consumer_group in hub.consumer_groups)]
    return None if group is None or group.lower() in groups else f"consumer group {group} of {end.hub}"


def _partitions(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield the partitions that a task names or keeps and the hub does not have."""
    source_count = _partition_count(network, task.source)
    for named in task.source.partitions or ():
        if source_count is not None and named >= source_count:
            seen = f"names partition {named}, {network.label(task.source)} has {source_count}, from 0"
            yield Finding(Checks.PARTITION_MISSING, network.place(task, "source.partitions"), seen)
    for path, target in task.ends():
        target_count, partition = _partition_count(network, target), target.partition
        if target_count is None:
            continue
        if partition == "keep" and source_count is not None and source_count > target_count:
            seen = f"keeps the partition of {source_count} at the source, {network.label(target)} has {target_count}"
            yield Finding(Checks.PARTITION_MISSING, network.place(task, f"{path}.partition"), seen)
        elif partition == "keep" and source_count is not None and source_count < target_count:
            seen = f"keeps the partition of {source_count} at the source, {network.label(target)} has {target_count}"
            yield Finding(Checks.PARTITION_COUNTS_DIFFER, network.place(task, f"{path}.partition"), seen)
        elif isinstance(partition, int) and partition >= target_count:
            seen = f"names partition {partition}, {network.label(target)} has {target_count}, from 0"
            yield Finding(Checks.PARTITION_MISSING, network.place(task, f"{path}.partition"), seen)


def _partition_count(network: Network, end: Source | Target) -> int | None:
    hub = network.hub(end)
    return None if hub is None else hub.partition_count


def _forwarding(network: Network, task: TaskFile) -> Iterator[Finding]:
    source = task.source
    deliverer = network.deliverer(source)
    if deliverer is None:
        return
    forwards_to = deliverer.forward_dead_lettered_messages_to if source.dead_letter else deliverer.forward_to
    if forwards_to is not None:
        seen = f"{network.label(source)} forwards to {forwards_to}"
        yield Finding(Checks.SOURCE_FORWARDS, network.place(task, "source"), seen)


def _rejects(network: Network, task: TaskFile) -> Iterator[Finding]:
    if task.rejects is None:
        seen = f"rejected messages go to the dead-letter queue of {network.label(task.source)}"
        if task.fans_out:
            seen += "; one that a single target refuses is resent to all of them"
        yield Finding(Checks.MISSING_REJECTS, network.place(task), seen)
        return
    taker = network.taker(task.rejects)
    if taker is not None and taker.requires_duplicate_detection:
        seen = f"{network.label(task.rejects)} detects duplicates"
        yield Finding(Checks.REJECTS_DETECT_DUPLICATES, network.place(task, "rejects"), seen)
    node = network.target_node(task.rejects)
    for branch in task.branches():
        if network.target_node(branch.target) == node:
            seen = f"is also the target of routes[{branch.number}]"
            yield Finding(Checks.REJECTS_AMONG_COPIES, network.place(task, "rejects"), seen)
