"""The heartbeats of tasks: where they go, and the rules that hide them."""

from collections.abc import Iterable, Iterator

from shared.message.heartbeat import ENTITY, HIDING, MARK
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target
from shared.tasks.source import Rule

_EVERYTHING = "1=1"


def heartbeat_targets(task: TaskFile) -> list[Target]:
    """
    Return where the heartbeats for each target of each route go, none if the task has none.

    Subscriptions of a topic hide them. A queue or a hub cannot, so that they go to an entity beside it.
    """
    if task.heartbeat is None:
        return []
    is_visible, targets = task.heartbeat.visible, (branch.target for branch in task.branches())
    return [target if target.topic is not None or is_visible else _beside(target) for target in targets]


def _beside(target: Target) -> Target:
    # A topic without a subscription accepts messages and keeps none.
    name = "hub" if target.hub is not None else "topic"
    return Target.model_validate({"connection": target.connection, name: ENTITY})


def heartbeat_topics(tasks: Iterable[TaskFile]) -> Iterator[tuple[str, str, str]]:
    """Yield each topic that gets heartbeats: the alias of its connection, its name, and the task."""
    for task in tasks:
        if task.heartbeat is None:
            continue
        if task.source.topic is not None:
            yield task.source.connection, task.source.topic, task.task
        yield from (
            (target.connection, target.topic, task.task)
            for target in heartbeat_targets(task)
            if target.topic not in (None, ENTITY)
        )


def source_rule(task: TaskFile) -> Rule | None:
    """Return the rule that the source of a task must have: the declared one, which also selects its heartbeats."""
    rule = task.source.rule
    if rule is None or task.heartbeat is None:
        return rule
    selecting = f"[{MARK}] = '{task.task}' OR ({HIDING} AND ({rule.filter}))"
    return Rule.model_validate({"filter": selecting, "action": rule.action})


def hiding(condition: str) -> str:
    """Return the filter of an application's rule that no longer selects heartbeats; it stays as it is if it does so."""
    if MARK in condition.lower():
        return condition
    return HIDING if condition.replace(" ", "") == _EVERYTHING else f"({condition}) AND {HIDING}"
