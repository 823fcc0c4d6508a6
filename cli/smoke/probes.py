"""The message for each route: one that the rules of the source select, and that the task itself sends by this route."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from cli.dry_run.line import Result, dry_task, try_batches
from cli.dry_run.messages import arrived, written
from cli.smoke.candidates import candidates
from shared.amqp.values import string
from shared.clock import Clock, SystemClock
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


@dataclass
class Chooser:
    """Finds the messages of one run, which have its mark: among those that are *given*, and made-up ones."""

    configuration: Configuration
    entities: Entities
    settings: Mapping[str, str]
    run: str
    given: Sequence[bytes]
    clock: Clock = field(default_factory=SystemClock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _sent: int = 0

    async def choose(self, task: TaskFile, numbers: Sequence[int]) -> list[Probe | Report]:
        """Return the message for each route of *task*, or why it has none; raises ConfigError."""
        routes = [Route(task, number) for number in numbers]
        if task.source.dead_letter:
            return _untried(routes, "its source is a dead-letter queue, which takes no messages from senders")
        if task.source.form == "envelope":
            return _untried(routes, "its source takes envelopes, which only a route with `via: binding` sends")
        line = dry_task(task, self.configuration, self.settings, self.clock)
        contents = [*self._contents(task, line)]
        arriving = [(sent, copy) for sent in contents for copy in self._copies(task, sent, line)]
        if not arriving:
            return _untried(routes, "the rules of the source select no message of --messages or made up")
        partition = None if task.source.hub is None else str((task.source.partitions or (_FIRST_PARTITION,))[0])
        try:
            results = await try_batches(line, [(partition, [copy for _, copy in arriving])], self.clock)
        except BuswayError as error:
            return _untried(routes, f"an editor cannot be tried: {error}")
        tried = [(sent, result) for (sent, _), result in zip(arriving, results, strict=True)]
        return [self._chosen(route, tried, line, partition) for route in routes]

    def _chosen(
        self, route: Route, tried: Sequence[tuple[bytes, Result]], line: Task, partition: str | None
    ) -> Probe | Report:
        if route.branch.route.via == "binding":
            text = "its target gets texts of a binding, which do not show their messages"
            return Report(route, Verdict.NOT_TRIED, text)
        for sent, result in tried:
            if _route_taken(route.task, result) == route.branch.number:
                return self._probe(route, sent, line, partition)
        instead = dict.fromkeys(
            f"to {end.target}" if end.outcome is Outcome.SENT else f"{end.outcome}, {end.reason}"
            for _, result in tried
            for end in result.ends
        )
        why = "; ".join([*instead][:3]) or "the task does not read them"
        return Report(route, Verdict.NOT_TRIED, f"no message of --messages or made up takes it: {why}")

    def _probe(self, route: Route, sent: bytes, line: Task, partition: str | None) -> Probe:
        self._sent += 1
        message = Message.received(sent, line.origin)
        identity = f"{MARK}-{self.run}-{self._sent}"
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
        if self.configuration.connections[route.task.source.connection].end.texts is not None:
            form = TextForm(route.task.task, str(line.origin.entity), MESSAGE, MOST_QUEUE_BYTES)
            content = form.text(message, None).encode()
        outgoing = Outgoing(content, *message.envelope(), named if partition is not None else None)
        return Probe(route, outgoing, identity, None if is_hub else identity, shown)

    def _contents(self, task: TaskFile, line: Task) -> Iterator[bytes]:
        """Yield messages with the mark as they would be sent, encoded: those of the file, then made-up ones."""
        for each in self.given:
            try:
                message = Message.received(each, line.origin)
                message.set_properties({MARK: string(self.run)})
            except MessageRejected:
                continue
            yield message.encode()
        made = {
            "body": {MARK: self.run},
            "content_type": "application/json",
            "message_id": self.run,
            "properties": {MARK: self.run},
        }
        filters = [rule.filter for rule in self._rules(task) or ()]
        filters += [parse_filter(route.when) for route in task.routes if route.when is not None]
        filters += [parse_filter(editor.rule) for editor in task.editors if isinstance(editor, FilterStep)]
        predicates = [each.condition for each in filters if isinstance(each, SqlFilter)]
        now = self.clock.now()
        for number, candidate in enumerate(candidates(predicates, made), 1):
            yield written(candidate, number, now).content

    def _rules(self, task: TaskFile) -> Sequence[Rule] | None:
        """Return the rules of the source's subscription, None if it has none or they are unknown."""
        source = task.source
        if source.rule is not None:
            action = None if source.rule.action is None else parse_action(source.rule.action)
            return [Rule(task.task, parse_filter(source.rule.filter), action)]
        known = self.entities.subscription(self.configuration.connections[source.connection], source)
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
        return arrived(message, next(self._numbers), self.clock.now())


def _untried(routes: Iterable[Route], text: str) -> list[Probe | Report]:
    return [Report(route, Verdict.NOT_TRIED, text) for route in routes]


def _route_taken(task: TaskFile, result: Result) -> int | None:
    """Return the route by which the task would send a message, None if it would not send it."""
    if not any(end.outcome is Outcome.SENT for end in result.ends):
        return None
    routed = next((RuleProperties(step.before) for step in result.steps if step.name == "routes"), None)
    for number, route in enumerate(task.routes if routed is not None else ()):
        if route.when is None or (routed is not None and parse_filter(route.when).matches(routed)):
            return number
    return None
