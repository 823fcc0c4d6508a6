"""Checks taps against the tasks: a tap must read the source of its task or one of its targets."""

from collections.abc import Iterator, Mapping, Sequence

from shared.errors import Problem
from shared.rules import parse_filter
from shared.tasks.journal_models import JournalFile, TapFile
from shared.tasks.models import TaskFile
from shared.tasks.source import Source

_EVERYTHING = "1 = 1"


def tap_problems(
    taps: Sequence[TapFile], tasks: Sequence[TaskFile], journal: JournalFile | None, places: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the problems of *taps*; *places* are their files, by name in lower case."""
    by_name = {task.task: task for task in tasks}
    for tap in taps:
        place = places[tap.task.lower()]
        task = by_name.get(tap.tap.of)
        if journal is None:
            yield Problem(place, "there is no journal to write to", "add journal.yaml with the place of the journal")
        elif tap.tap.peek is not None and journal.blob is None:
            text = "peeks, but a journal in an event hub cannot store the position of the tap"
            yield Problem(f"{place}: tap.peek", text, "keep the journal in `blob`, or drain a subscription")
        if task is None:
            known = ", ".join(by_name) or "none"
            yield Problem(f"{place}: tap.of", f"unknown task {tap.tap.of!r}", f"the tasks are {known}")
        elif not _looks_at(tap, task):
            ends = {"source": "receives from", "target": "sends to"}[tap.tap.side]
            yield Problem(f"{place}: source", f"is not what {task.task!r} {ends}", "tap the same entity")
        elif tap.tap.side == "target" and _sees_texts(tap, task):
            text = f"{task.task!r} sends there with `via: binding`: texts do not show which messages they are"
            yield Problem(f"{place}: source", text, "tap a target that is sent to with the SDK")
        elif tap.tap.side == "source" and tap.tap.peek is None and not is_same_entity(tap, task):
            yield from _selecting_other_messages(tap, task, place)
        if tap.tap.peek is None:
            yield from _competing(tap, [*tasks, *taps], place)


def is_same_entity(tap: TapFile, task: TaskFile) -> bool:
    """Return whether a tap of the source sees messages with the same sequence numbers as the task."""
    return _path(tap.source) == _path(task.source)


def _looks_at(tap: TapFile, task: TaskFile) -> bool:
    seen, taken = tap.source, task.source
    if tap.tap.side == "target":
        return any(map(seen.gets, task.targets()))
    is_same = (seen.connection, seen.sent_to.lower()) == (taken.connection, taken.sent_to.lower())
    return is_same and bool(seen.dead_letter) == bool(taken.dead_letter)


def _sees_texts(tap: TapFile, task: TaskFile) -> bool:
    """Return whether output bindings send to the entity that *tap* reads."""
    return any(branch.route.via == "binding" for branch in task.branches() if tap.source.gets(branch.target))


def _selecting_other_messages(tap: TapFile, task: TaskFile, place: str) -> Iterator[Problem]:
    taken, seen = _selected(task.source), _selected(tap.source)
    if taken != seen:
        # A message that only the tap gets would count as missing.
        text = f"its rule selects {seen}, {task.task!r} selects {taken}; a message of only one would count as missing"
        yield Problem(f"{place}: source.rule", text, "give the tap's subscription a rule with the same filter")


def _selected(source: Source) -> str:
    return _EVERYTHING if source.rule is None else str(parse_filter(source.rule.filter))


def _competing(tap: TapFile, readers: Sequence[TaskFile | TapFile], place: str) -> Iterator[Problem]:
    for other in readers:
        if other is not tap and tap.source.hub is None and _path(other.source) == _path(tap.source):
            if isinstance(other, TapFile) and other.tap.peek is not None:
                continue
            text = f"drains the entity of {other.task!r}, and each would receive only some of the messages"
            yield Problem(f"{place}: source", text, "give the tap its own subscription, or use tap.peek")


def _path(source: Source) -> tuple[str, str]:
    return source.connection, source.entity.lower()
