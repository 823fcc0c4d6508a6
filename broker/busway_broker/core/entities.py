"""Queues, topics and subscriptions."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, Protocol, overload

from busway_broker.config import EntityStatus, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import Content
from busway_broker.core.forwarding import Forwarding
from busway_broker.core.incoming import IncomingMessages
from busway_broker.core.message import State, StoredMessage
from busway_broker.core.partitioned_store import create_store, numbers_for
from busway_broker.core.properties import changed
from busway_broker.core.recording import Recorder, scheduled_path
from busway_broker.core.rule_book import RuleBook
from busway_broker.core.rule_properties import RuleProperties
from busway_broker.core.sequence_numbers import SequenceNumbers
from busway_broker.core.session_store import SessionStore, without_session
from busway_broker.core.store import MessageStore, StoreOptions, milliseconds
from busway_broker.core.timers import Timers
from busway_broker.core.usage import Times, check_can_send, check_has_room
from busway_broker.errors import Refusal
from shared.amqp.codec import encode
from shared.amqp.values import string, symbol
from shared.clock import Clock
from shared.rules import RuleEvaluationError

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
_NO_SESSION_ID = "Session enabled entity doesn't allow a message whose session identifier is null."
_DEAD_LETTERS = "$DeadLetterQueue", "$Transfer/$DeadLetterQueue"


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of messages in an entity; active ones include locked ones."""

    active: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int


class Forwarder(Protocol):
    """The namespace as its entities see it: it forwards messages, and names its options and the recorder of changes."""

    @property
    def config(self) -> NamespaceConfig:
        """Return the options of the namespace."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Return the recorder of changes, None if state is not stored."""
        ...

    def forward(self, content: Content, to: str, hops: int) -> None:
        """Send *content* on its next hop; raises a Refusal with the reason if it cannot be forwarded."""
        ...


