"""What tasks cannot ask of a source or target without an order, whose messages are delivered one by one."""

from collections.abc import Iterator

from shared.config.journal_models import JournalFile
from shared.config.models import TaskFile
from shared.errors import Problem

_CHAINS = frozenset(("chain", "verify-chain"))


def has_chains(task: TaskFile) -> bool:
    """Return whether a task has editors that need the order of the source."""
    return any(step.verb() in _CHAINS for step in task.editors)


def keeps_order(task: TaskFile) -> bool:
    """Return whether a task keeps the order of sessions or of a chain; that of partitions may be given up."""
    return task.source.sessions or has_chains(task) or any(step.verb() == "partition" for step in task.editors)


def one_by_one_problems(task: TaskFile, journal: JournalFile | None, place: str, reason: str) -> Iterator[Problem]:
    """Yield what a task asks of batches, and of a source with dead letters; *reason* says why it cannot have them."""
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
