"""Checks routes: those that get no messages, harmful actions, what a binding cannot carry, and envelopes."""

from collections.abc import Iterator

from shared.editors.claim_restore import ClaimRestoreStep
from shared.editors.transcode import TranscodeStep
from shared.review.checks import Checks, Finding
from shared.review.known_properties import MESSAGE_ID, Facts, assigned, satisfied, unsatisfied
from shared.review.network import Network
from shared.rules import parse_filter
from shared.rules.syntax import And, NewId, Or, Predicate
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target

_MOST_ALTERNATIVES = 24


def findings(network: Network) -> Iterator[Finding]:
    """Yield the findings on the routes of each task."""
    for task in network.tasks:
        yield from _ways_out(network, task)
        yield from _bindings(network, task)
        yield from _envelopes(network, task)
        for index, route in enumerate(task.routes):
            if isinstance(assigned(route.action).get(MESSAGE_ID), NewId):
                place = network.place(task, f"routes[{index}].action")
                yield Finding(Checks.RANDOM_ID, place, "sets sys.MessageId to newid()")


def _ways_out(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Follow all messages along the routes, by the known facts about their properties."""
    remaining = [Facts()]
    earlier: list[tuple[int, Predicate]] = []
    for index, route in enumerate(task.routes):
        place = network.place(task, f"routes[{index}]")
        if not remaining:
            labels = " and ".join(network.label(target) for target in route.targets)
            yield Finding(Checks.UNREACHABLE_ROUTE, place, f"{labels} gets no messages")
            continue
        if route.when is None:
            remaining = []
            continue
        condition = parse_filter(route.when).condition
        hiding = next((number for number, each in earlier if _implies(condition, each)), None)
        if hiding is not None:
            seen = f"routes[{hiding}] takes every message that satisfies {route.when}"
            yield Finding(Checks.UNREACHABLE_ROUTE, place, seen)
        elif not any(satisfied(condition, facts) for facts in remaining):
            seen = f"no message that reaches this route satisfies {route.when}"
            yield Finding(Checks.UNREACHABLE_ROUTE, f"{place}.when", seen)
        earlier.append((index, condition))
        left = [each for facts in remaining for each in unsatisfied(condition, facts)]
        remaining = left if len(left) <= _MOST_ALTERNATIVES else [Facts()]
    if remaining:
        seen = "every route has a condition, and a message that satisfies none is dropped"
        yield Finding(Checks.UNROUTED_MESSAGES, network.place(task, "routes"), seen)


def _implies(condition: Predicate, earlier: Predicate) -> bool:
    """Return whether every message that satisfies *condition* certainly satisfies *earlier* too."""
    if condition == earlier:
        return True
    if isinstance(condition, And):
        return any(_implies(operand, earlier) for operand in condition.operands)
    return isinstance(earlier, Or) and any(_implies(condition, operand) for operand in earlier.operands)


_BINARY = frozenset(("compress", "encrypt", "re-encrypt"))
_NEEDS_RESULT = frozenset(("deduplicate", "verify-chain"))
_TEXT_FORMATS = frozenset(("json", "text"))


def _bindings(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield what an output binding cannot carry."""
    for branch in task.branches():
        if branch.route.via != "binding":
            continue
        place = network.place(task, f"routes[{branch.number}]")
        yield from _order(network, task, branch.target, place)
        yield from _results(task, network.label(branch.target), place)
        if branch.route.body_only:
            yield from _bodies(network, task, branch.target, place)


def _order(network: Network, task: TaskFile, end: Target, place: str) -> Iterator[Finding]:
    target, queue, topic = network.label(end), network.queue(end), network.topic(end)
    takers = [] if queue is None else [queue.requires_session]
    takers += [] if topic is None else [subscription.requires_session for subscription in topic.subscriptions]
    if any(takers):
        yield Finding(Checks.BINDING_WITHOUT_SESSION, f"{place}.target", f"{target} requires sessions")
    has_keys = any(step.verb() == "partition" for step in task.editors)
    if task.source.sessions or task.source.hub is not None or has_keys:
        seen = f"{network.label(task.source)} has an order, and the binding to {target} keeps none"
        yield Finding(Checks.BINDING_WITHOUT_ORDER, f"{place}.via", seen)


def _results(task: TaskFile, target: str, place: str) -> Iterator[Finding]:
    for number, step in enumerate(task.editors):
        if step.verb() in _NEEDS_RESULT or (isinstance(step, ClaimRestoreStep) and step.options.delete):
            seen = f"editors[{number}].{step.verb()} never learns what the binding to {target} has sent"
            yield Finding(Checks.BINDING_WITHOUT_RESULT, f"{place}.via", seen)


def _bodies(network: Network, task: TaskFile, end: Target, place: str) -> Iterator[Finding]:
    target = network.label(end)
    for number, step in enumerate(task.editors):
        if step.verb() in _BINARY or (step.verb() == "transcode" and not _writes_text(step)):
            seen = f"editors[{number}].{step.verb()} creates bodies that are not text"
            yield Finding(Checks.BINARY_BODY, f"{place}.body_only", seen)
    needs = []
    if task.ttl != "keep":
        needs.append("`ttl` of this task sets a time to live")
    taker = network.taker(end)
    if taker is not None and taker.requires_duplicate_detection:
        needs.append(f"{target} detects duplicates by message id")
    for reader in network.readers(network.target_node(end)):
        if reader.loop_prevention:
            needs.append(f"the loop prevention of {reader.task} reads repl-path")
        if reader.source.rule is not None or any(route.when is not None for route in reader.routes):
            needs.append(f"a rule of {reader.task} may read properties")
    for need in needs:
        yield Finding(Checks.BODY_LOSES_PROPERTIES, f"{place}.body_only", need)


def _writes_text(step: object) -> bool:
    return isinstance(step, TranscodeStep) and step.options.after.format in _TEXT_FORMATS


def _envelopes(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield a finding if the tasks that send to the source of *task* disagree with its `from`."""
    for sender, branch in network.senders(network.source_node(task.source)):
        is_envelope = branch.route.via == "binding" and not branch.route.body_only
        if is_envelope != (task.source.form == "envelope"):
            what = "envelopes" if is_envelope else "messages"
            place, taken = network.label(branch.target), task.source.form
            seen = f"{sender.task} sends {what} to {place}, and this task takes each as {taken}"
            yield Finding(Checks.ENVELOPE_NOT_OPENED, network.place(task, "source.from"), seen)
