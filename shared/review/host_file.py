"""Checks the batch sizes and the timeout in host.json against the tasks."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from shared.review.checks import Checks, Finding
from shared.review.network import Network
from shared.tasks.models import TaskFile

# After the hold of a batch, its last attempt to send and its last journal record may take two minutes each.
HOLD_MARGIN = timedelta(minutes=5)

_MIB = 2**20
# A delivery may be held for 15 minutes, and an outage may last for days.
_FEW_DELIVERIES = 100
# An instance that works on as many gains little from more.
_MANY_SESSIONS = 200
_SAFE_INVOCATION_BYTES = 4 * _MIB


@dataclass(frozen=True, slots=True)
class HostFile:
    """The parts of host.json that a review reads; without a function_timeout functions run without limit."""

    path: str
    function_timeout: timedelta | None
    max_message_batch_size: int
    max_event_batch_size: int
    service_bus_prefetch_count: int
    max_auto_lock_renewal_duration: timedelta
    max_concurrent_calls_per_session: int
    max_concurrent_sessions: int
    queues_encoding: str = "none"
    max_dequeue_count: int = 1000
    telemetry_mode: str = ""


def findings(network: Network, host: HostFile) -> Iterator[Finding]:
    """Yield the settings of *host* that disturb tasks."""
    for task in network.tasks:
        if host.function_timeout is not None and task.limits.hold + HOLD_MARGIN > host.function_timeout:
            ends = f"{host.path} ends functions after {host.function_timeout}"
            seen = f"holds a batch for up to {task.limits.hold}, {ends}"
            yield Finding(Checks.HOLD_NEAR_TIMEOUT, network.place(task, "limits.hold"), seen)
        if task.levers.dispatch == "single":
            yield from _of_single(network, host, task)
    queues = [task for task in network.tasks if _has_poison_queue(network, task)]
    if queues and host.queues_encoding != "none":
        seen = f"is {host.queues_encoding}, and {queues[0].task} takes from a storage queue"
        yield Finding(Checks.HOST_DECODES_QUEUES, f"{host.path}: extensions.queues.messageEncoding", seen)
    if queues and host.max_dequeue_count < _FEW_DELIVERIES:
        seen = f"is {host.max_dequeue_count}, and {queues[0].task} takes from a storage queue"
        yield Finding(Checks.POISON_AFTER_FEW, f"{host.path}: extensions.queues.maxDequeueCount", seen)
    if host.telemetry_mode.lower() == "opentelemetry":
        yield Finding(Checks.SECOND_TELEMETRY, f"{host.path}: telemetryMode", f"is {host.telemetry_mode}")
    if 0 < host.service_bus_prefetch_count < host.max_message_batch_size and any(map(_takes_batches, network.tasks)):
        seen = f"is {host.service_bus_prefetch_count}, maxMessageBatchSize is {host.max_message_batch_size}"
        path = f"{host.path}: extensions.serviceBus.prefetchCount"
        yield Finding(Checks.PREFETCH_BOUNDS_BATCH, path, seen)


def _has_poison_queue(network: Network, task: TaskFile) -> bool:
    texts = network.connection(task.source.connection).end.texts
    return texts is not None and texts.has_poison_queue


def advice(network: Network, host: HostFile | None) -> Iterator[str]:
    """Yield what `throughput` chooses, and a sentence for each task whose levers, or the host's, do not fit it."""
    for task in network.tasks:
        if task.throughput is None or task.advised is None:
            continue
        place, sessions = network.place(task, "throughput"), task.throughput.sessions
        if not task.levers.fits(task.advised):
            yield f"{place}: {task.advised} would fit, the task has {task.levers}."
            continue
        if task.has_chosen_levers:
            yield f"{place}: chooses {task.levers}."
        if host is not None and task.levers.dispatch == "single" and sessions is not None:
            most = host.max_concurrent_sessions
            if most < min(sessions, _MANY_SESSIONS):
                yield f"{place}: {sessions} sessions, {host.path} has maxConcurrentSessions {most}: raise it."


def _of_single(network: Network, host: HostFile, task: TaskFile) -> Iterator[Finding]:
    renewal, calls = host.max_auto_lock_renewal_duration, host.max_concurrent_calls_per_session
    if task.limits.hold + HOLD_MARGIN > renewal:
        seen = f"holds a message for up to {task.limits.hold}, {host.path} renews locks for {renewal}"
        yield Finding(Checks.HOLD_NEAR_RENEWAL, network.place(task, "limits.hold"), seen)
    if task.source.sessions and calls > 1:
        seen = f"takes from sessions, {host.path} has {calls} calls per session"
        yield Finding(Checks.CALLS_REORDER_SESSION, network.place(task, "dispatch"), seen)


def largest_batch(network: Network, host: HostFile) -> str | None:
    """
    Return a sentence about the largest batch that the host may hand over, None if none exceeds 4 MiB or none is known.

    Python workers before November 2025 hang on a larger one; the app reports such a worker at its start.
    """
    sizes = ((_bytes(network, host, task), task) for task in network.tasks)
    largest = max(sizes, key=lambda pair: pair[0], default=None)
    if largest is None or largest[0] <= _SAFE_INVOCATION_BYTES:
        return None
    size, task = largest
    count, setting = _batch(host, task)
    safe = max(_SAFE_INVOCATION_BYTES * count // size, 1)
    return (
        f"A batch of {network.label(task.source)} may have {size / _MIB:,.0f} MiB ({count} messages). Workers before "
        f"November 2025 hang above 4 MiB: if the app reports one at its start, set {setting} to {safe} in {host.path}."
    )


def _takes_batches(task: TaskFile) -> bool:
    return task.source.hub is None and task.levers.dispatch == "batch"


def _batch(host: HostFile, task: TaskFile) -> tuple[int, str]:
    """Return the largest number of messages in a batch, and the setting that limits it."""
    if task.source.hub is not None:
        return host.max_event_batch_size, "maxEventBatchSize"
    return (host.max_message_batch_size if _takes_batches(task) else 1), "maxMessageBatchSize"


def _bytes(network: Network, host: HostFile, task: TaskFile) -> int:
    """Return the size of the largest batch of *task*, 0 if the size of a message is unknown."""
    namespace = network.namespace(task.source)
    if namespace is None:
        return 0
    entity = network.queue(task.source) or network.topic(task.source)
    message = (None if entity is None else entity.max_message_size) or namespace.max_message_size
    return message * _batch(host, task)[0]
