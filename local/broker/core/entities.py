"""Queues, topics and subscriptions: what stands at an address."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol, overload

from local.broker import errors
from local.broker.config import QueueConfig, SubscriptionConfig, TopicConfig
from local.broker.core.alarms import Alarms
from local.broker.core.content import Content
from local.broker.core.inbox import Inbox
from local.broker.core.message import State, StoredMessage
from local.broker.core.properties import changed
from local.broker.core.rule_properties import RuleProperties
from local.broker.core.session_store import SessionStore
from local.broker.core.store import MessageStore, StoreOptions, milliseconds
from local.broker.errors import Refusal
from shared.amqp.codec import encode
from shared.amqp.values import string, symbol
from shared.clock import Clock
from shared.rules import Rule, RuleEvaluationError, RuleSet

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages an entity holds; active ones include those that are locked."""

    active: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int


class Forwarder(Protocol):
    """Who passes messages on to other entities of the namespace."""

    def forward(self, content: Content, *, to: str, hops: int, failed: MessageStore) -> None:
        """Send *content* on its next hop; what cannot be forwarded goes to *failed*."""
        ...


class Backlog:
    """
    The stores of a queue or subscription: its messages, its dead-letter queue, its transfer dead-letter queue.

    Dead-lettered messages go on to another entity where the configuration says so.
    """

    def __init__(
        self, path: str, config: QueueConfig | SubscriptionConfig, clock: Clock, alarms: Alarms, forwarder: Forwarder
    ) -> None:
        self.path = path
        self.config = config
        self._forwarder = forwarder
        options = StoreOptions(
            lock_duration=_milliseconds(config.lock_duration),
            max_delivery_count=config.max_delivery_count,
            time_to_live=_milliseconds(config.default_message_time_to_live),
            dead_letters_on_expiration=config.dead_lettering_on_message_expiration,
        )
        kind = SessionStore if config.requires_session else MessageStore
        self.store = kind(path, options, clock, alarms, self.dead_letter)
        options = StoreOptions(lock_duration=options.lock_duration)
        self.dead_letters = MessageStore(f"{path}/$DeadLetterQueue", options, clock, alarms, None)
        self.transfer_dead_letters = MessageStore(f"{path}/$Transfer/$DeadLetterQueue", options, clock, alarms, None)

    def enqueue(self, content: Content, *, enqueue_sequence_number: int | None = None, hops: int = 0) -> None:
        """Store a message, or pass it on where the entity forwards."""
        if self.config.forward_to is not None:
            self._forwarder.forward(
                content, to=self.config.forward_to, hops=hops + 1, failed=self.transfer_dead_letters
            )
        else:
            self.store.add(content, enqueue_sequence_number=enqueue_sequence_number)

    def counts(self, scheduled: int = 0) -> Counts:
        """Return the counts of the entity, which has *scheduled* messages."""
        deferred = sum(message.state is State.DEFERRED for message in self.store.messages.values())
        return Counts(
            len(self.store.messages) - deferred,
            deferred,
            scheduled,
            len(self.dead_letters.messages),
            len(self.transfer_dead_letters.messages),
        )

    def dead_letter(self, message: StoredMessage, reason: str, description: str) -> None:
        """Move a message that has left the store to the dead-letter queue; empty texts are left out."""
        texts = {name: string(text) for name, text in ((REASON, reason), (DESCRIPTION, description)) if text}
        content = changed(message.content, texts)
        forward_to = self.config.forward_dead_lettered_messages_to
        if forward_to is None:
            self.dead_letters.add(
                content,
                enqueue_sequence_number=message.enqueue_sequence_number,
                enqueued_time=message.enqueued_time,
                delivery_count=message.delivery_count,
            )
            return
        source = encode(symbol("x-opt-deadletter-source")) + encode(string(self.path))
        content = replace(
            content,
            annotations=content.annotations + source,
            annotation_count=content.annotation_count + 1,
        )
        self._forwarder.forward(content, to=forward_to, hops=1, failed=self.transfer_dead_letters)


