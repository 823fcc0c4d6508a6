"""
The tasks as a network: entities, and the paths of messages between them through tasks, rules and guards.

A message is followed with the known facts about its properties. `review.known_properties` evaluates rules, editors and
routes; stamps (`shared.message.metadata`) and loop guard (`shared.message.loop_prevention`) are those of the app.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shared.amqp.values import string
from shared.editors.filter import FilterStep
from shared.message.loop_prevention import LoopGuard
from shared.message.metadata import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    ENQUEUE_TIME,
    OFFSET,
    SAMPLE_ENQUEUE_TIME,
    SEPARATOR,
    SEQUENCE,
)
from shared.review.edited_facts import after_editor, filter_of, is_history, parsed_filter
from shared.review.entities import Entities, Hub, Namespace, Queue, Subscription, Topic
from shared.review.known_properties import (
    Facts,
    Key,
    Knowledge,
    Unknown,
    applied,
    key_of,
    satisfied,
    unsatisfied,
)
from shared.review.paths import DEAD_LETTER_SOURCE_KEY, PATH_KEY, Edge, Node, Passage, Stop, Way, history
from shared.rules import Action, CorrelationFilter, FalseFilter, Filter, SqlFilter, parse_action, parse_filter
from shared.rules.syntax import Scope
from shared.tasks.files import Configuration
from shared.tasks.models import Connection, TaskFile
from shared.tasks.routes import Branch, Target
from shared.tasks.source import Source

# System properties that every hop keeps.
_LASTING = frozenset(
    ["contenttype", "correlationid", "messageid", "replyto", "replytosessionid", "sessionid", "subject", "to"]
)

_SAMPLE_KEY: Key = (Scope.USER, SAMPLE_ENQUEUE_TIME)
# The consumer decides whether there is a reason, and of what type.
_DEAD_LETTER_REASONS: tuple[Key, ...] = tuple(
    (Scope.USER, name)
    for name in (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION, "deadletterreason", "deadlettererrordescription")
)

_MOST_ALTERNATIVES = 24


@dataclass(frozen=True, slots=True)
class Selection:
    """A rule of a source and its action; a filter of None is unknown."""

    filter: Filter | None
    action: Action | None = None


class Network:
    """The entities and tasks of one configuration."""

    def __init__(self, configuration: Configuration, entities: Entities) -> None:
        """Connect the entities of *configuration*; the subscriptions in *entities* override the declared rules."""
        self.configuration = configuration
        self.entities = entities
        self.tasks = configuration.tasks
        self._readers: dict[Node, list[TaskFile]] = {}
        for task in self.tasks:
            self._readers.setdefault(self.source_node(task.source), []).append(task)
        self._senders: dict[Node, list[tuple[TaskFile, Branch]]] = {}
        for task in self.tasks:
            for branch in task.branches():
                self._senders.setdefault(self.target_node(branch.target), []).append((task, branch))
        self._selections = {task.task: self._selections_of(task) for task in self.tasks}

    # Entities, as far as they are known

    def queue(self, end: Source | Target) -> Queue | None:
        """Return the queue that a source or target names, None if unknown."""
        return self.entities.queue(self.connection(end.connection), end.queue)

    def topic(self, end: Source | Target) -> Topic | None:
        """Return the topic that a source or target names, None if unknown."""
        return self.entities.topic(self.connection(end.connection), end.topic)

    def taker(self, target: Target) -> Queue | Topic | None:
        """Return the queue or topic of *target*, None for a hub or if unknown."""
        return self.queue(target) or self.topic(target)

    def hub(self, end: Source | Target) -> Hub | None:
        """Return the hub that a source or target names, None if unknown."""
        return self.entities.hub(self.connection(end.connection), end.hub)

    def subscription(self, source: Source) -> Subscription | None:
        """Return the subscription of *source*, None for another entity or if unknown."""
        return self.entities.subscription(self.connection(source.connection), source)

    def deliverer(self, source: Source) -> Queue | Subscription | None:
        """Return the queue or subscription of *source*, None for a hub or if unknown."""
        return self.queue(source) or self.subscription(source)

    def namespace(self, end: Source | Target) -> Namespace | None:
        """Return the namespace of a source or target, None if unknown."""
        return self.entities.namespace(self.connection(end.connection))

    # Names

    def connection(self, alias: str) -> Connection:
        """Return the connection of this alias."""
        return self.configuration.connections[alias]

    def place(self, task: TaskFile, path: str = "") -> str:
        """Return the file of a task, and the path of a part in it."""
        place = self.configuration.place(task)
        return f"{place}: {path}" if path else place

    def label(self, end: Source | Target) -> str:
        """Return site and entity, as in journals and log lines."""
        return f"{self.configuration.site(end.connection)}/{end.entity}"

    def source_node(self, source: Source) -> Node:
        """Return the entity that messages of *source* were sent to."""
        return Node(self.connection(source.connection).key, source.sent_to.lower())

    def target_node(self, target: Target) -> Node:
        """Return the entity that *target* names."""
        return Node(self.connection(target.connection).key, target.entity.lower())

    def readers(self, node: Node) -> list[TaskFile]:
        """Return the tasks that receive from *node* or its dead letters."""
        return self._readers.get(node, [])

    def senders(self, node: Node) -> list[tuple[TaskFile, Branch]]:
        """Return the branches of routes that send to *node*, each with its task."""
        return self._senders.get(node, [])

    def nodes(self) -> list[Node]:
        """Return every entity that a task takes from."""
        return list(self._readers)

    def edges(self, task: TaskFile) -> Iterator[Edge]:
        """Yield the ways out of *task*, `rejects` last."""
        for branch in task.branches():
            yield Edge(task, branch.target, branch.number)
        if task.rejects is not None:
            yield Edge(task, task.rejects, None)

    # Journeys

    def start(self, task: TaskFile, others: Unknown = Unknown.ANYTHING) -> Passage:
        """Return a message that an application has sent to the source of *task*."""
        facts = Facts({PATH_KEY: Unknown.ABSENT, DEAD_LETTER_SOURCE_KEY: Unknown.ABSENT}, others)
        return Passage(self.source_node(task.source), facts, (self.label(task.source),))

    def through(self, task: TaskFile, passage: Passage, *, unhindered: bool = False) -> Way:
        """
        Return the places to which *task* sends a message by its routes.

        *unhindered* ignores loop prevention and the marks that rules have set.
        """
        way = Way()
        for facts, is_certain, marks in self._selected(task, passage, way, unhindered=unhindered):
            arrived = replace(passage, facts=facts, is_certain=is_certain, marks=marks)
            for edge, onward in self._routed(task, arrived):
                cause = None if unhindered else self._objection(arrived, edge)
                if cause is None:
                    way.onward.append((edge, onward))
                else:
                    way.stops.append(Stop(arrived, edge, onward.node, cause))
        return way

    def rejected(self, task: TaskFile, passage: Passage) -> list[tuple[Edge, Passage]]:
        """Return a rejected message in the `rejects` of *task*: as received, without a stamp."""
        if task.rejects is None:
            return []
        edge, node = Edge(task, task.rejects, None), self.target_node(task.rejects)
        way = (*passage.way, self.label(task.rejects))
        selected = self._selected(task, passage, Way(), unhindered=False)
        return [(edge, Passage(node, facts, way, is_certain, marks)) for facts, is_certain, marks in selected]

    def _selected(
        self, task: TaskFile, passage: Passage, way: Way, *, unhindered: bool
    ) -> list[tuple[Facts, bool, frozenset[Key]]]:
        """Return the facts about messages that pass the rule and editors of *task*, and whether all pass."""
        facts = _after_a_hop(passage.facts)
        unmarked = facts.without(passage.marks)
        found = self._let_through(task, unmarked if unhindered else facts, passage)
        if not found and not unhindered:
            cause = "mark" if self._let_through(task, unmarked, passage) else "content"
            way.stops += [
                Stop(passage, edge, self.target_node(edge.target), cause)
                for edge in self.edges(task)
                if not edge.is_rejects
            ]
        return found

    def _let_through(self, task: TaskFile, facts: Facts, passage: Passage) -> list[tuple[Facts, bool, frozenset[Key]]]:
        found = []
        for selection in self._selections[task.task]:
            for after, is_certain in _filtered(selection.filter, facts):
                changed = after if selection.action is None else applied(selection.action, after)
                marks = passage.marks | mark_keys(selection.action)
                found.append((changed, passage.is_certain and is_certain, marks))
        for editor in task.editors:
            found = [
                # Most editors also depend on the body, which is unknown here.
                (after_editor(editor, after), is_certain and is_sure and isinstance(editor, FilterStep), marks)
                for each, is_certain, marks in found
                for after, is_sure in _filtered(filter_of(editor), each)
            ]
        return found

    def _routed(self, task: TaskFile, passage: Passage) -> Iterator[tuple[Edge, Passage]]:
        """Yield the message, stamped, for each route that can take it."""
        stamped = self._stamped(task, passage)
        remaining = [(stamped, passage.is_certain)]
        for index, route in enumerate(task.routes):
            taken, left = [], []
            for facts, is_certain in remaining:
                condition = None if route.when is None else parsed_filter(route.when).condition
                takes = [facts] if condition is None else satisfied(condition, facts)
                leaves = [] if condition is None else unsatisfied(condition, facts)
                taken += [(take, is_certain and not leaves) for take in takes]
                left += [(leave, is_certain and not takes) for leave in leaves]
            action = None if route.action is None else parse_action(route.action)
            for facts, is_certain in _few(taken, stamped):
                after = facts if action is None else applied(action, facts)
                visited = passage.visited | {passage.node}
                for target in route.targets:
                    way = (*passage.way, self.label(target))
                    onward = Passage(self.target_node(target), after, way, is_certain, passage.marks, visited)
                    yield Edge(task, target, index), onward
            remaining = _few(left, stamped)

    def _objection(self, arrived: Passage, edge: Edge) -> str | None:
        """Return why the task's loop prevention withholds a message, None if it does not."""
        guard = edge.task.loop_prevention
        site = self.configuration.site(edge.target.connection)
        visited = arrived.path
        if not guard or LoopGuard(guard.max_hops).objection(visited, site) is None:
            return None
        return "site" if site in visited else "hops"

    def _stamped(self, task: TaskFile, passage: Passage) -> Facts:
        source = task.source
        numbers = [ENQUEUE_TIME, SEQUENCE] if source.hub is None else [ENQUEUE_TIME, SEQUENCE, OFFSET]
        known = {**passage.facts.known, **{(Scope.USER, name): Unknown.SOMETHING for name in numbers}}
        path = _continued(passage.facts, PATH_KEY, self.configuration.site(source.connection))
        facts = Facts({**known, PATH_KEY: path, _SAMPLE_KEY: Unknown.ABSENT}, passage.facts.others)
        if not source.dead_letter:
            return facts
        entity = source.model_copy(update={"dead_letter": False}).entity
        reasons = dict.fromkeys(_DEAD_LETTER_REASONS, Unknown.ANYTHING)
        deaths = _continued(facts, DEAD_LETTER_SOURCE_KEY, entity)
        return Facts({**facts.known, **reasons, DEAD_LETTER_SOURCE_KEY: deaths}, facts.others)

    def _selections_of(self, task: TaskFile) -> list[Selection]:
        """Return the deployed rules of the source if known, else the declared ones."""
        source = task.source
        if source.subscription is None:
            return [Selection(parse_filter("1 = 1"))]
        deployed = self.subscription(source)
        if deployed is not None:
            return [Selection(rule.filter, rule.action) for rule in deployed.rules]
        if source.rule is None:
            return [Selection(None)]
        action = None if source.rule.action is None else parse_action(source.rule.action)
        return [Selection(parse_filter(source.rule.filter), action)]


