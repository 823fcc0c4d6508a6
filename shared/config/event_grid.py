"""What tasks can ask of Event Grid, and what not."""

from collections.abc import Iterator, Mapping, Sequence

from shared.config.journal_models import JournalFile
from shared.config.models import Connection, TaskFile
from shared.config.one_by_one import has_chains, keeps_order, one_by_one_problems
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
    elif has_chains(task):
        yield Problem(f"{place}: editors", "has editors that need an order, and Event Grid keeps none")
    yield from one_by_one_problems(task, journal, place, _BY_REQUEST)
