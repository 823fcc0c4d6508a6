"""What tasks can ask of the queues of a storage account, and what not."""

import re
from collections.abc import Iterator, Mapping, Sequence

from shared.config.journal_models import JournalFile
from shared.config.models import Connection, TaskFile
from shared.config.one_by_one import has_chains, keeps_order, one_by_one_problems
from shared.errors import Problem

STORAGE_QUEUE = "storage-queue"
# Azure Storage, "Naming queues and metadata"; with room for the end of the name of the poison queue.
_NAME = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_LONGEST_SOURCE = 63 - len("-poison")
_ONE_BY_ONE = "the host delivers each message of a storage queue by itself"


def storage_queue_problems(
    tasks: Sequence[TaskFile],
    connections: Mapping[str, Connection],
    journal: JournalFile | None,
    places: Mapping[str, str],
) -> Iterator[Problem]:
    """Yield what tasks ask of storage queues that these cannot do, and options of storage queues elsewhere."""
    for task in tasks:
        place = places[task.task.lower()]
        if connections[task.source.connection].kind == STORAGE_QUEUE:
            yield from _of_source(task, journal, place)
        elif task.source.encoding is not None:
            yield Problem(f"{place}: source", "has an encoding, expected only for a storage queue")
        yield from _of_targets(task, connections, place)


def _of_source(task: TaskFile, journal: JournalFile | None, place: str) -> Iterator[Problem]:
    source = task.source
    yield from _name(source.queue or "", f"{place}: source.queue", _LONGEST_SOURCE)
    if source.sessions or source.dead_letter:
        text = "has sessions or dead_letter, which a storage queue does not have"
        yield Problem(f"{place}: source", text, "its poison queue is a queue of its own, NAME-poison")
    if source.form == "envelope":
        text = "is envelope, expected none: envelopes of a storage queue are always opened"
        yield Problem(f"{place}: source.from", text)
    elif has_chains(task):
        text = "has editors that need an order, and a storage queue keeps none"
        yield Problem(f"{place}: editors", text, "take from a queue or subscription of Service Bus")
    yield from one_by_one_problems(task, journal, place, _ONE_BY_ONE)


def _of_targets(task: TaskFile, connections: Mapping[str, Connection], place: str) -> Iterator[Problem]:
    targets = {f"routes[{index}].target": route.target for index, route in enumerate(task.routes)}
    if task.rejects is not None:
        targets["rejects"] = task.rejects
    queues = {path: each for path, each in targets.items() if connections[each.connection].kind == STORAGE_QUEUE}
    for path, target in queues.items():
        yield from _name(target.queue or "", f"{place}: {path}.queue", 63)
    for path, target in targets.items():
        if path not in queues and target.encoding is not None:
            yield Problem(f"{place}: {path}", "has an encoding, expected only for a storage queue")
    for index, route in enumerate(task.routes):
        takes_bodies = connections[route.target.connection].kind in {STORAGE_QUEUE, "event-grid"}
        if route.via == "sdk" and route.body_only and not takes_bodies:
            text = "has body_only, expected only with `via: binding`, for a storage queue or for Event Grid"
            yield Problem(f"{place}: routes[{index}]", text)
    if any(path != "rejects" for path in queues) and keeps_order(task):
        text = "keeps an order of messages, and a storage queue has none"
        yield Problem(place, text, "send to a queue or topic of Service Bus, or take from a queue without sessions")


def _name(queue: str, path: str, longest: int) -> Iterator[Problem]:
    if not _NAME.fullmatch(queue) or len(queue) > longest:
        expected = f"3 to {longest} lower-case letters, digits and single hyphens, none at an end"
        yield Problem(path, f"{queue!r} is not a name of a storage queue, expected {expected}")
