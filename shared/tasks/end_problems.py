"""What tasks ask of their sources and targets that the kinds of these cannot do."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from shared.ends.kind import Kind, Texts
from shared.ends.registry import kinds
from shared.errors import Problem
from shared.tasks.journal_models import JournalFile
from shared.tasks.models import CHAINS, Connection, TaskFile
from shared.tasks.routes import Target


def end_problems(
    tasks: Sequence[TaskFile],
    connections: Mapping[str, Connection],
    journal: JournalFile | None,
    places: Mapping[str, str],
) -> Iterator[Problem]:
    """Yield what tasks ask of sources and targets that cannot do it, and options of other kinds."""
    named: dict[tuple[str, str], str] = {}
    for task in tasks:
        place = places[task.task.lower()]
        yield from _of_brokers(task, connections, place, named)
        yield from _of_source(task, connections[task.source.connection].end, journal, place)
        yield from _of_targets(task, connections, place)


def _of_brokers(
    task: TaskFile, connections: Mapping[str, Connection], place: str, named: dict[tuple[str, str], str]
) -> Iterator[Problem]:
    """Yield the targets at brokers of others that have no single meaning there; *named* has those of earlier tasks."""
    targets = [target for target in task.targets() if not connections[target.connection].is_namespace]
    if targets and task.heartbeat is not None and not task.heartbeat.visible:
        text = f"has a target of kind {connections[targets[0].connection].kind}, which hides no heartbeats"
        yield Problem(f"{place}: heartbeat", text, "set `visible: true`, or remove it")
    for target in targets:
        other = named.setdefault((target.connection, target.entity), target.kind)
        if other != target.kind:
            here, elsewhere = ("an address" if kind == "address" else f"a {kind}" for kind in (target.kind, other))
            text = f"{target.entity!r} of {target.connection} is {here} here and elsewhere {elsewhere}"
            yield Problem(place, text, "give one of them a connection of its own")


def _of_source(task: TaskFile, kind: Kind, journal: JournalFile | None, place: str) -> Iterator[Problem]:
    source = task.source
    if source.queue is not None:
        yield from _name(source.queue, kind, f"{place}: source.queue", is_source=True)
    if source.encoding is not None and not _has_encoding(kind):
        yield Problem(f"{place}: source", f"has an encoding, expected only for {_nouns(_has_encoding)}")
    if kind.texts is None:
        return
    for path, text, hint in kind.texts.faults(source, _has_chains(task)):
        yield Problem(f"{place}: {path}", text, hint)
    yield from _one_by_one(task, journal, place, kind.texts)


def _of_targets(task: TaskFile, connections: Mapping[str, Connection], place: str) -> Iterator[Problem]:
    for path, target in task.ends():
        yield from _of_target(target, connections[target.connection].end, f"{place}: {path}")
    for branch in task.branches():
        is_text = connections[branch.target.connection].end.texts is not None
        if branch.route.via == "sdk" and branch.route.body_only and not is_text:
            expected = _nouns(lambda kind: kind.texts is not None, " or for ")
            text = f"has body_only, expected only with `via: binding`, for {expected}"
            yield Problem(f"{place}: {branch.path.removesuffix('.target')}", text)
    yield from _of_one_name(task, connections, place)
    unordered = [connections[branch.target.connection].end for branch in task.branches()]
    for kind in dict.fromkeys(kind.noun for kind in unordered if kind.texts is not None) if _keeps_order(task) else ():
        text = f"keeps an order of messages, and {kind} has none"
        yield Problem(place, text, "send to a queue or topic of Service Bus, or take from a queue without sessions")


def _of_one_name(task: TaskFile, connections: Mapping[str, Connection], place: str) -> Iterator[Problem]:
    """Yield targets of one route that journals and rejects could not distinguish."""
    seen: dict[tuple[int, str, str], str] = {}
    for branch in task.branches():
        alias = branch.target.connection
        site = connections[alias].site or alias
        other = seen.setdefault((branch.number, site, branch.target.entity.lower()), alias)
        if other != alias:
            text = f"{site}/{branch.target.entity} is the name of two targets of the route, by {other} and {alias}"
            yield Problem(f"{place}: {branch.path}", text, "give one of the connections a site of its own")


def _of_target(target: Target, kind: Kind, path: str) -> Iterator[Problem]:
    if target.queue is not None:
        yield from _name(target.queue, kind, f"{path}.queue", is_source=False)
    if target.encoding is not None and not _has_encoding(kind):
        yield Problem(path, f"has an encoding, expected only for {_nouns(_has_encoding)}")


def _name(queue: str, kind: Kind, path: str, *, is_source: bool) -> Iterator[Problem]:
    expected = kind.name_fault(queue, is_source)
    if expected is not None:
        yield Problem(path, f"{queue!r} is not a name of {kind.noun}, expected {expected}")


def _one_by_one(task: TaskFile, journal: JournalFile | None, place: str, texts: Texts) -> Iterator[Problem]:
    """Yield what a task asks of batches, and of a source with dead letters."""
    reason = texts.one_by_one
    if task.rejects is None:
        text = "has no rejects, expected a queue, topic or hub for rejected messages"
        yield Problem(place, text, "its source has no dead-letter queue")
    if task.throughput is not None or task.model_fields_set & {"lanes", "dispatch"}:
        yield Problem(place, f"has lanes, dispatch or throughput, expected none of them: {reason}")
    if task.heartbeat is not None:
        yield Problem(f"{place}: heartbeat", f"has heartbeats, expected none: {reason}", "remove it")
    if any(route.via == "binding" for route in task.routes):
        yield Problem(f"{place}: routes", f"has `via: binding`, expected none: {reason}", "send with the SDK")
    if journal is not None and journal.event_hub is not None and task.journal is not False:
        hint = "keep the journal in `blob`, or set `journal: off` in this task"
        yield Problem(f"{place}: source", f"the journal is in an event hub, and {reason}", hint)


def _has_chains(task: TaskFile) -> bool:
    """Return whether a task has editors that need the order of the source."""
    return any(step.verb() in CHAINS for step in task.editors)


def _keeps_order(task: TaskFile) -> bool:
    """Return whether a task keeps the order of sessions or of a chain; that of partitions may be given up."""
    return task.source.sessions or _has_chains(task) or any(step.verb() == "partition" for step in task.editors)


def _has_encoding(kind: Kind) -> bool:
    return kind.texts is not None and kind.texts.has_encoding


def _nouns(which: Callable[[Kind], bool], between: str = " or ") -> str:
    return between.join(kind.noun for kind in kinds(which))