class Queue:
    """A queue."""

    def __init__(self, config: QueueConfig, clock: Clock, alarms: Alarms, forwarder: Forwarder) -> None:
        self.path = config.name
        self.config = config
        self.backlog = Backlog(config.name, config, clock, alarms, forwarder)
        self.inbox = Inbox(
            config.name,
            clock,
            alarms,
            next_sequence_number=self.backlog.store.next_sequence_number,
            enqueue=self._enqueue,
            duplicate_window=_duplicate_window(config),
        )

    def check(self, content: Content) -> None:
        """Raise Refusal(NOT_ALLOWED) for a message that this queue does not take."""
        if self.config.requires_session and content.session_id is None:
            raise Refusal(
                errors.NOT_ALLOWED,
                f"{self.path}: the session id was not set on a message, expected one: the entity requires sessions",
            )

    def publish(self, content: Content, hops: int = 0) -> int | None:
        """Take a message; return its sequence number if it is scheduled. A Refusal as in `check`."""
        self.check(content)
        return self.inbox.accept(content, hops)

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the messages from a sequence number on, in order, scheduled ones among them."""
        return heapq.merge(
            self.backlog.store.peek(from_sequence_number),
            self.inbox.peek(from_sequence_number),
            key=lambda message: message.sequence_number,
        )

    def _enqueue(self, content: Content, hops: int) -> None:
        self.backlog.enqueue(content, hops=hops)


class Subscription:
    """A subscription: rules and the messages they have selected."""

    def __init__(
        self, topic_path: str, config: SubscriptionConfig, clock: Clock, alarms: Alarms, forwarder: Forwarder
    ) -> None:
        self.name = config.name
        self.path = f"{topic_path}/Subscriptions/{config.name}"
        self.config = config
        self.rules = RuleSet(config.rules)
        self.backlog = Backlog(self.path, config, clock, alarms, forwarder)

    def offer(self, content: Content, sequence_number: int, enqueued_time: int, hops: int) -> None:
        """Take the copies of a message that the rules ask for; the number and the time are the topic's."""
        selection = self.rules.select(RuleProperties(content, sequence_number, enqueued_time))
        copies = [content] if selection.is_selected_as_is else []
        failed = [error for _, error in selection.failed]
        for rule in selection.changed:
            properties = RuleProperties(content, sequence_number, enqueued_time)
            try:
                rule.apply(properties)
            except RuleEvaluationError as error:
                failed.append(error)
            else:
                copies.append(properties.content())
        for copy in copies:
            self._enqueue(copy, sequence_number, enqueued_time, hops)
        if failed and self.config.dead_lettering_on_filter_evaluation_exceptions:
            message = StoredMessage(content, sequence_number, sequence_number, enqueued_time, None)
            self.backlog.dead_letter(message, "FilterEvaluationException", failed[0].description)

    def _enqueue(self, content: Content, sequence_number: int, enqueued_time: int, hops: int) -> None:
        if self.config.requires_session and content.session_id is None:
            message = StoredMessage(content, sequence_number, sequence_number, enqueued_time, None)
            self.backlog.dead_letter(message, "Session ID is null.", "Session enabled entity, expected a session id.")
        else:
            self.backlog.enqueue(content, enqueue_sequence_number=sequence_number, hops=hops)

    def add_rule(self, rule: Rule) -> None:
        """Add a rule; Refusal(ENTITY_ALREADY_EXISTS) if one has its name."""
        if any(each.name.lower() == rule.name.lower() for each in self.rules.rules):
            raise Refusal(errors.ENTITY_ALREADY_EXISTS, f"{self.path}: rule {rule.name} already exists")
        self.rules = RuleSet([*self.rules.rules, rule])

    def remove_rule(self, name: str) -> None:
        """Remove a rule; Refusal(NOT_FOUND) if there is none of this name."""
        rest = [rule for rule in self.rules.rules if rule.name.lower() != name.lower()]
        if len(rest) == len(self.rules.rules):
            raise Refusal(errors.NOT_FOUND, f"{self.path}: rule {name} does not exist")
        self.rules = RuleSet(rest)


class Topic:
    """A topic: what is sent to it goes to its subscriptions."""

    def __init__(self, config: TopicConfig, clock: Clock, alarms: Alarms, forwarder: Forwarder) -> None:
        self.path = config.name
        self.config = config
        self._clock = clock
        self._numbers = itertools.count(1)
        self.subscriptions = {
            each.name.lower(): Subscription(config.name, each, clock, alarms, forwarder)
            for each in config.subscriptions
        }
        self.inbox = Inbox(
            config.name,
            clock,
            alarms,
            next_sequence_number=lambda: next(self._numbers),
            enqueue=self._enqueue,
            duplicate_window=_duplicate_window(config),
        )

    def check(self, content: Content) -> None:
        """Take any message: what a subscription cannot hold goes to its dead-letter queue."""

    def publish(self, content: Content, hops: int = 0) -> int | None:
        """Take a message; return its sequence number if it is scheduled."""
        return self.inbox.accept(content, hops)

    def _enqueue(self, content: Content, hops: int) -> None:
        number = next(self._numbers)
        now = milliseconds(self._clock)
        limit = _milliseconds(self.config.default_message_time_to_live)
        if limit is not None and (content.time_to_live is None or content.time_to_live > limit):
            content = replace(content, time_to_live=limit)
        for subscription in self.subscriptions.values():
            subscription.offer(content, number, now, hops)

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the scheduled messages from a sequence number on; a topic holds no others."""
        return self.inbox.peek(from_sequence_number)


@overload
def _milliseconds(duration: timedelta) -> int: ...
@overload
def _milliseconds(duration: timedelta | None) -> int | None: ...
def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def _duplicate_window(config: QueueConfig | TopicConfig) -> int | None:
    return (
        _milliseconds(config.duplicate_detection_history_time_window) if config.requires_duplicate_detection else None
    )
