"""The message for each route: one that the rules of the source select, and that the task itself sends by this route."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from cli.dry_run.line import Result, dry_task, try_batches
from cli.dry_run.recorded_messages import arrived, read_messages, written
from cli.smoke.candidates import candidates
from shared.amqp.values import string
from shared.clock import SystemClock
from shared.codecs.envelope import MESSAGE
from shared.editors.filter import FilterStep
from shared.errors import BuswayError, MessageRejected
from shared.line.task import Task
from shared.line.text_form import TextForm
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.message.text_messages import MOST_QUEUE_BYTES
from shared.protocols import Outcome, Outgoing
from shared.review import Entities
from shared.rules import Rule, RuleEvaluationError, RuleSet, parse_action, parse_filter
from shared.rules.rule import SqlFilter
from shared.rules.syntax import Predicate
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.tasks.routes import Branch, Target

MARK = "busway-smoke"
"""The application property of every message of a smoke test; its value is the id of the run."""
LIFE_MILLISECONDS = 10 * 60 * 1000
_FIRST_PARTITION = "0"


class Route(NamedTuple):
    """One route of a task, or of a route with several targets the way to one of them; numbered together."""

    task: TaskFile
    number: int

    @property
    def branch(self) -> Branch:
        """Its place in the task."""
        return self.task.branches()[self.number]

    @property
    def target(self) -> Target:
        """Where it leads."""
        return self.branch.target

    def __str__(self) -> str:
        return f"{self.task.task}:{self.number}"


@dataclass(frozen=True)
class Probe:
    """A message for a route."""

    route: Route
    outgoing: Outgoing
    message_id: str
    session_id: str | None
    properties: Mapping[str, object]
    """Its application properties without the mark, for people."""


class Verdict(StrEnum):
    """What is known about a route after its message."""

    ARRIVED = "arrived"
    ACCEPTED = "accepted"
    """The journal says that the target has accepted it, but a consumer was faster than the look at the target."""
    NOT_ARRIVED = "not arrived"
    NOT_SENT = "not sent"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Report:
    """The result for one route."""

    route: Route
    verdict: Verdict
    detail: str
    seconds: float | None = None
    message_id: str | None = None


class Chooser:
    """Finds the messages of one run."""

    def __init__(
        self,
        configuration: Configuration,
        entities: Entities,
        settings: Mapping[str, str],
        run: str,
        messages: Path | None,
    ) -> None:
        """Mark the messages with *run*; choose from those of a file too. Raises ConfigError."""
        self._configuration = configuration
        self._entities = entities
        self._settings = settings
        self._clock = SystemClock()
        self._numbers = itertools.count(1)
        self._run = run
        self._given = (
            [] if messages is None else [message.content for message in read_messages(messages, self._clock.now())]
        )
        self._sent = 0

    async def choose(self, task: TaskFile, numbers: Sequence[int]) -> list[Probe | Report]:
        """Return the message for each route of *task*, or why it has none; raises ConfigError."""
        routes = [Route(task, number) for number in numbers]
        general = _obstacle(task)
        if general is not None:
            return [Report(route, Verdict.NOT_TRIED, general) for route in routes]
        line = dry_task(task, self._configuration, self._settings, self._clock)
        contents = [*self._contents(task, line)]
        arriving = [(sent, copy) for sent in contents for copy in self._copies(task, sent, line)]
        if not arriving:
            text = "the rules of the source select no message of --messages or made up"
            return [Report(route, Verdict.NOT_TRIED, text) for route in routes]
        partition = None if task.source.hub is None else str((task.source.partitions or (_FIRST_PARTITION,))[0])
        try:
            results = await try_batches(line, [(partition, [copy for _, copy in arriving])], self._clock)
        except BuswayError as error:
            return [Report(route, Verdict.NOT_TRIED, f"an editor cannot be tried: {error}") for route in routes]
        tried = [(sent, result) for (sent, _), result in zip(arriving, results, strict=True)]
        return [self._chosen(route, tried, line, partition) for route in routes]

    def _chosen(
        self, route: Route, tried: Sequence[tuple[bytes, Result]], line: Task, partition: str | None
    ) -> Probe | Report:
        if route.branch.route.via == "binding":
            return Report(
                route, Verdict.NOT_TRIED, "its target gets texts of a binding, which do not show their messages"
            )
        for sent, result in tried:
            if _route_taken(route.task, result) == route.branch.number:
                return self._probe(route, sent, line, partition)
        return Report(
            route,
            Verdict.NOT_TRIED,
            f"no message of --messages or made up takes it: {_why(result for _, result in tried)}",
        )

    def _probe(self, route: Route, sent: bytes, line: Task, partition: str | None) -> Probe:
        self._sent += 1
        message = Message.received(sent, line.origin)
        identity = f"{MARK}-{self._run}-{self._sent}"
        is_hub = route.task.source.hub is not None
        shown = {name: value.payload for name, value in message.application_properties() if name != MARK}
        message.message_id = string(identity)
        if is_hub:
            message.set_annotations({"x-opt-partition-key": None})
        else:
            message.session_id = identity
            message.time_to_live = LIFE_MILLISECONDS
        named = str(route.task.source.partitions[0]) if route.task.source.partitions else None
        content = message.encode()
        if self._configuration.connections[route.task.source.connection].end.texts is not None:
            form = TextForm(route.task.task, str(line.origin.entity), MESSAGE, MOST_QUEUE_BYTES)
            content = form.text(message, None).encode()
        outgoing = Outgoing(content, *message.envelope(), named if partition is not None else None)
        return Probe(route, outgoing, identity, None if is_hub else identity, shown)

    def _contents(self, task: TaskFile, line: Task) -> Iterator[bytes]:
        """Yield messages with the mark as they would be sent, encoded: those of the file, then made-up ones."""
        for each in self._given:
            try:
                message = Message.received(each, line.origin)
                message.set_properties({MARK: string(self._run)})
            except MessageRejected:
                continue
            yield message.encode()
        made = {
            "body": {MARK: self._run},
            "content_type": "application/json",
            "message_id": self._run,
            "properties": {MARK: self._run},
        }
        now = self._clock.now()
        for number, candidate in enumerate(candidates(self._predicates(task), made), 1):
            yield written(candidate, number, now).content

    def _predicates(self, task: TaskFile) -> Iterator[Predicate]:
        rules = self._rules(task)
        filters = [rule.filter for rule in rules or ()]
        filters += [parse_filter(route.when) for route in task.routes if route.when is not None]
        filters += [parse_filter(editor.rule) for editor in task.editors if isinstance(editor, FilterStep)]
        yield from (each.condition for each in filters if isinstance(each, SqlFilter))

    def _rules(self, task: TaskFile) -> Sequence[Rule] | None:
        """Return the rules of the source's subscription, None if it has none or they are unknown."""
        source = task.source
        if source.rule is not None:
            action = None if source.rule.action is None else parse_action(source.rule.action)
            return [Rule(task.task, parse_filter(source.rule.filter), action)]
        known = self._entities.subscription(self._configuration.connections[source.connection], source)
        return None if known is None else known.rules

    def _copies(self, task: TaskFile, sent: bytes, line: Task) -> Iterator[bytes]:
        """Yield *sent* as the source delivers it to the task: the copies that its rules select."""
        message = Message.received(sent, line.origin)
        rules = self._rules(task)
        if rules is None:
            yield self._arrived(message)
            return
        selection = RuleSet(rules).select(RuleProperties(message))
        if selection.is_selected_as_is:
            yield self._arrived(message)
        for rule in selection.changed:
            copy = message.copy()
            try:
                rule.apply(RuleProperties(copy))
            except RuleEvaluationError:
                continue
            yield self._arrived(copy)

    def _arrived(self, message: Message) -> bytes:
        # A number of its own: a batch sends the message with one number once.
        return arrived(message, next(self._numbers), self._clock.now())


def _obstacle(task: TaskFile) -> str | None:
    if task.source.dead_letter:
        return "its source is a dead-letter queue, which takes no messages from senders"
    if task.source.form == "envelope":
        return "its source takes envelopes, which only a route with `via: binding` sends"
    return None


def _route_taken(task: TaskFile, result: Result) -> int | None:
    """Return the route by which the task would send a message, None if it would not send it."""
    if not any(end.outcome is Outcome.SENT for end in result.ends):
        return None
    routed = next((step for step in result.steps if step.name == "routes"), None)
    if routed is None:
        return None
    properties = RuleProperties(routed.before)
    for number, route in enumerate(task.routes):
        if route.when is None or parse_filter(route.when).matches(properties):
            return number
    return None


def _why(results: Iterable[Result]) -> str:
    """Return what happens to the messages instead."""
    found: dict[str, None] = {}
    for result in results:
        for end in result.ends:
            reason = f"to {end.target}" if end.outcome is Outcome.SENT else f"{end.outcome}, {end.reason}"
            found[reason] = None
    return "; ".join([*found][:3]) or "the task does not read them"
