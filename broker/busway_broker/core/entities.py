"""Queues, topics and subscriptions."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from busway_broker.config import EntityStatus, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.backlog import Backlog
from busway_broker.core.content import Content
from busway_broker.core.home import Home
from busway_broker.core.incoming import IncomingMessages
from busway_broker.core.message import StoredMessage
from busway_broker.core.properties import why
from busway_broker.core.rule_book import RuleBook
from busway_broker.core.rule_properties import RuleProperties
from busway_broker.core.sequence_numbers import SequenceNumbers, numbers_for
from busway_broker.core.session_store import without_session
from busway_broker.core.times import in_milliseconds, milliseconds
from busway_broker.core.usage import Payloads, Times, Use, check_can, check_has_room
from shared.rules import RuleEvaluationError

NO_SESSION_ID = "Session enabled entity doesn't allow a message whose session identifier is null."


class Queue:
    """A queue."""

    def __init__(self, config: QueueConfig, home: Home) -> None:
        self.path = config.name
        self.config = config
        self.times = Times.new(home.clock)
        numbers = numbers_for(config)
        self.backlog = Backlog(config.name, config, home, numbers)
        self.incoming = IncomingMessages(config, home, numbers, self.backlog.enqueue)
        self.parts = *self.backlog.stores, self.incoming
        """What holds its messages."""

    def check(self, *contents: Content, is_forwarded: bool = False) -> None:
        """Raise a Refusal if the queue does not accept these messages, for example because it is disabled or full."""
        config = self.config
        if config.status is not EntityStatus.ACTIVE and not is_forwarded:
            check_can(Use.SEND, self.path, config.status)
        check_has_room(self.path, self.size, config.max_size)
        if config.requires_session and any(content.session_id is None for content in contents):
            raise without_session()

    def publish(self, content: Content, hops: int = 0) -> int | None:
        """Accept a message; return its sequence number if it is scheduled. Raises a Refusal as `check` does."""
        self.check(content)
        return self.incoming.accept(content, hops)

    @property
    def size(self) -> int:
        """Return the bytes of all messages, including scheduled and dead-lettered ones."""
        return self.backlog.size + self.incoming.size

    def reconfigure(self, config: QueueConfig) -> None:
        """Apply another configuration from now on."""
        self.config = config
        self.backlog.reconfigure(config)
        self.incoming.reconfigure(config)

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the messages from a sequence number on, in order, including scheduled ones."""
        return heapq.merge(
            self.backlog.store.peek(from_sequence_number),
            self.incoming.peek(from_sequence_number),
            key=lambda message: message.sequence_number,
        )


class Subscription:
    """A subscription: its rules and the messages they have selected."""

    def __init__(
        self,
        topic_path: str,
        config: SubscriptionConfig,
        home: Home,
        numbers: SequenceNumbers,
        payloads: Payloads,
    ) -> None:
        self.name = config.name
        self.path = f"{topic_path}/Subscriptions/{config.name}"
        self.config = config
        self.times = Times.new(home.clock)
        self.rule_book = RuleBook(self.path, config.rules, home.clock)
        self.backlog = Backlog(self.path, config, home, numbers)
        self.parts = self.backlog.stores
        for store in self.parts:
            store.payloads = payloads

    def offer(
        self, content: Content, sequence_number: int, enqueued_time: int, hops: int, longest_life: int | None = None
    ) -> None:
        """Store the copies of a message that the rules select; the number, the time and the life are the topic's."""
        selection = self.rule_book.rules.select(RuleProperties(content, sequence_number, enqueued_time))
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
            self._enqueue(copy, sequence_number, enqueued_time, hops, longest_life)
        if failed and self.config.dead_lettering_on_filter_evaluation_exceptions:
            message = StoredMessage(content, sequence_number, sequence_number, enqueued_time, None)
            self.backlog.dead_letter(message, why("FilterEvaluationException", failed[0].description))

    def _enqueue(
        self, content: Content, sequence_number: int, enqueued_time: int, hops: int, longest_life: int | None
    ) -> None:
        if self.config.requires_session and content.session_id is None:
            message = StoredMessage(content, sequence_number, sequence_number, enqueued_time, None)
            self.backlog.dead_letter(message, why("Session ID is null.", NO_SESSION_ID))
        else:
            self.backlog.enqueue(content, enqueue_sequence_number=sequence_number, hops=hops, longest_life=longest_life)

    def reconfigure(self, config: SubscriptionConfig) -> None:
        """Apply another configuration from now on, with the same rules."""
        self.config = config
        self.backlog.reconfigure(config)


