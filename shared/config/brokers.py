"""What tasks cannot ask of brokers of other kinds."""

from collections.abc import Iterator, Mapping, Sequence

from shared.config.models import Connection, TaskFile
from shared.errors import Problem


def broker_problems(
    tasks: Sequence[TaskFile], connections: Mapping[str, Connection], places: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the tasks whose targets at a broker have no single meaning there."""
    kinds: dict[tuple[str, str], str] = {}
    for task in tasks:
        place = places[task.task.lower()]
        targets = [each for each in task.targets() if not connections[each.connection].is_namespace]
        if targets and task.heartbeat is not None and not task.heartbeat.visible:
            text = f"has a target of kind {connections[targets[0].connection].kind}, which hides no heartbeats"
            yield Problem(f"{place}: heartbeat", text, "set `visible: true`, or remove it")
        for target in targets:
            other = kinds.setdefault((target.connection, target.entity), target.kind)
            if other != target.kind:
                here, elsewhere = ("an address" if kind == "address" else f"a {kind}" for kind in (target.kind, other))
                text = f"{target.entity!r} of {target.connection} is {here} here and elsewhere {elsewhere}"
                yield Problem(place, text, "give one of them a connection of its own")
