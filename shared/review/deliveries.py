"""Checks delivery counts, duplicate detection, order, message sizes and times to live."""

from collections.abc import Iterator
from datetime import timedelta
from math import ceil

from shared.review.checks import Checks, Finding
from shared.review.entities import Queue, Subscription, Topic
from shared.review.known_properties import MESSAGE_ID, assigned
from shared.review.network import Network
from shared.tasks.models import TaskFile
from shared.tasks.options import StampedLife
from shared.tasks.routes import Branch

OUTAGE = timedelta(days=3)
"""What a source is to outlast without losing messages to its dead-letter queue."""


def findings(network: Network) -> Iterator[Finding]:
    """Yield sources that give up early, and targets that accept duplicates, drop copies, or take smaller messages."""
    for task in network.tasks:
        yield from _attempts(network, task)
        yield from _time_to_live(network, task)
        yield from _lives(network, task)
        source = task.source
        yield from _order(network.topic(source), None, network.label(source), network.place(task, "source"))
        for branch in task.branches():
            target, place = branch.target, network.place(task, branch.path)
            taker = network.taker(target)
            if taker is not None:
                if branch.route.via == "sdk":  # a binding cannot set an id
                    yield from _duplicates(network, task, branch, taker, place)
                yield from _sizes(network, task, branch, taker, place)
                yield from _order(network.topic(target), network.queue(target), network.label(target), place)


def _attempts(network: Network, task: TaskFile) -> Iterator[Finding]:
    source = task.source
    deliverer = network.deliverer(source)
    if deliverer is None or source.dead_letter:
        return
    lock, hold = deliverer.lock_duration, max(task.limits.hold, deliverer.lock_duration)
    # With `dispatch: single` the host renews, and knows its own sessions.
    is_ambiguous = source.sessions and task.levers.dispatch == "batch" and _session_functions(network) > 1
    lasts = deliverer.max_delivery_count * (lock if is_ambiguous else hold)
    if lasts < OUTAGE:
        count = f"{deliverer.max_delivery_count} deliveries of {lock if is_ambiguous else hold}"
        yield Finding(Checks.FEW_DELIVERIES, network.place(task, "source"), f"{network.label(source)} has {count}")


def _lives(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield the entities of a task that delete themselves (azure-service-bus 439)."""
    source = task.source
    used: list[tuple[str, str, Queue | Subscription | Topic | None]] = [
        ("source", network.label(source), network.deliverer(source)),
        ("source", f"the topic of {network.label(source)}", network.topic(source)),
    ]
    used += [(path, network.label(target), network.taker(target)) for path, target in task.ends()]
    for path, label, entity in used:
        if entity is not None and entity.auto_delete_on_idle is not None:
            seen = f"{label} is deleted once it was idle for {entity.auto_delete_on_idle}"
            yield Finding(Checks.DELETES_ITSELF, network.place(task, path), seen)


def _order(topic: Topic | None, queue: Queue | None, label: str, place: str) -> Iterator[Finding]:
    """Yield what keeps no order: the *topic* of a source or target, or a target that is a *queue* and forwards."""
    if topic is not None and not topic.support_ordering:
        yield Finding(Checks.NO_SUPPORT_ORDERING, place, f"{topic.name}, the topic of {label}, has no SupportOrdering")
    if queue is not None and queue.forward_to is not None:
        yield Finding(Checks.FORWARDED, place, f"{label} forwards to {queue.forward_to}")


def _session_functions(network: Network) -> int:
    sources = [*(task.source for task in network.tasks), *(tap.source for tap in network.configuration.taps)]
    return sum(source.sessions for source in sources)


def _duplicates(
    network: Network, task: TaskFile, branch: Branch, taker: Queue | Topic, place: str
) -> Iterator[Finding]:
    target = network.label(branch.target)
    if not taker.requires_duplicate_detection:
        yield Finding(Checks.NO_DUPLICATE_DETECTION, place, f"{target} does not detect duplicates")
        return
    if taker.enable_partitioning:
        yield Finding(Checks.PARTITIONED_DUPLICATES, place, f"{target} is partitioned and detects duplicates")
    window = taker.duplicate_detection_history_time_window
    goes_back = network.target_node(branch.target) == network.source_node(task.source)
    if goes_back and MESSAGE_ID not in assigned(branch.route.action):
        seen = f"sends dead-lettered messages back to {target}, which drops every id of the last {window}"
        yield Finding(Checks.RESENT_AS_DUPLICATE, place, seen)
    deliverer = network.deliverer(task.source)
    # A dead-letter queue does not limit the number of deliveries.
    if deliverer is not None and not task.source.dead_letter:
        horizon = deliverer.lock_duration * min(deliverer.max_delivery_count, ceil(OUTAGE / task.limits.hold))
        if window < horizon:
            seen = f"{target} remembers an id for {window}, {network.label(task.source)} redelivers for up to {horizon}"
            yield Finding(Checks.SHORT_DUPLICATE_WINDOW, place, seen)


def _sizes(network: Network, task: TaskFile, branch: Branch, taker: Queue | Topic, place: str) -> Iterator[Finding]:
    home, there = network.namespace(task.source), network.namespace(branch.target)
    source = network.queue(task.source) or network.topic(task.source)
    if home is None or there is None or source is None:
        return
    largest = source.max_message_size or home.max_message_size
    taken = taker.max_message_size or there.max_message_size
    if taken < largest:
        seen = f"accepts {taken} bytes, {network.label(task.source)} up to {largest}"
        yield Finding(Checks.SMALLER_MESSAGES, place, seen)


def _time_to_live(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield a `ttl` that expires messages too early or has no effect."""
    place = network.place(task, "ttl")
    if task.ttl == "remaining" and task.source.dead_letter:
        seen = f"applies the time to live to dead-lettered messages of {network.label(task.source)}"
        yield Finding(Checks.EXPIRED_DEAD_LETTERS, place, seen)
    if task.ttl == "remaining" and task.source.hub is not None and not _source_gets_time_to_live(network, task):
        yield Finding(Checks.TTL_WITHOUT_EFFECT, place, f"events of {network.label(task.source)} have no time to live")
    elif task.ttl != "keep" and all(branch.target.hub is not None for branch in task.branches()):
        yield Finding(Checks.TTL_WITHOUT_EFFECT, place, "every target is a hub")
    yield from _cut(network, task)


def _source_gets_time_to_live(network: Network, task: TaskFile) -> bool:
    """Return whether a task sends messages from Service Bus to the hub; a property keeps their time to live."""
    node = network.source_node(task.source)
    others = (other for other in network.tasks if other.source.hub is None)
    return any(network.target_node(branch.target) == node for other in others for branch in other.branches())


def _cut(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield the targets with a shorter time to live than the task or the source gives."""
    granted = _granted(network, task)
    if granted is None:
        return
    for branch in task.branches():
        taker = network.taker(branch.target)
        default = None if taker is None else taker.default_message_time_to_live
        if default is not None and default < granted:
            seen = f"{network.label(branch.target)} keeps a message for at most {default}, the task grants {granted}"
            yield Finding(Checks.TTL_CUT, network.place(task, branch.path), seen)


def _granted(network: Network, task: TaskFile) -> timedelta | None:
    """Return the time to live of a copy: as stamped, or as at the source; None if unknown."""
    if isinstance(task.ttl, StampedLife):
        return task.ttl.stamp
    deliverer, topic = network.deliverer(task.source), network.topic(task.source)
    if deliverer is None:
        return None
    lives = [deliverer.default_message_time_to_live, None if topic is None else topic.default_message_time_to_live]
    return min((live for live in lives if live is not None), default=timedelta.max)