class Backlog:
    """
    The stores of a queue or subscription: its messages, its dead-letter queue, its transfer dead-letter queue.

    Dead-lettered messages are forwarded to another entity if the configuration says so.
    """

    def __init__(
        self,
        path: str,
        config: QueueConfig | SubscriptionConfig,
        clock: Clock,
        timers: Timers,
        forwarder: Forwarder,
        *,
        numbers: SequenceNumbers,
    ) -> None:
        """Number the messages of the entity with *numbers*; its dead-letter queues have numbers of their own."""
        self.path = path
        self.config = config
        self._forwarder = forwarder
        self.forwarding = Forwarding(clock, timers, forwarder.forward)
        options = self._options()
        if config.requires_session:
            self.store: MessageStore = SessionStore(path, options, clock, timers, self.dead_letter, numbers=numbers)
        else:
            self.store = create_store(path, options, clock, timers, self.dead_letter, numbers=numbers)
        options = self._dead_letter_options()
        self.dead_letters, self.transfer_dead_letters = (
            create_store(f"{path}/{name}", options, clock, timers, None, numbers=numbers.others())
            for name in _DEAD_LETTERS
        )
        for store in self.stores:
            store.recorder = forwarder.recorder
        self._set_forwarding()

    @property
    def stores(self) -> tuple[MessageStore, ...]:
        """Return the three stores."""
        return self.store, self.dead_letters, self.transfer_dead_letters

    @property
    def size(self) -> int:
        """Return the bytes of all messages in the three stores."""
        return self.store.size + self.dead_letters.size + self.transfer_dead_letters.size

    def reconfigure(self, config: QueueConfig | SubscriptionConfig) -> None:
        """Apply another configuration from now on."""
        self.config = config
        self._set_forwarding()
        self.store.reconfigure(self._options())
        for store in (self.dead_letters, self.transfer_dead_letters):
            store.reconfigure(self._dead_letter_options())
        self.forwarding.renew()
        self.store.forward_all()

    def _set_forwarding(self) -> None:
        self.store.forward = None if self.config.forward_to is None else self._forward

    def _forward(self, message: StoredMessage) -> bool:
        """Pass on a message of the store, and return whether it has left; otherwise it waits there."""
        to = self.config.forward_to or ""
        try:
            has_left = self.forwarding.pass_on(message.content, to, 1)
        except Refusal as refusal:
            self._bury(message.content, refusal, message.original_number)
            return True
        if not has_left:
            self.forwarding.hold(self.store, message.sequence_number, to)
        return has_left

    def _bury(self, content: Content, refusal: Refusal, enqueue_sequence_number: int | None) -> None:
        """Put a message that cannot be forwarded into the dead-letter queue, from where none is forwarded."""
        texts = {REASON: string(refusal.condition), DESCRIPTION: string(refusal.description)}
        self.dead_letters.add(changed(content, texts), enqueue_sequence_number=enqueue_sequence_number)

    def _options(self) -> StoreOptions:
        config = self.config
        return replace(
            self._dead_letter_options(),
            max_delivery_count=config.max_delivery_count,
            time_to_live=_milliseconds(config.default_message_time_to_live),
            dead_letters_on_expiration=config.dead_lettering_on_message_expiration,
            lock_group_size=self._forwarder.config.lock_group_size,
            session_handover=_milliseconds(self._forwarder.config.links.session_handover),
            expires_lazily=self._forwarder.config.expires_lazily,
            deferred_expire=self._forwarder.config.deferred_expire,
        )

    def _dead_letter_options(self) -> StoreOptions:
        return StoreOptions(
            lock_duration=_milliseconds(self.config.lock_duration),
            released_go_last=self._forwarder.config.released_go_last,
            counts_lag=_milliseconds(self._forwarder.config.counts_lag),
        )

    def enqueue(
        self,
        content: Content,
        hops: int = 0,
        *,
        enqueue_sequence_number: int | None = None,
        longest_life: int | None = None,
    ) -> None:
        """Store a message, or forward it; *longest_life* as in `MessageStore.add`."""
        to = self.config.forward_to
        try:
            if to is not None and self.forwarding.pass_on(content, to, hops + 1):
                return
        except Refusal as refusal:
            self._bury(content, refusal, enqueue_sequence_number)
            return
        number = self.store.add(content, enqueue_sequence_number=enqueue_sequence_number, longest_life=longest_life)
        if to is not None:
            self.forwarding.hold(self.store, number, to)

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

    def reported_counts(self, now: int, scheduled: int = 0) -> Counts:
        """Return the counts that the administration reports; deferred messages are among the active ones."""
        active, dead_lettered, transfer_dead_lettered = (store.reported.at(now) for store in self.stores)
        return Counts(active, 0, scheduled, dead_lettered, transfer_dead_lettered)

    def dead_letter(self, message: StoredMessage, reason: str, description: str) -> None:
        """Move a message that has left the store to the dead-letter queue; empty texts are left out."""
        texts = {name: string(text) for name, text in ((REASON, reason), (DESCRIPTION, description)) if text}
        # Here it shows when the message expires, or has expired.
        content = replace(changed(message.content, texts), time_to_live=message.time_to_live)
        to = self.config.forward_dead_lettered_messages_to
        is_held = False
        if to is not None:
            try:
                if self.forwarding.pass_on(self._with_source(content), to, 1):
                    return
                is_held = True
            except Refusal as refusal:
                content = changed(
                    content, {REASON: string(refusal.condition), DESCRIPTION: string(refusal.description)}
                )
        number = self.dead_letters.add(
            self._with_source(content) if is_held else content,
            enqueue_sequence_number=message.original_number,
            enqueued_time=message.enqueued_time,
            delivery_count=message.delivery_count,
        )
        if is_held and to is not None:
            self.forwarding.hold(self.dead_letters, number, to)

    def _with_source(self, content: Content) -> Content:
        """Return a dead letter as it is forwarded."""
        source = encode(symbol("x-opt-deadletter-source")) + encode(string(self.path))
        return replace(
            content,
            annotations=content.annotations + source,
            annotation_count=content.annotation_count + 1,
        )


