"""Checks times to live."""

from collections.abc import Iterator
from datetime import timedelta

from shared.review import checks
from shared.review.findings import Finding
from shared.review.network import Network
from shared.tasks.models import TaskFile
from shared.tasks.options import StampedLife


def findings(network: Network) -> Iterator[Finding]:
    """Yield the tasks whose `ttl` expires messages too early or has no effect."""
    for task in network.tasks:
        place = network.place(task, "ttl")
        if task.ttl == "remaining" and task.source.dead_letter:
            yield Finding(
                checks.EXPIRED_DEAD_LETTERS,
                place,
                f"applies the time to live to dead-lettered messages of {network.label(task.source)}",
            )
        if task.ttl == "remaining" and task.source.hub is not None and not _source_gets_time_to_live(network, task):
            yield Finding(
                checks.TTL_WITHOUT_EFFECT, place, f"events of {network.label(task.source)} have no time to live"
            )
        elif task.ttl != "keep" and all(branch.target.hub is not None for branch in task.branches()):
            yield Finding(checks.TTL_WITHOUT_EFFECT, place, "every target is a hub")
        yield from _cut(network, task)


def _source_gets_time_to_live(network: Network, task: TaskFile) -> bool:
    """Return whether a task sends messages from Service Bus to the hub; a property keeps their time to live."""
    node = network.source_node(task.source)
    return any(
        network.target_node(branch.target) == node
        for other in network.tasks
        if other.source.hub is None
        for branch in other.branches()
    )


def _cut(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield the targets with a shorter time to live than the task or the source gives."""
    granted = _granted(network, task)
    if granted is None:
        return
    for branch in task.branches():
        taker = network.entities.taker(network.connection(branch.target.connection), branch.target)
        default = None if taker is None else taker.default_message_time_to_live
        if default is not None and default < granted:
            seen = f"{network.label(branch.target)} keeps a message for at most {default}, the task grants {granted}"
            yield Finding(checks.TTL_CUT, network.place(task, branch.path), seen)


def _granted(network: Network, task: TaskFile) -> timedelta | None:
    """Return the time to live of a copy: as stamped, or as at the source; None if unknown."""
    if isinstance(task.ttl, StampedLife):
        return task.ttl.stamp
    deliverer = network.entities.deliverer(network.connection(task.source.connection), task.source)
    if deliverer is None:
        return None
    topic = network.entities.topic(network.connection(task.source.connection), task.source.topic)
    lives = [deliverer.default_message_time_to_live, None if topic is None else topic.default_message_time_to_live]
    return min((live for live in lives if live is not None), default=timedelta.max)
