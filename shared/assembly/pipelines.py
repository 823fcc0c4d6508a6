"""Builds the pipelines of a configuration from its outputs, editors and journal."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Literal

from shared.access.secrets import open_secrets
from shared.assembly.journals import Journals
from shared.assembly.outputs import open_outputs
from shared.clock import Clock, SystemClock
from shared.codecs.envelope import EVENT, MESSAGE
from shared.editors.options import TaskFacts
from shared.ends.kind import Kind
from shared.line.binding_output import BindingOutput
from shared.line.heartbeats import Arrivals
from shared.line.pause import Pause
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router
from shared.line.routing import Target as RoutedTarget
from shared.line.shutdown import Shutdown
from shared.line.task import Task
from shared.line.text_form import TextForm
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Keep, Remaining, Stamp, TimeToLive
from shared.protocols import Output, Settlement, Telemetry
from shared.rules.rule import parse_action, parse_filter
from shared.tasks.files import Configuration
from shared.tasks.heartbeats import heartbeat_targets
from shared.tasks.models import TaskFile
from shared.tasks.options import StampedLife
from shared.tasks.routes import Route as RouteFile
from shared.tasks.routes import Target
from shared.tasks.source import DEFAULT_CONSUMER_GROUP
from shared.telemetry import names
from shared.telemetry.opening import Both, Telemetries, open_telemetry

LONGEST_REQUEST = timedelta(seconds=20)
"""How long a request of Event Grid, which waits for 30 s, may wait for its targets."""


def pipelines(
    configuration: Configuration,
    settings: Mapping[str, str],
    shutdown: Shutdown | None = None,
    *,
    journals: Journals | None = None,
    outputs: Mapping[str, Output] | None = None,
    telemetry: Telemetries | None = None,
    recorders: Mapping[str, Telemetry] = MappingProxyType({}),
    pauses: Mapping[str, Pause] = MappingProxyType({}),
    arrivals: Mapping[str, Arrivals] = MappingProxyType({}),
    settlement: Settlement | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    hold: timedelta | None = None,
) -> list[tuple[TaskFile, Pipeline]]:
    """
    Return a pipeline for each task; it abandons the batches in progress when *shutdown* is requested.

    By task: *recorders* get what the telemetry gets, *pauses* hold batches back, *arrivals* get the results of
    heartbeats. *settlement* is the host's, None where no host delivers. The default clock is that of the machine;
    tests pass a *clock* and its *sleep*. *hold* replaces the time that each task waits for a target. Raises ConfigError
    if the app setting of a connection cannot be used.
    """
    journals = journals or Journals(configuration, settings, clock)
    outputs = outputs or open_outputs(configuration, settings)
    tasks = assemble(configuration, outputs, settlement, settings=settings, clock=clock)
    telemetry = telemetry or open_telemetry(settings)
    opened = []
    for file, task in zip(configuration.tasks, tasks, strict=True):
        reports = telemetry.of_task(source_attributes(file, configuration))
        if file.task in recorders:
            reports = Both(reports, recorders[file.task])
        journal, line = journals.of(file, reports), task if hold is None else replace(task, hold=hold)
        pause = pauses.get(file.task)
        pipeline = Pipeline(
            line,
            journal,
            clock,
            sleep,
            shutdown=shutdown,
            telemetry=reports,
            pause=pause,
            arrivals=arrivals.get(file.task),
        )
        opened.append((file, pipeline))
    return opened


def assemble(
    configuration: Configuration,
    outputs: Mapping[str, Output],
    settlement: Settlement | None = None,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    clock: Clock | None = None,
    dry_run: bool = False,
) -> list[Task]:
    """
    Return the tasks of *configuration*, in its order; *outputs* are the outputs by alias of their connection.

    *settlement* is that of the host, None where no host delivers. Editors may read *settings*; in a *dry_run*
    they write to no store (`shared.editors.options.TaskFacts`).
    """
    secrets, clock = open_secrets(settings), clock or SystemClock()

    def facts(file: TaskFile) -> TaskFacts:
        origin = Origin(configuration.site(file.source.connection), file.source.entity)
        return TaskFacts(file.task, origin, settings, secrets, clock, dry_run, file.limits.edit_time.total_seconds())

    return [_task(file, configuration, outputs, settlement, facts(file)) for file in configuration.tasks]


def _task(
    file: TaskFile,
    configuration: Configuration,
    outputs: Mapping[str, Output],
    settlement: Settlement | None,
    facts: TaskFacts,
) -> Task:
    source = configuration.connections[file.source.connection].end
    has_texts = source.texts is not None
    is_opened = file.source.form == "envelope" or has_texts
    bindings: dict[tuple[Target, bool, int], BindingOutput] = {}

    def target(model: Target, *, is_opened: bool = False, body_only: bool = False) -> RoutedTarget:
        kind = configuration.connections[model.connection].end
        site = configuration.site(model.connection)
        texts = None
        if kind.texts is not None:
            texts = TextForm(
                file.task,
                f"{site}/{model.entity}",
                source.arrives_as,
                kind.texts.most_bytes,
                body_only,
                model.encoding or "text",
                is_event=kind.texts.is_event,
                is_xml=kind.texts.is_xml,
            )
        return RoutedTarget(
            outputs[model.connection],
            site,
            model.entity,
            partial(_fit_opened, kind) if is_opened else kind.fit(source.arrives_as),
            None if model.partition is None else str(model.partition),
            at_once=kind.sends_at_once and not file.in_order,
            texts=texts,
        )

    def target_of(route: RouteFile, model: Target) -> RoutedTarget:
        sent = target(model, is_opened=is_opened, body_only=route.body_only)
        if route.via == "sdk":
            return sent
        # Routes with equal targets share an output, which keeps the order of what they send.
        options = (model, route.body_only, route.max_message_bytes)
        binding = bindings.get(options)
        if binding is None:
            form = TextForm(file.task, str(sent), source.arrives_as, route.max_message_bytes, route.body_only)
            key = configuration.connections[model.connection].key
            binding = bindings[options] = BindingOutput(form, sent.site, key, _binding_kind(model), sent.entity)
        # An envelope holds a message as it is, whatever the kind of the channel.
        fit = sent.fit if route.body_only else None
        return sent._replace(output=sent.output if facts.dry_run else binding, fit=fit, binding=binding, at_once=False)

    partitions = file.source.partitions
    routes = [
        Route(
            target_of(route, route.targets[0]),
            parse_filter(route.when) if route.when is not None else None,
            parse_action(route.action) if route.action is not None else None,
            [target_of(route, other) for other in route.targets[1:]],
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
        opens_envelopes=is_opened,
        opens_some=has_texts,
        has_order=not has_texts,
        restore=source.restore(file.source),
        partitions=None if partitions is None else frozenset(map(str, partitions)),
        one_by_one=file.levers.dispatch == "single" or has_texts,
        settlement=settlement if source.settles_singly else None,
        hold=file.limits.hold if file.source.webhook is None else min(file.limits.hold, LONGEST_REQUEST),
        rate=file.limits.rate,
        rejects_in_a_row=file.most_rejects_in_a_row,
        edit_seconds=file.limits.edit_time.total_seconds(),
        heartbeat_targets=[target(each) for each in heartbeat_targets(file)],
        dry_run=facts.dry_run,
    )


def _binding_kind(target: Target) -> Literal["queue", "topic", "hub"]:
    if target.kind == "address":
        raise ValueError("an address has no output binding")
    return target.kind


def _fit_opened(kind: Kind, message: Message) -> None:
    """Fit a message from an envelope to a target of *kind*, from the kind of its own source."""
    event = message.arrival.event
    fit = kind.fit(EVENT if event is not None and event.kind == EVENT else MESSAGE)
    if fit is not None:
        fit(message)


def source_attributes(file: TaskFile, configuration: Configuration) -> dict[str, str]:
    """Return the attributes that every measurement of a task has."""
    source = file.source
    is_hub = source.hub is not None
    attributes = {
        names.TASK: file.task,
        names.SOURCE: f"{configuration.site(source.connection)}/{source.entity}",
        names.SYSTEM: configuration.connections[source.connection].end.system,
        names.DESTINATION: source.sent_to or source.webhook,
        names.SUBSCRIPTION: source.subscription,
        names.CONSUMER_GROUP: (source.consumer_group or DEFAULT_CONSUMER_GROUP) if is_hub else None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _time_to_live(file: TaskFile) -> TimeToLive:
    if isinstance(file.ttl, StampedLife):
        return Stamp(file.ttl.stamp)
    return Keep() if file.ttl == "keep" else Remaining()