class _Late(NamedTuple):
    """A message that a topic has not distributed yet, and when it does."""

    at: int
    number: int
    offer: Callable[[Subscription], None]


class Topic:
    """A topic, which copies messages to its subscriptions, at once or after a delay; it is `Timed`."""

    def __init__(self, config: TopicConfig, home: Home) -> None:
        self.path = config.name
        self.config = config
        self.times = Times.new(home.clock)
        self.payloads = Payloads()
        self.incoming = IncomingMessages(config, home, numbers_for(config), self._enqueue)
        self.parts = (self.incoming,)
        self.subscriptions: dict[str, Subscription] = {}
        self._home = home
        for subscription in config.subscriptions:
            self.subscribe(subscription)
        self._delay = in_milliseconds(home.config.copy_delay)
        self._late: deque[_Late] = deque()

    def subscribe(self, config: SubscriptionConfig) -> Subscription:
        """Add a subscription."""
        numbers = self.incoming.numbers.others()
        new = Subscription(self.path, config, self._home, numbers, self.payloads)
        self.subscriptions[config.name.lower()] = new
        return new

    def check(self, *contents: Content, is_forwarded: bool = False) -> None:  # noqa: ARG002 - a queue checks the messages
        """Raise a Refusal if the topic is disabled or full; a subscription dead-letters what it cannot hold."""
        if self.config.status is not EntityStatus.ACTIVE and not is_forwarded:
            check_can(Use.SEND, self.path, self.config.status)
        check_has_room(self.path, self.size, self.config.max_size)

    def publish(self, content: Content, hops: int = 0) -> int | None:
        """Accept a message; return its sequence number if it is scheduled. Raises a Refusal as `check` does."""
        self.check(content)
        return self.incoming.accept(content, hops)

    @property
    def size(self) -> int:
        """Return the bytes of all messages, also of scheduled ones; several copies of one count once."""
        return self.incoming.size + self.payloads.size

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply another configuration from now on, with the same subscriptions."""
        self.config = config
        self.incoming.reconfigure(config)

    def _enqueue(self, content: Content, hops: int) -> None:
        number = self.incoming.numbers.assign(content)
        self.incoming.recorder.numbered(self.incoming.path, number)
        now = milliseconds(self._home.clock)
        longest_life = in_milliseconds(self.config.default_message_time_to_live)

        def offer(subscription: Subscription) -> None:
            subscription.offer(content, number, now, hops, longest_life)

        if self._delay:
            self.payloads.add(number, content.size)
            self._late.append(_Late(now + self._delay, number, offer))
            self._home.timers.set(self, now + self._delay)
        else:
            self._distribute(offer)

    def _distribute(self, offer: Callable[[Subscription], None]) -> None:
        for subscription in self.subscriptions.values():
            offer(subscription)

    def advance(self, now: int) -> int | None:
        """Distribute what is due; see `Timed`."""
        while self._late and self._late[0].at <= now:
            late = self._late.popleft()
            self._distribute(late.offer)
            self.payloads.remove(late.number)
        return self._late[0].at if self._late else None

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription with its copies."""
        if self.subscriptions.pop(subscription.name.lower(), None) is None:
            return
        for store in subscription.backlog.stores:
            for message in store.messages.values():
                self.payloads.remove(message.original_number)
            store.payloads = None

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the scheduled messages from a sequence number on; a topic holds only those."""
        return self.incoming.peek(from_sequence_number)
