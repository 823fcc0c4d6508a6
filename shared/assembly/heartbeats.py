"""Builds what sends the heartbeats of a configuration."""

from collections.abc import Iterator, Mapping
from functools import partial

from shared.assembly.outputs import open_outputs
from shared.assembly.status import open_store, store_problem
from shared.protocols import Output
from shared.status.heartbeat_timer import HeartbeatRoute, HeartbeatTimer
from shared.status.recorder import TaskRecorder
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_MINUTE = 60


def heartbeat_timer(
    configuration: Configuration,
    settings: Mapping[str, str],
    recorders: Mapping[str, TaskRecorder],
) -> HeartbeatTimer | None:
    """Return what sends the heartbeats; None if no task has any, or without a place for the status."""
    tasks = [task for task in configuration.tasks if task.heartbeat is not None]
    if not tasks or store_problem(configuration, settings) is not None:
        return None
    opened = open_outputs(configuration, settings)
    routes = [route for task in tasks for route in _routes(task, opened[task.source.connection], recorders[task.task])]
    return HeartbeatTimer(routes, partial(open_store, configuration, settings))


def heartbeat_schedule(configuration: Configuration) -> str | None:
    """Return the schedule (NCRONTAB) of a task that wants more than one a minute, None if no task does."""
    intervals = [task.heartbeat.every.total_seconds() for task in configuration.tasks if task.heartbeat is not None]
    shortest = int(min(intervals, default=_MINUTE))
    return None if shortest >= _MINUTE else f"*/{shortest} * * * * *"


def _routes(task: TaskFile, output: Output, recorder: TaskRecorder) -> Iterator[HeartbeatRoute]:
    source, options = task.source, task.heartbeat
    every = 0.0 if options is None else options.every.total_seconds()
    partition = str(source.partitions[0]) if source.partitions else None
    for number in range(len(task.branches())):
        yield HeartbeatRoute(task.task, number, every, output, source.sent_to, source.sessions, partition, recorder)
