"""Checks that heartbeats are delivered to their task, and to no application."""

from collections.abc import Iterator

from shared.message.arrival import Arrival, Origin
from shared.message.heartbeat import ENTITY, Heartbeat
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.review.checks import Checks, Finding
from shared.review.entities import Subscription
from shared.review.network import Network
from shared.rules import RuleSet
from shared.tasks.heartbeats import heartbeat_targets, heartbeat_topics
from shared.tasks.models import TaskFile
from shared.tasks.source import Source


def findings(network: Network) -> Iterator[Finding]:
    """Yield the subscriptions that select heartbeats and should not, or the reverse, and what is missing for them."""
    for task in network.tasks:
        if task.heartbeat is not None:
            yield from _missing(network, task)
            yield from _not_taken(network, task)
    sources = [task.source for task in network.tasks] + [tap.source for tap in network.configuration.taps]
    read = {_key(network, source) for source in sources}
    for alias, topic, name in heartbeat_topics(network.tasks):
        known = network.entities.topic(network.connection(alias), topic)
        task = next(task for task in network.tasks if task.task == name)
        for subscription in known.subscriptions if known is not None else ():
            key = network.connection(alias).key, topic.lower(), subscription.name.lower()
            if key not in read and any(_selects(subscription, sample) for sample in _samples(name)):
                seen = f"{network.configuration.site(alias)}/{topic}: {subscription.name} selects heartbeats"
                yield Finding(Checks.HEARTBEAT_NOT_HIDDEN, network.place(task, "heartbeat"), seen)


def _missing(network: Network, task: TaskFile) -> Iterator[Finding]:
    for target in dict.fromkeys(heartbeat_targets(task)):
        is_beside = target.entity == ENTITY and network.namespace(target) is not None
        if is_beside and network.topic(target) is None and network.hub(target) is None:
            seen = f"{network.configuration.site(target.connection)} has no {target.kind} {ENTITY}"
            yield Finding(Checks.ENTITY_MISSING, network.place(task, "heartbeat"), seen)


def _not_taken(network: Network, task: TaskFile) -> Iterator[Finding]:
    subscription = network.subscription(task.source)
    sent = _samples(task.task)[0]
    if subscription is not None and not _selects(subscription, sent):
        seen = f"{network.label(task.source)} does not select them"
        yield Finding(Checks.HEARTBEAT_NOT_TAKEN, network.place(task, "heartbeat"), seen)


def _samples(task: str) -> tuple[Message, Message]:
    """Return a heartbeat as it is sent to the source, and as it is sent to the target."""
    heartbeat = Heartbeat(task, 0, 0)
    return heartbeat.to_source(has_session=True), heartbeat.to_target(Arrival(Origin("site", "")))


def _selects(subscription: Subscription, message: Message) -> bool:
    selection = RuleSet(subscription.rules).select(RuleProperties(message))
    return selection.is_selected_as_is or bool(selection.changed)


def _key(network: Network, source: Source) -> tuple[str, str, str] | None:
    if source.topic is None or source.dead_letter:
        return None
    return network.connection(source.connection).key, source.topic.lower(), (source.subscription or "").lower()
