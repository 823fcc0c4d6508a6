"""Checks that sessions are used on both sides."""

from collections.abc import Iterator

from shared.review.checks import Checks, Finding
from shared.review.edited_facts import after_editor, filter_of
from shared.review.known_properties import PARTITION_KEY, SESSION_ID, Facts, Unknown, assigned, satisfied, unsatisfied
from shared.review.network import Network
from shared.rules import parse_filter
from shared.tasks.models import CHAINS, TaskFile
from shared.tasks.routes import Target


def findings(network: Network) -> Iterator[Finding]:
    """Yield the tasks with sessions on one side only."""
    for task in network.tasks:
        source = task.source
        deliverer = network.deliverer(source)
        if deliverer is not None and not source.dead_letter and deliverer.requires_session != source.sessions:
            has = "requires" if deliverer.requires_session else "does not require"
            seen = f"{network.label(source)} {has} sessions, the task says `sessions: {str(source.sessions).lower()}`"
            yield Finding(Checks.SESSIONS_MISMATCH, network.place(task, "source.sessions"), seen)
        for branch in task.branches():
            route, label = branch.route, network.label(branch.target)
            required = _required(network, branch.target)
            place = network.place(task, branch.path)
            if source.sessions and required == {False}:
                seen = f"nothing at {label} requires the sessions of {network.label(source)}"
                yield Finding(Checks.ORDER_LOST, place, seen)
            elif not source.sessions and True in required and SESSION_ID not in assigned(route.action):
                # A dead-letter sub-queue has no sessions, but dead letters of an entity with sessions have session ids.
                if source.dead_letter and deliverer is not None and deliverer.requires_session:
                    continue
                if not _takes_without_session(task, branch.number):
                    continue
                seen = f"{label} requires sessions, {network.label(source)} does not"
                yield Finding(Checks.SESSION_ID_MISSING, place, seen)
        for path, seen in _needs_of_order(network, task):
            yield Finding(Checks.ORDER_WITHOUT_SESSIONS, network.place(task, path), seen)
        yield from _rejects(network, task)


def _needs_of_order(network: Network, task: TaskFile) -> Iterator[tuple[str, str]]:
    """Yield what needs the order of a source that has none, each with its path in the task."""
    if task.source.hub is not None or task.source.sessions or task.source.dead_letter:
        return
    source = network.label(task.source)
    for index, step in enumerate(task.editors):
        if step.verb() in CHAINS:
            yield f"editors[{index}]", f"{step.verb()} needs order, but {source} has no sessions"
    for branch in task.branches():
        label = network.label(branch.target)
        if SESSION_ID in assigned(branch.route.action) and True in _required(network, branch.target):
            yield f"routes[{branch.number}].action", f"sets session ids for {label}, but {source} has no sessions"
        elif isinstance(branch.target.partition, int):
            seen = f"sends everything to one partition of {label}, and {source} has no sessions"
            yield f"{branch.path}.partition", seen


def _rejects(network: Network, task: TaskFile) -> Iterator[Finding]:
    if task.rejects is not None:
        queue = network.queue(task.rejects)
        if queue is not None and queue.requires_session:
            seen = f"{network.label(task.rejects)} requires sessions"
            yield Finding(Checks.REJECTS_NEED_SESSION, network.place(task, "rejects"), seen)


def _required(network: Network, target: Target) -> set[bool]:
    """
    Return whether the readers of *target* require sessions; empty if unknown.

    If the entities are unknown, the tasks that receive from *target* show it: for a queue, or for their own
    subscriptions.
    """
    queue, topic = network.queue(target), network.topic(target)
    if queue is not None:
        return {queue.requires_session}
    if topic is not None:
        return {subscription.requires_session for subscription in topic.subscriptions}
    sources = [task.source for task in network.readers(network.target_node(target))]
    return {source.sessions for source in sources if source.hub is None and not source.dead_letter}


def _takes_without_session(task: TaskFile, index: int) -> bool:
    """Return whether messages without a session id (or, from a hub, without a partition key) reach a route."""
    lacking = [SESSION_ID, *([PARTITION_KEY] if task.source.hub is not None else [])]
    found = [Facts(dict.fromkeys(lacking, Unknown.ABSENT))]
    if task.source.rule is not None:
        rule = parse_filter(task.source.rule.filter)
        found = [then for facts in found for then in satisfied(rule.condition, facts)]
    for editor in task.editors:
        lets_through = filter_of(editor)
        if lets_through is not None:
            found = [then for facts in found for then in satisfied(lets_through.condition, facts)]
        found = [after_editor(editor, facts) for facts in found]
    found = [facts for facts in found if all(facts.of(key) is not Unknown.SOMETHING for key in lacking)]
    for route in task.routes[:index]:
        if route.when is None:
            return False
        found = [then for facts in found for then in unsatisfied(parse_filter(route.when).condition, facts)]
    when = task.routes[index].when
    return any(when is None or satisfied(parse_filter(when).condition, facts) for facts in found)
