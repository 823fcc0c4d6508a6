"""What is measured in the status of all tasks: the values of the gauges, and when they are measured."""

from collections.abc import Iterator, Mapping

from shared.assembly.pipelines import source_attributes
from shared.errors import ConfigError, Problem
from shared.protocols import Measurement
from shared.remedies import remedy_for
from shared.status.model import ATTENTION, DeadLetters, Status
from shared.tasks.files import Configuration
from shared.telemetry import names

SETTING = "BUSWAY_MEASUREMENTS"
OFF = "off"
EVERY_MINUTE = "40 * * * * *"
"""The schedule of what has none of its own; not at the full minute, when schedules of other apps begin."""
_FIELDS = 6


def measurements_schedule(settings: Mapping[str, str]) -> str | None:
    """Return the schedule (NCRONTAB) of the measurements, None if they are switched off; raises ConfigError."""
    schedule = settings.get(SETTING) or EVERY_MINUTE
    if schedule == OFF:
        return None
    if len(schedule.split()) != _FIELDS:
        problem = f"is {schedule!r}, expected {OFF}, or a schedule of six fields such as {EVERY_MINUTE!r}"
        raise ConfigError([Problem(SETTING, problem)])
    return schedule


def measurements(configuration: Configuration, status: Status) -> list[Measurement]:
    """Return the values of all gauges; what is unknown has none."""
    sources = {task.task: source_attributes(task, configuration) for task in configuration.tasks}
    found = []
    for task in status.tasks:
        source = sources[task.task]
        state = {**source, names.STATE: task.state.value}
        if task.state in ATTENTION and task.reason is not None:
            state[names.REMEDY] = remedy_for(task.reason).name
        found.append(Measurement(names.TASK_STATE.name, 1, state))
        if task.lag is not None:
            found.append(Measurement(names.SOURCE_LAG.name, task.lag, source))
        if task.backlog is not None:
            found.append(Measurement(names.SOURCE_BACKLOG.name, task.backlog, source))
        found += [
            Measurement(names.DEAD_LETTERS.name, count, {**source, names.ENTITY: entity})
            for dead in task.dead_letters
            for entity, count in _counted(dead)
        ]
        for heartbeat in task.heartbeats:
            route = {**source, names.ROUTE: str(heartbeat.route), names.TARGET: str(heartbeat.target)}
            found.append(Measurement(names.HEARTBEAT_MISSED.name, int(heartbeat.missed), route))
            if heartbeat.latency is not None and not heartbeat.missed:
                found.append(Measurement(names.HEARTBEAT_LATENCY.name, heartbeat.latency, route))
    return found


def _counted(dead: DeadLetters) -> Iterator[tuple[str, int]]:
    """Yield each entity with its dead letters: of a topic, its subscriptions."""
    if dead.subscriptions:
        yield from ((f"{dead.place}/Subscriptions/{name}", count) for name, count in dead.subscriptions.items())
    elif dead.messages is not None:
        yield str(dead.place), dead.messages