class Queue:
    """A queue."""

    def __init__(self, config: QueueConfig, clock: Clock, timers: Timers, forwarder: Forwarder) -> None:
        self.path = config.name
        self.config = config
        self.times = Times(milliseconds(clock), milliseconds(clock))
        numbers = numbers_for(config)
        self.backlog = Backlog(config.name, config, clock, timers, forwarder, numbers=numbers)
        self.incoming = IncomingMessages(
            config.name,
            clock,
            timers,
            numbers=numbers,
            enqueue=self.backlog.enqueue,
            duplicate_window=_duplicate_window(config),
            counts_lag=_milliseconds(forwarder.config.counts_lag),
        )
        self.incoming.recorder = forwarder.recorder

    def check(self, *contents: Content, is_forwarded: bool = False) -> None:
        """Raise a Refusal if the queue does not accept these messages, for example because it is disabled or full."""
        config = self.config
        if config.status is not EntityStatus.ACTIVE and not is_forwarded:
            check_can_send(self.path, config.status)
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
        self.incoming.reconfigure(_duplicate_window(config))

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
        clock: Clock,
        timers: Timers,
        forwarder: Forwarder,
        *,
        numbers: SequenceNumbers,
    ) -> None:
        self.name = config.name
        self.path = f"{topic_path}/Subscriptions/{config.name}"
        self.config = config
        self.times = Times(milliseconds(clock), milliseconds(clock))
        self.rule_book = RuleBook(self.path, config.rules, clock)
        self.backlog = Backlog(self.path, config, clock, timers, forwarder, numbers=numbers)

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
            self.backlog.dead_letter(message, "FilterEvaluationException", failed[0].description)

    def _enqueue(
        self, content: Content, sequence_number: int, enqueued_time: int, hops: int, longest_life: int | None
    ) -> None:
        if self.config.requires_session and content.session_id is None:
            message = StoredMessage(content, sequence_number, sequence_number, enqueued_time, None)
            self.backlog.dead_letter(message, "Session ID is null.", _NO_SESSION_ID)
        else:
            self.backlog.enqueue(content, enqueue_sequence_number=sequence_number, hops=hops, longest_life=longest_life)

    def reconfigure(self, config: SubscriptionConfig) -> None:
        """Apply another configuration from now on, with the same rules."""
        self.config = config
        self.backlog.reconfigure(config)


class _Late(NamedTuple):
    """A message that a topic has not distributed yet, and when it does."""

    at: int
    offer: Callable[[Subscription], None]


class Topic:
    """A topic, which copies messages to its subscriptions, at once or after a delay; it is `Timed`."""

    def __init__(self, config: TopicConfig, clock: Clock, timers: Timers, forwarder: Forwarder) -> None:
        self.path = config.name
        self.config = config
        self.times = Times(milliseconds(clock), milliseconds(clock))
        self._clock = clock
        numbers = numbers_for(config)
        self.subscriptions = {
            subscription.name.lower(): Subscription(
                config.name, subscription, clock, timers, forwarder, numbers=numbers.others()
            )
            for subscription in config.subscriptions
        }
        self.incoming = IncomingMessages(
            config.name,
            clock,
            timers,
            numbers=numbers,
            enqueue=self._enqueue,
            duplicate_window=_duplicate_window(config),
            counts_lag=_milliseconds(forwarder.config.counts_lag),
        )
        self._recorder = self.incoming.recorder = forwarder.recorder
        self._timers = timers
        self._delay = _milliseconds(forwarder.config.copy_delay)
        self._late: deque[_Late] = deque()

    def check(self, *contents: Content, is_forwarded: bool = False) -> None:  # noqa: ARG002 - a queue checks the messages
        """Raise a Refusal if the topic is disabled or full; a subscription dead-letters what it cannot hold."""
        if self.config.status is not EntityStatus.ACTIVE and not is_forwarded:
            check_can_send(self.path, self.config.status)
        check_has_room(self.path, self.size, self.config.max_size)

    def publish(self, content: Content, hops: int = 0) -> int | None:
        """Accept a message; return its sequence number if it is scheduled. Raises a Refusal as `check` does."""
        self.check(content)
        return self.incoming.accept(content, hops)

    @property
    def size(self) -> int:
        """Return the bytes of all messages in the subscriptions and of scheduled ones."""
        return self.incoming.size + sum(subscription.backlog.size for subscription in self.subscriptions.values())

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply another configuration from now on, with the same subscriptions."""
        self.config = config
        self.incoming.reconfigure(_duplicate_window(config))

    def _enqueue(self, content: Content, hops: int) -> None:
        number = self.incoming.numbers.assign(content)
        if self._recorder is not None:
            self._recorder.numbered(scheduled_path(self.path), number)
        now = milliseconds(self._clock)
        longest_life = _milliseconds(self.config.default_message_time_to_live)

        def offer(subscription: Subscription) -> None:
            subscription.offer(content, number, now, hops, longest_life)

        if self._delay:
            self._late.append(_Late(now + self._delay, offer))
            self._timers.set(self, now + self._delay)
        else:
            self._distribute(offer)

    def _distribute(self, offer: Callable[[Subscription], None]) -> None:
        for subscription in self.subscriptions.values():
            offer(subscription)

    def advance(self, now: int) -> None:
        """Distribute what is due."""
        while self._late and self._late[0].at <= now:
            self._distribute(self._late.popleft().offer)

    def next_deadline(self) -> int | None:
        """Return when the next message is distributed."""
        return self._late[0].at if self._late else None

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the scheduled messages from a sequence number on; a topic holds only those."""
        return self.incoming.peek(from_sequence_number)


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
