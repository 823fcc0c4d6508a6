"""A smoke test: messages for some routes that are shown, or sent, reported and removed."""

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from cli.dry_run.messages import read_messages
from cli.output import print_problems
from cli.smoke.passage import Passages
from cli.smoke.probes import Chooser, Probe, Report, Route, Verdict
from cli.smoke.watches import EntityWatch, HubWatch, Watch, places_on_the_way, remove
from shared.assembly.outputs import closing_outputs
from shared.clock import SystemClock
from shared.ends.kind import Holds
from shared.errors import ConfigError, Problem
from shared.printable import json_line, printable
from shared.resend.places import SUBSCRIPTION, Place, entity_named, place_at
from shared.review import Entities
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target

_GOOD, _BAD, _INCOMPLETE = 0, 1, 2
_AT_ONCE = 8


def routes_named(names: Sequence[str], configuration: Configuration) -> dict[str, tuple[TaskFile, list[int]]]:
    """Return the tasks with the numbers of their routes; raises ConfigError for unknown ones."""
    tasks = {task.task: task for task in configuration.tasks}
    if not names:
        return {name: (task, list(range(len(task.branches())))) for name, task in tasks.items()}
    found: dict[str, tuple[TaskFile, list[int]]] = {}
    problems = []
    for text in names:
        name, is_numbered, number = text.partition(":")
        task = tasks.get(name)
        if task is None:
            problems.append(Problem(f"--routes {text}", "unknown task", f"expected one of {', '.join(tasks)}"))
            continue
        count = len(task.branches())
        if is_numbered and not (number.isdecimal() and int(number) < count):
            expected = f"expected {name}:0 to {name}:{count - 1}"
            problems.append(Problem(f"--routes {text}", "unknown route", expected))
            continue
        numbers = found.setdefault(name, (task, []))[1]
        numbers += [each for each in ([int(number)] if is_numbered else range(count)) if each not in numbers]
    if problems:
        raise ConfigError(problems)
    return found