def mark_keys(action: Action | None) -> frozenset[Key]:
    """Return the properties that *action* sets or removes."""
    return frozenset() if action is None else frozenset(key_of(statement.property) for statement in action.statements)


def compact(facts: Facts) -> Mapping[Key, Knowledge]:
    """Return *facts* without the history, which grows with every hop."""
    return {key: value for key, value in facts.known.items() if not is_history(key)}


def _few(found: list[tuple[Facts, bool]], facts: Facts) -> list[tuple[Facts, bool]]:
    """Return the alternatives; too many of them become one, which is possible but not certain."""
    return found if len(found) <= _MOST_ALTERNATIVES else [(facts, False)]


def _filtered(rule: Filter | None, facts: Facts) -> list[tuple[Facts, bool]]:
    """Return the facts about messages that a filter selects, and whether it certainly selects them."""
    if isinstance(rule, SqlFilter):
        is_certain = not unsatisfied(rule.condition, facts)
        return [(each, is_certain) for each in satisfied(rule.condition, facts)]
    if isinstance(rule, FalseFilter):
        return []
    # A correlation filter, like an unknown rule, may select the message or not.
    return [(facts, not (rule is None or isinstance(rule, CorrelationFilter)))]


def _continued(facts: Facts, key: Key, part: str) -> Knowledge:
    """Return a history with *part* appended; unknown if an action may have changed it."""
    if facts.of(key) in (Unknown.ANYTHING, Unknown.SOMETHING):
        return Unknown.SOMETHING
    return string(SEPARATOR.join([*history(facts, key), part]))


def _after_a_hop(facts: Facts) -> Facts:
    known = {key: value for key, value in facts.known.items() if key[0] is Scope.USER or key[1] in _LASTING}
    return Facts(known, facts.others)
