"""From a configuration to its pipelines: the one place where outputs, editors, journal and tasks meet."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType

from shared.azure.connections import (
    connection_string_fault,
    event_hub_client,
    event_hub_client_by,
    service_bus_client,
    service_bus_client_by,
    setting_problem,
)
from shared.azure.locks import ServiceBusLocks
from shared.azure.secrets import Secrets, open_secrets
from shared.azure.senders.event_hubs import EventHubsOutput
from shared.azure.senders.renewed import RenewedOutput
from shared.azure.senders.service_bus import ServiceBusOutput
from shared.clock import Clock, SystemClock
from shared.config.files import Configuration
from shared.config.journalling import Journals
from shared.config.models import DEFAULT_CONSUMER_GROUP, Connection, StampedLife, Target, TaskFile
from shared.editors.options import TaskFacts
from shared.errors import ConfigError, Problem, TargetRefused
from shared.line.pipeline import Pipeline, Task
from shared.line.routing import Route, Router
from shared.line.routing import Target as RoutedTarget
from shared.line.shutdown import Shutdown
from shared.message.loop_prevention import LoopGuard
from shared.message.mapping import fit_between, restore_event
from shared.message.message import Origin
from shared.message.ttl import Keep, Remaining, Stamp, TimeToLive
from shared.protocols import Locks, Output
from shared.rules.rule import parse_action, parse_filter
from shared.telemetry import names
from shared.telemetry.opening import Telemetries, open_telemetry


def pipelines(
    configuration: Configuration,
    settings: Mapping[str, str],
    shutdown: Shutdown | None = None,
    *,
    journals: Journals | None = None,
    outputs: Mapping[str, Output] | None = None,
    telemetry: Telemetries | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    hold: timedelta | None = None,
) -> list[tuple[TaskFile, Pipeline]]:
    """
    Return a pipeline for each task, which lets go of what it holds when *shutdown* is requested.

    They live by the machine's time unless given a *clock* of their own and a *sleep* by that clock. A batch is held for
    as long as its task says, or for *hold*. Raises ConfigError when the app setting of a connection cannot be used.
    """
    journals = journals or Journals(configuration, settings, clock)
    outputs = outputs or opened_outputs(configuration, settings)
    tasks = assembled(
        configuration,
        outputs,
        lambda file: _locks(file, configuration, settings),
        settings=settings,
        clock=clock,
    )
    telemetry = telemetry or open_telemetry(settings)
    opened = []
    for file, task in zip(configuration.tasks, tasks, strict=True):
        told = telemetry.of_task(_told_of_source(file, configuration))
        journal, line = journals.of(file, told), task if hold is None else replace(task, hold=hold)
        opened.append((file, Pipeline(line, journal, clock, sleep, shutdown=shutdown, telemetry=told)))
    return opened


def opened_outputs(configuration: Configuration, settings: Mapping[str, str]) -> dict[str, Output]:
    """Return the output of every connection that messages can be sent to, by alias; raises ConfigError."""
    secrets = open_secrets(settings)
    problems = []
    for alias, connection in configuration.connections.items():
        for problem in (
            setting_problem(connection.setting, settings, configuration.hubs(alias))
            if connection.setting is not None
            else None,
            secrets.problem(connection.secret) if connection.secret is not None else None,
        ):
            if problem is not None:
                where = f"connections.yaml: {alias}: app setting {problem.path}"
                problems.append(Problem(where, problem.problem, problem.hint))
    if problems:
        raise ConfigError(problems)
    return {
        alias: _output(configuration.site(alias), connection, settings, secrets)
        for alias, connection in configuration.connections.items()
    }


def _output(site: str, connection: Connection, settings: Mapping[str, str], secrets: Secrets) -> Output:
    if connection.secret is not None:
        return RenewedOutput(
            site, connection.secret, secrets, partial(_output_by, site, connection.kind, connection.secret)
        )
    setting = connection.key
    if connection.kind == "service-bus":
        return ServiceBusOutput(site, partial(service_bus_client, setting, settings))
    return EventHubsOutput(site, partial(event_hub_client, setting, settings))


def _output_by(site: str, kind: str, secret: str, connection_string: str) -> Output:
    """Return an output opened with the value of a *secret*; raises TargetRefused where that is none."""
    fault = connection_string_fault(connection_string)
    if fault is not None:
        raise TargetRefused(f"{site}: secret {secret} {fault[0]}; {fault[1]}")
    if kind == "service-bus":
        return ServiceBusOutput(site, partial(service_bus_client_by, connection_string))
    return EventHubsOutput(site, partial(event_hub_client_by, connection_string))


def _locks(file: TaskFile, configuration: Configuration, settings: Mapping[str, str]) -> Locks | None:
    alias, source = file.source.connection, file.source
    connection = configuration.connections[alias]
    if connection.kind != "service-bus":
        return None
    open_client = partial(service_bus_client, connection.key, settings)
    return ServiceBusLocks(configuration.site(alias), source.entity, open_client, sessions=source.sessions)


def assembled(
    configuration: Configuration,
    outputs: Mapping[str, Output],
    locks: Callable[[TaskFile], Locks | None] = lambda _: None,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    clock: Clock | None = None,
    rehearsal: bool = False,
) -> list[Task]:
    """
    Return the tasks of *configuration*, in its order, sending to the *outputs* by their connections' aliases.

    *locks* gives what reaches the locks on the source of a task, None where nothing does. Editors may read *settings*;
    in a *rehearsal* they keep nothing (`shared.editors.options.TaskFacts`).
    """
    secrets, clock = open_secrets(settings), clock or SystemClock()

    def facts(file: TaskFile) -> TaskFacts:
        origin = Origin(configuration.site(file.source.connection), file.source.entity)
        return TaskFacts(file.task, origin, settings, secrets, clock, rehearsal)

    return [_task(file, configuration, outputs, locks(file), facts(file)) for file in configuration.tasks]


def _task(
    file: TaskFile,
    configuration: Configuration,
    outputs: Mapping[str, Output],
    locks: Locks | None,
    facts: TaskFacts,
) -> Task:
    source = configuration.connections[file.source.connection].kind

    def target(model: Target) -> RoutedTarget:
        return RoutedTarget(
            outputs[model.connection],
            configuration.site(model.connection),
            model.entity,
            fit_between(source, configuration.connections[model.connection].kind),
            None if model.partition is None else str(model.partition),
        )

    partitions = file.source.partitions
    routes = [
        Route(
            target(route.target),
            parse_filter(route.when) if route.when is not None else None,
            parse_action(route.action) if route.action is not None else None,
        )
        for route in file.routes
    ]
    return Task(
        name=file.task,
        origin=facts.origin,
        editors=[step.editor(facts) for step in file.editors],
        router=Router(routes),
        rejects=target(file.rejects) if file.rejects is not None else None,
        time_to_live=_time_to_live(file),
        loop_guard=LoopGuard(file.loop_prevention.max_hops) if file.loop_prevention else None,
        restore=restore_event if source == "event-hubs" else None,
        partitions=None if partitions is None else frozenset(map(str, partitions)),
        locks=locks,
        hold=file.limits.hold,
        rejects_in_a_row=file.limits.rejects_in_a_row or None,
    )


def _told_of_source(file: TaskFile, configuration: Configuration) -> dict[str, str]:
    """Return the attributes that every measurement of a task has."""
    source = file.source
    is_hub = source.hub is not None
    told = {
        names.TASK: file.task,
        names.SOURCE: f"{configuration.site(source.connection)}/{source.entity}",
        names.SYSTEM: names.EVENT_HUBS if is_hub else names.SERVICE_BUS,
        names.DESTINATION: source.queue or source.topic or source.hub,
        names.SUBSCRIPTION: source.subscription,
        names.CONSUMER_GROUP: (source.consumer_group or DEFAULT_CONSUMER_GROUP) if is_hub else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _time_to_live(file: TaskFile) -> TimeToLive:
    if isinstance(file.ttl, StampedLife):
        return Stamp(file.ttl.stamp)
    return Keep() if file.ttl == "keep" else Remaining()