class SmokeTest:
    """One run over some routes."""

    def __init__(
        self, folder: Path, configuration: Configuration, entities: Entities, watched: Sequence[str], *, as_json: bool
    ) -> None:
        """Look for messages of topics in the subscriptions *watched* too; raises ConfigError for another name."""
        self._folder = folder
        self._configuration = configuration
        self._entities = entities
        self._as_json = as_json
        self._id = uuid.uuid4().hex[:8]
        self._settings = dict(os.environ)
        self._named = [entity_named(each, configuration) for each in watched]
        for text, place in zip(watched, self._named, strict=True):
            if SUBSCRIPTION not in place.entity.lower():
                hint = "expected CONNECTION/TOPIC/Subscriptions/NAME"
                raise ConfigError([Problem(f"--watch {text}", "is not a subscription", hint)])

    async def run(
        self,
        wanted: Mapping[str, tuple[TaskFile, list[int]]],
        messages: Path | None,
        wait: float,
        *,
        is_sending: bool,
    ) -> int:
        """Choose from a file of *messages* too, and *wait* seconds for each; return the exit code."""
        given = [] if messages is None else [each.content for each in read_messages(messages, SystemClock().now())]
        chooser = Chooser(self._configuration, self._entities, self._settings, self._id, given)
        chosen = [each for task, numbers in wanted.values() for each in await chooser.choose(task, numbers)]
        probes = [each for each in chosen if isinstance(each, Probe)]
        untried = [each for each in chosen if isinstance(each, Report)]
        if not is_sending:
            self._show(probes, untried)
            return _INCOMPLETE if untried else _GOOD
        for report in untried:
            self._print(report)
        reports = [*untried, *await self._sent(probes, wait)]
        bad = sum(report.verdict in {Verdict.NOT_ARRIVED, Verdict.NOT_SENT} for report in reports)
        if not self._as_json:
            parts = [f"{len(reports) - bad - len(untried)} of {len(reports)} routes carry messages"]
            parts += [f"{bad} do not"] if bad else []
            parts += [f"{len(untried)} not tried"] if untried else []
            typer.echo(", ".join(parts))
        if bad:
            return _BAD
        return _INCOMPLETE if untried else _GOOD

    async def _sent(self, probes: Sequence[Probe], wait: float) -> list[Report]:
        room = asyncio.Semaphore(_AT_ONCE)
        async with closing_outputs(self._configuration, self._settings) as outputs:
            passages = Passages(self._configuration, self._folder, self._settings, outputs, self._id)

            async def one(probe: Probe) -> Report:
                async with room:
                    report = await passages.pass_through(probe, self._watches(probe.route), wait)
                self._print(report)
                return report

            try:
                return await asyncio.gather(*(one(probe) for probe in probes))
            finally:
                await self._remove(probes)

    async def _remove(self, probes: Sequence[Probe]) -> None:
        """Remove what the run has sent from every place where it may be, however the run ends."""
        places: dict[str, Place] = {}
        for probe in probes:
            for watch in self._watches(probe.route):
                if isinstance(watch, EntityWatch):
                    places[str(watch.place)] = watch.place
                await watch.close()
            for place in places_on_the_way(probe.route.task, self._configuration):
                places[str(place)] = place
        left = await asyncio.gather(*(remove(place, self._id, self._settings) for place in places.values()))
        print_problems([each for each in left if each is not None])

    def _watches(self, route: Route) -> list[Watch]:
        """Return where messages of *route* show, nothing for a topic whose subscriptions are unknown."""
        target = route.target
        connection = self._configuration.connections[target.connection]
        if connection.end.holds is Holds.RECORDS and connection.setting is not None:
            from cli.smoke.topic_watch import TopicWatch

            return [
                TopicWatch(
                    self._configuration.site(target.connection), connection.setting, target.entity, self._settings
                )
            ]
        if connection.setting is None or not connection.is_namespace:
            return []
        if target.hub is not None:
            site = self._configuration.site(target.connection)
            return [HubWatch(site, connection.setting, target.hub, self._settings)]
        entities = [target.queue] if target.queue is not None else self._subscriptions(target)
        places = [place_at(target.connection, entity, self._configuration) for entity in dict.fromkeys(entities)]
        return [EntityWatch(place, self._settings) for place in places]

    def _subscriptions(self, target: Target) -> list[str]:
        """Return the subscriptions of a topic: those of --watch, else those of entities/ and of the tasks."""
        site, topic = self._configuration.site(target.connection), target.topic or ""
        start = f"{topic}{SUBSCRIPTION}".lower()
        named = [place.entity for place in self._named if place.site == site and place.entity.lower().startswith(start)]
        if named:
            return named
        known = self._entities.topic(self._configuration.connections[target.connection], topic)
        if known is not None:
            return [f"{topic}/Subscriptions/{subscription.name}" for subscription in known.subscriptions]
        sources = [
            task.source for task in self._configuration.tasks if (task.source.topic or "").lower() == topic.lower()
        ]
        return [source.entity for source in sources if self._configuration.site(source.connection) == site]

    def _show(self, probes: Sequence[Probe], untried: Sequence[Report]) -> None:
        for probe in probes:
            source = probe.route.task.source
            start = f"{self._configuration.site(source.connection)}/{source.sent_to}"
            target = probe.route.target
            end = f"{self._configuration.site(target.connection)}/{target.entity}"
            properties = "".join(f" {name}={value}" for name, value in probe.properties.items())
            if self._as_json:
                shown = {"route": str(probe.route), "source": start, "target": end, "properties": {**probe.properties}}
                typer.echo(json_line(shown))
                continue
            typer.echo(printable(f"{probe.route}  {start} → {end}{properties}"))
            if target.topic is not None and not self._watches(probe.route):
                typer.echo(printable(f"    no subscription of {end} is known: name one with --watch"))
            takers = [
                task.task
                for task in self._configuration.tasks
                if target.queue is not None and task.source.gets(target) and not task.source.dead_letter
            ]
            if takers:
                typer.echo(
                    printable(f"    {', '.join(takers)} takes it from there: only the journal shows its arrival")
                )
        for each in untried:
            if self._as_json:
                typer.echo(json_line({"route": str(each.route), "not_tried": each.detail}))
            else:
                self._print(each)
        if probes and not self._as_json:
            typer.echo("Nothing was sent. Applications at these entities get the messages too; --yes sends them.")

    def _print(self, report: Report) -> None:
        if self._as_json:
            document = {
                "route": str(report.route),
                "result": report.verdict.value,
                "seconds": None if report.seconds is None else round(report.seconds, 3),
                "detail": report.detail,
                "message_id": report.message_id,
            }
            typer.echo(json_line(document))
            return
        taken = "" if report.seconds is None else f" after {report.seconds:.1f} s"
        typer.echo(printable(f"{report.route}  {report.verdict}{taken}: {report.detail}"))
        if report.verdict is Verdict.NOT_ARRIVED and report.message_id is not None:
            typer.echo(printable(f"    busway trace {report.message_id}"))
