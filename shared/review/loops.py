"""
Finds messages that return to an entity and are copied again.

Loop prevention in one task cuts every circle that the task is part of, at the latest by the number of hops. So only
tasks without it are searched, and `rejects`, to which it does not apply. Each circle is simulated: a message passes it
several times, and every rule sees the properties that rules and stamps have set.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shared.review.checks import Checks, Finding
from shared.review.edited_facts import is_history
from shared.review.network import Network, mark_keys
from shared.review.paths import Edge, Node, Passage
from shared.review.rules import action_texts
from shared.rules import parse_action

_ROUNDS = 6
_MOST_STEPS = 5_000
_MOST_LOOPS = 12
_MOST_ALTERNATIVES = 8


def findings(network: Network) -> Iterator[Finding]:
    """Yield each loop once, and the site names and actions that make loop prevention fail."""
    yield from _blinded_guards(network)
    search = _Search(network, is_history_kept=not any(True for _ in _changes_of_history(network)))
    for circle in search.circles():
        yield _finding(network, circle, is_certain=search.verdicts[circle])
    if search.steps > _MOST_STEPS or len(search.verdicts) > _MOST_LOOPS:
        seen = f"{len(network.tasks)} tasks, many of them without loop prevention"
        yield Finding(Checks.TOO_MANY_WAYS, "tasks", seen)


type Circle = tuple[Edge, ...]


@dataclass
class _Search:
    """Circles through the network, each found once, from the first of its entities."""

    network: Network
    is_history_kept: bool
    steps: int = 0
    verdicts: dict[Circle, bool] = field(default_factory=dict)
    _order: dict[Node, int] = field(default_factory=dict)

    def circles(self) -> list[Circle]:
        """Return the circles in which messages loop endlessly, or may."""
        nodes = self.network.nodes()
        self._order = {node: position for position, node in enumerate(nodes)}
        seen: set[frozenset[str]] = set()
        found = []
        for start in nodes:
            for circle in self._from(start, start, frozenset(), (), []):
                tasks = frozenset(edge.task.task for edge in circle)
                if tasks in seen:
                    continue
                verdict = self._verdict(circle)
                if verdict is not None:
                    seen.add(tasks)
                    self.verdicts[circle] = verdict
                    found.append(circle)
                if len(found) > _MOST_LOOPS:
                    return found[:_MOST_LOOPS]
        return found

    def _from(
        self, start: Node, node: Node, done: frozenset[Node], edges: Circle, passages: list[Passage]
    ) -> Iterator[Circle]:
        """Yield the circles from *start*, their first entity, that continue at *node* and can be passed once."""
        for task in self.network.readers(node):
            for edge in self.network.edges(task):
                self.steps += 1
                if self.steps > _MOST_STEPS:
                    return
                target = self.network.target_node(edge.target)
                # A circle through an earlier entity was found from there.
                is_done = target in done or self._order.get(target, len(self._order)) < self._order[start]
                if is_done or (task.loop_prevention and not edge.is_rejects and self.is_history_kept):
                    continue
                through = self._along(edge, passages or [self.network.start(task)])
                if target == start and through:
                    yield (*edges, edge)
                elif self.network.readers(target) and through:
                    yield from self._from(start, target, done | {target}, (*edges, edge), through)

    def _verdict(self, circle: Circle) -> bool | None:
        """Return whether messages certainly loop in this circle, None if they certainly do not."""
        passages = [self.network.start(circle[0].task)]
        for _ in range(_ROUNDS):
            passages = [replace(passage, is_certain=True) for passage in passages]
            for edge in circle:
                passages = self._along(edge, passages)
            if not passages:
                return None
        return any(passage.is_certain for passage in passages)

    def _along(self, edge: Edge, passages: list[Passage]) -> list[Passage]:
        """Return the *passages* that get through along *edge*, limited to a fixed number of alternatives."""
        found: list[Passage] = []
        for passage in passages:
            if edge.is_rejects:
                found += [onward for _, onward in self.network.rejected(edge.task, passage)]
            else:
                found += [onward for each, onward in self.network.through(edge.task, passage).onward if each == edge]
        return found[:_MOST_ALTERNATIVES]


def _finding(network: Network, circle: Circle, *, is_certain: bool) -> Finding:
    first = circle[0].task
    check = Checks.ENDLESS_LOOP
    if not is_certain:
        check = Checks.POSSIBLE_LOOP
    elif any(edge.is_rejects for edge in circle):
        check = Checks.LOOP_THROUGH_REJECTS
    elif any(edge.task.source.dead_letter for edge in circle):
        check = Checks.LOOP_THROUGH_DEAD_LETTERS
    way = " → ".join([network.label(first.source), *(network.label(edge.target) for edge in circle)])
    tasks = ", ".join(dict.fromkeys(edge.task.task for edge in circle))
    part = "rejects" if circle[0].is_rejects else f"routes[{circle[0].route}]"
    return Finding(check, network.place(first, part), f"messages loop: {way} (tasks {tasks})")


def _blinded_guards(network: Network) -> Iterator[Finding]:
    for place, name in _changes_of_history(network):
        yield Finding(Checks.HISTORY_CHANGED, place, f"changes {name}")
    aliases: dict[str, str] = {}
    for alias, connection in network.configuration.connections.items():
        other = aliases.setdefault(connection.key, alias)
        sites = network.configuration.site(other), network.configuration.site(alias)
        if sites[0] != sites[1]:
            seen = f"is the same namespace as {other!r}, but site {sites[1]!r} instead of {sites[0]!r}"
            yield Finding(Checks.TWO_NAMES_OF_A_NAMESPACE, f"connections.yaml: {alias}", seen)


def _changes_of_history(network: Network) -> Iterator[tuple[str, str]]:
    """Yield the place and property of every action that changes a message's history."""
    for task in network.tasks:
        for path, text in action_texts(task):
            for key in sorted(mark_keys(parse_action(text))):
                if is_history(key):
                    yield network.place(task, path), key[1]
