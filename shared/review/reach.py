"""
Finds entities that messages do not reach, or reach twice, because of loop prevention or marks.

Messages are followed twice from every source: with loop prevention and the marks that rules set, and without both. An
entity that only the second run reaches is cut off by loop prevention or by a mark.
"""

from collections import Counter, deque
from collections.abc import Iterator

from shared.review.checks import Check, Checks, Finding
from shared.review.known_properties import Unknown
from shared.review.network import Network, compact
from shared.review.paths import Node, Passage, Stop
from shared.tasks.models import TaskFile

_MOST_PASSAGES = 2_000
# Dead-letter histories longer than this are treated as equal.
_MOST_DEATHS = 3


def findings(network: Network) -> Iterator[Finding]:
    """Yield a finding for each route that cuts an entity off, and for each entity that messages reach twice."""
    origins: dict[tuple[Node, bool | str], list[TaskFile]] = {}
    for task in network.tasks:
        origins.setdefault((network.source_node(task.source), task.source.dead_letter), []).append(task)
    followed = {origin: _followed(network, tasks, unhindered=False) for origin, tasks in origins.items()}
    is_complete = all(all_followed for _, _, all_followed in followed.values())
    reached: dict[Node, set[Node]] = {}
    cut: list[tuple[Node, Stop]] = []
    # The second run is only compared with the stops of the first: without one, nothing was cut off.
    if any(stops for _, stops, _ in followed.values()):
        for (node, kind), tasks in origins.items():
            unhindered, _, all_wished = _followed(network, tasks, unhindered=True)
            hindered, stops, all_followed = followed[node, kind]
            reached.setdefault(node, set()).update(unhindered)
            is_complete &= all_wished
            if all_followed:
                cut += [(node, stop) for stop in stops if stop.node in unhindered - hindered - {node}]
    reported: set[tuple[str, int | None, Node, Check]] = set()
    for origin, stop in cut:
        check = _check_of(origin, stop, reached)
        if check is None:
            continue
        key = (stop.edge.task.task, stop.edge.route, stop.node, check)
        if key not in reported:
            reported.add(key)
            yield _finding_of(network, stop, check)
    yield from _arrivals(network)
    if not is_complete:
        seen = f"{len(network.tasks)} tasks with more paths than the check can follow"
        yield Finding(Checks.TOO_MANY_WAYS, "tasks", seen)


def _followed(network: Network, tasks: list[TaskFile], *, unhindered: bool) -> tuple[set[Node], list[Stop], bool]:
    """Return the entities that messages from the source of *tasks* reach, the stops, and whether that is all."""
    reached: set[Node] = set()
    stops: list[Stop] = []
    seen: set[object] = set()
    waiting = deque((task, network.start(task)) for task in tasks)
    while waiting:
        reader, passage = waiting.popleft()
        way = network.through(reader, passage, unhindered=unhindered)
        stops += way.stops
        for _, onward in way.onward:
            reached.add(onward.node)
            key = _key(onward, unhindered=unhindered)
            if key not in seen:
                seen.add(key)
                waiting += [(reader, onward) for reader in network.readers(onward.node)]
        if len(seen) > _MOST_PASSAGES:
            return reached, stops, False
    return reached, stops, True


def _key(passage: Passage, *, unhindered: bool) -> object:
    """Return the facts that distinguish messages at one entity; of the history, only what guards and conditions use."""
    path = frozenset() if unhindered else frozenset(passage.path)
    deaths = min(passage.deaths, _MOST_DEATHS)
    return passage.node, frozenset(compact(passage.facts).items()), passage.marks, path, deaths


def _check_of(origin: Node, stop: Stop, reached: dict[Node, set[Node]]) -> Check | None:
    match stop.cause:
        case "site":
            return Checks.GUARD_WITHHOLDS
        case "hops":
            return Checks.HOPS_TOO_FEW
        case "mark":
            return Checks.ONE_BIT_MARK if origin in reached.get(stop.node, ()) else Checks.MARK_ENDS_CHAIN
        case _:
            return None


def _finding_of(network: Network, stop: Stop, check: Check) -> Finding:
    task, target = stop.edge.task, network.label(stop.edge.target)
    if check is Checks.GUARD_WITHHOLDS:
        site = network.configuration.site(stop.edge.target.connection)
        seen = f"messages from {stop.passage} are not sent to {target}: they have already been at {site}"
        return Finding(check, network.place(task, "loop_prevention"), seen)
    if check is Checks.HOPS_TOO_FEW:
        hop = len(stop.passage.path) + 1
        seen = f"messages from {stop.passage} are not sent to {target}: that would be hop {hop}"
        return Finding(check, network.place(task, "loop_prevention.max_hops"), seen)
    seen = f"messages from {stop.passage} carry the mark and are not sent to {target}"
    path = "source.subscription" if task.source.rule is None else "source.rule.filter"
    return Finding(check, network.place(task, path if task.source.subscription is not None else "editors"), seen)


def _arrivals(network: Network) -> Iterator[Finding]:
    """Yield the entities that receive a plain message twice, each entity once."""
    reported: set[Node] = set()
    for origin in network.tasks:
        if origin.source.dead_letter or network.readers(network.source_node(origin.source))[0] is not origin:
            continue
        ways: dict[Node, list[Passage]] = {}
        for passage in _plain_message(network, origin):
            ways.setdefault(passage.node, []).append(passage)
        for node, passages in ways.items():
            if len(passages) > 1 and node not in reported and not _detects_duplicates(network, passages[0]):
                reported.add(node)
                seen = f"every message reaches {passages[0].way[-1]} twice: through {passages[0]} and {passages[1]}"
                yield Finding(Checks.ARRIVES_TWICE, network.place(origin, "routes"), seen)


def _plain_message(network: Network, origin: TaskFile) -> Iterator[Passage]:
    """Yield the places to which a message without properties certainly goes from the source of *origin*."""
    start = network.start(origin, Unknown.ABSENT)
    arrivals: Counter[Node] = Counter([start.node])
    waiting = deque([start])
    while waiting:
        passage = waiting.popleft()
        for task in _independent_readers(network, passage.node):
            for _, onward in network.through(task, passage).onward:
                if not onward.is_certain or onward.node in onward.visited:
                    continue
                arrivals[onward.node] += 1
                yield onward
                if arrivals[onward.node] <= 2:  # noqa: PLR2004 - twice is what is looked for
                    waiting.append(onward)


def _independent_readers(network: Network, node: Node) -> list[TaskFile]:
    """Return the tasks that receive every message: the first of competing tasks, and none for dead letters."""
    readers = [task for task in network.readers(node) if not task.source.dead_letter]
    return list({(task.source.entity.lower(), task.source.consumer_group): task for task in reversed(readers)}.values())


def _detects_duplicates(network: Network, passage: Passage) -> bool:
    for _, branch in network.senders(passage.node):
        taker = network.taker(branch.target)
        return taker is not None and taker.requires_duplicate_detection
    return False
