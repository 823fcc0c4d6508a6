"""What tasks can ask of Event Grid, and what not."""

from collections.abc import Iterator, Mapping, Sequence

from shared.config.journal_models import JournalFile
from shared.config.models import Connection, TaskFile
from shared.config.storage_queues import CHAINS, keeps_order
from shared.errors import Problem

EVENT_GRID = "event-grid"
_BY_REQUEST = "each request of Event Grid is answered by itself"


def event_grid_problems(
    tasks: Sequence[TaskFile],
    connections: Mapping[str, Connection],
    journal: JournalFile | None,
    places: Mapping[str, str],
) -> Iterator[Problem]:
    """Yield what tasks ask of Event Grid that it cannot do."""
    for task in tasks:
        place = places[task.task.lower()]
        if task.source.webhook is not None:
            yield from _of_source(task, journal, place)
        if any(connections[route.target.connection].kind == EVENT_GRID for route in task.routes) and keeps_order(task):
            text = "keeps an order of messages, and Event Grid has none"
            hint = "send to a queue or topic of Service Bus, or take from a queue without sessions"
            yield Problem(place, text, hint)


def _of_source(task: TaskFile, journal: JournalFile | None, place: str) -> Iterator[Problem]:
    source = task.source
    if source.sessions or source.dead_letter or source.form == "envelope":
        text = "has sessions, dead_letter or from, expected none of them for a webhook"
        yield Problem(
            f"{place}: source", text, "envelopes are always opened; Event Grid keeps its dead letters in a blob"
        )
    elif any(step.verb() in CHAINS for step in task.editors):
        yield Problem(f"{place}: editors", "has editors that need an order, and Event Grid keeps none")
    if task.rejects is None:
        yield Problem(place, "has no rejects, expected a queue, topic or hub for rejected events")
    if task.trigger == "stock" or task.throughput is not None or task.model_fields_set & {"lanes", "dispatch"}:
        yield Problem(place, f"has trigger, lanes, dispatch or throughput, expected none of them: {_BY_REQUEST}")
    if task.heartbeat is not None:
        yield Problem(f"{place}: heartbeat", "has heartbeats, expected none for a webhook", "remove it")
    if any(route.via == "binding" for route in task.routes):
        yield Problem(f"{place}: routes", f"has `via: binding`, expected none: {_BY_REQUEST}", "send with the SDK")
    if journal is not None and journal.event_hub is not None and task.journal is not False:
        hint = "keep the journal in `blob`, or set `journal: off` in this task"
        yield Problem(f"{place}: source", f"the journal is in an event hub, and {_BY_REQUEST}", hint)
