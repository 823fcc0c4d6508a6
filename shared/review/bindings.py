"""Checks routes that send through an output binding, and tasks that take envelopes."""

from collections.abc import Iterator

from shared.editors.claim_restore import ClaimRestoreStep
from shared.editors.transcode import TranscodeStep
from shared.review import checks
from shared.review.findings import Finding
from shared.review.network import Network
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target

_BINARY = frozenset(("compress", "encrypt", "re-encrypt"))
_NEEDS_RESULT = frozenset(("deduplicate", "verify-chain"))
_TEXT_FORMATS = frozenset(("json", "text"))


def findings(network: Network) -> Iterator[Finding]:
    """Yield what an output binding cannot carry, and envelopes that nothing opens."""
    for task in network.tasks:
        for branch in task.branches():
            if branch.route.via != "binding":
                continue
            place = network.place(task, f"routes[{branch.number}]")
            yield from _order(network, task, branch.target, place)
            yield from _results(task, network.label(branch.target), place)
            if branch.route.body_only:
                yield from _bodies(network, task, branch.target, place)
        yield from _envelopes(network, task)


def _order(network: Network, task: TaskFile, end: Target, place: str) -> Iterator[Finding]:
    target = network.label(end)
    queue = network.entities.queue(network.connection(end.connection), end.queue)
    topic = network.entities.topic(network.connection(end.connection), end.topic)
    subscriptions = () if topic is None else topic.subscriptions
    if (queue is not None and queue.requires_session) or any(
        subscription.requires_session for subscription in subscriptions
    ):
        yield Finding(checks.BINDING_WITHOUT_SESSION, f"{place}.target", f"{target} requires sessions")
    has_keys = any(step.verb() == "partition" for step in task.editors)
    if task.source.sessions or task.source.hub is not None or has_keys:
        seen = f"{network.label(task.source)} has an order, and the binding to {target} keeps none"
        yield Finding(checks.BINDING_WITHOUT_ORDER, f"{place}.via", seen)


def _results(task: TaskFile, target: str, place: str) -> Iterator[Finding]:
    for number, step in enumerate(task.editors):
        if step.verb() in _NEEDS_RESULT or (isinstance(step, ClaimRestoreStep) and step.options.delete):
            seen = f"editors[{number}].{step.verb()} never learns what the binding to {target} has sent"
            yield Finding(checks.BINDING_WITHOUT_RESULT, f"{place}.via", seen)


def _bodies(network: Network, task: TaskFile, end: Target, place: str) -> Iterator[Finding]:
    target = network.label(end)
    for number, step in enumerate(task.editors):
        if step.verb() in _BINARY or (step.verb() == "transcode" and not _writes_text(step)):
            seen = f"editors[{number}].{step.verb()} creates bodies that are not text"
            yield Finding(checks.BINARY_BODY, f"{place}.body_only", seen)
    needs = []
    if task.ttl != "keep":
        needs.append("`ttl` of this task sets a time to live")
    taker = network.entities.taker(network.connection(end.connection), end)
    if taker is not None and taker.requires_duplicate_detection:
        needs.append(f"{target} detects duplicates by message id")
    for reader in network.readers(network.target_node(end)):
        if reader.loop_prevention:
            needs.append(f"the loop prevention of {reader.task} reads repl-path")
        if reader.source.rule is not None or any(route.when is not None for route in reader.routes):
            needs.append(f"a rule of {reader.task} may read properties")
    for need in needs:
        yield Finding(checks.BODY_LOSES_PROPERTIES, f"{place}.body_only", need)


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
            yield Finding(checks.ENVELOPE_NOT_OPENED, network.place(task, "source.from"), seen)
