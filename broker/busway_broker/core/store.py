"""
The messages of one queue, subscription or dead-letter sub-queue, and their locks.

1. A message is active, deferred or locked; it leaves when completed, received destructively, expired or dead-lettered.
2. A message that becomes ready again (abandoned, lock expired) returns to its place in sequence order. So
   does a released one, unless the options say that it goes behind all others; within a session it keeps its place.
3. An expired lock, abandoning and deferring count as attempts; releasing and closing a session's receiver do not. In a
   dead-letter queue an expired lock does not count.
4. A locked message does not expire before its lock ends; a deferred one never expires.
5. As options, a message that has expired stays until somebody receives from the entity, and deferred ones expire too.

Sources: Microsoft Learn, "Message transfers, locks, and settlement", "Message expiration", "Message deferral"; issue
35846 of Azure/azure-sdk-for-net for released messages, 53437 for dead-letter queues, 30252 for deferred messages that
expire; issue 375 of Azure/azure-service-bus for deferring.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator

from busway_broker import errors
from busway_broker.config import QueueConfig, SubscriptionConfig
from busway_broker.core.content import Content
from busway_broker.core.home import Home
from busway_broker.core.message import Locks, State, StoredMessage
from busway_broker.core.properties import Changes, changed, check_changes, why
from busway_broker.core.ready_queue import Consumer, ReadyQueue
from busway_broker.core.sequence_numbers import Part, SequenceNumbers, partition_of
from busway_broker.core.timers import Deadlines
from busway_broker.core.times import in_milliseconds, milliseconds
from busway_broker.core.usage import Payloads, ReportedCount, taken
from busway_broker.errors import Refusal
from shared.amqp.errors import NOT_ALLOWED

_NOT_LOCKED = "Failed to lock one or more specified messages"
_LOCKED_OR_MISSING = ". Either the message is already locked or does not exist."
_NOT_DEFERRED = " as they were not deferred messages."

type DeadLetter = Callable[[StoredMessage, Changes], None]
"""Takes a message that has left its store, with the properties that say why."""


class MessageStore:
    """A store whose consumers share all messages."""

    def __init__(
        self,
        path: str,
        config: QueueConfig | SubscriptionConfig,
        home: Home,
        numbers: SequenceNumbers,
        dead_letter: DeadLetter | None = None,
    ) -> None:
        """Pass undeliverable messages to *dead_letter*; a dead-letter queue has None."""
        self.path = path
        self.recorder = home.recorder
        self.forward: Callable[[StoredMessage], bool] | None = None
        """Passes on a message that is ready, and returns whether it has left."""
        self.messages: dict[int, StoredMessage] = {}
        self.reported = ReportedCount(self.messages, in_milliseconds(home.config.counts_lag))
        self.size = 0
        self.payloads: Payloads | None = None
        """Those of the topic, if the store is one of a subscription."""
        self._config = home.config
        self._clock = home.clock
        self._timers = home.timers
        self._dead_letter = dead_letter
        self._ready = ReadyQueue()
        self._locks = Locks()
        self._expiries = Deadlines(self.messages)
        self._newest_time = self.lock_duration = 0
        self.numbers = numbers
        self.prepare()
        self.reconfigure(config)

    def prepare(self) -> None:
        """Set up what only this kind of store has."""

    def reconfigure(self, config: QueueConfig | SubscriptionConfig) -> None:
        """Apply another configuration from now on; existing locks and deadlines do not change."""
        lock_duration = in_milliseconds(config.lock_duration)
        if lock_duration < self.lock_duration and self._next_lock_end() is not None:
            self._locks.are_in_order = False
        self.lock_duration = lock_duration
        is_dead = self._dead_letter is None
        self._max_delivery_count = None if is_dead else config.max_delivery_count
        self._time_to_live = None if is_dead else in_milliseconds(config.default_message_time_to_live)
        self._dead_letters_on_expiration = config.dead_lettering_on_message_expiration

    # Incoming

    def add(
        self,
        content: Content,
        *,
        enqueue_sequence_number: int | None = None,
        enqueued_time: int | None = None,
        delivery_count: int = 0,
        longest_life: int | None = None,
    ) -> int:
        """Store a message that lives *longest_life* at most, deliver it if a consumer waits, and return its number."""
        now = milliseconds(self._clock)
        number = self.numbers.assign(content, enqueue_sequence_number)
        lives = [each for each in (content.time_to_live, self._time_to_live, longest_life) if each is not None]
        time_to_live = min(lives) if lives else None
        if now != self._newest_time:
            self._newest_time = now  # one number for all messages of a millisecond: each would take 32 bytes
        message = StoredMessage(
            content,
            number,
            enqueue_sequence_number or 0,
            self._newest_time if enqueued_time is None else enqueued_time,
            time_to_live,
            does_expire=self._dead_letter is not None,
            delivery_count=delivery_count,
        )
        ready = self._ready_queue_for(message)
        self.reported.look(now)
        self._keep(message)
        self.recorder.stored(self.path, message)
        ready.add(number)
        self._dispatch(ready, now)
        return number

    def _keep(self, message: StoredMessage) -> None:
        self.messages[message.sequence_number] = message
        size, expires_at = message.content.size, message.expires_at
        self.size += taken(size)
        if self.payloads is not None:
            self.payloads.add(message.original_number, size)
        if expires_at is not None and self._expiries.add(expires_at, message.sequence_number):
            self._timers.set(self, expires_at)

    def restore(self, messages: Iterable[StoredMessage]) -> None:
        """Load the messages of a stored entity, in order."""
        for message in messages:
            message.does_expire = self._dead_letter is not None
            self._keep(message)
            if message.state is State.ACTIVE:
                self._ready_queue_for(message).add(message.sequence_number)

    def _ready_queue_for(self, message: StoredMessage) -> ReadyQueue:  # noqa: ARG002 - a session store needs the message
        return self._ready

    # Outgoing

    def join(self, consumer: Consumer) -> None:
        """Deliver to *consumer* from now on."""
        self._ready.join(consumer)
        self._collect_expired()

    def leave(self, consumer: Consumer) -> None:
        """Stop delivering to *consumer*; its unsettled messages stay locked until the locks expire."""
        self._ready.leave(consumer)

    def dispatch(self) -> None:
        """Deliver what is ready; call it when a consumer can accept messages again."""
        self._dispatch(self._ready, milliseconds(self._clock))

    def _dispatch(self, ready: ReadyQueue, now: int) -> None:
        while ready.consumers:
            message = ready.next_ready(self.messages)
            if message is None:
                return
            if message.time_to_live is not None and message.is_expired(now):
                self._expire(message)
                continue
            consumer = ready.next_consumer()
            if consumer is None:
                return
            ready.pop()
            if consumer.is_destructive:
                self._forget(message)
                consumer.take(b"", message.encode())
            else:
                token = self._lock(message, now)
                consumer.take(token, message.encode())

    def _lock(self, message: StoredMessage, now: int) -> bytes:
        message.lock_token = token = self._locks.new_token()
        message.locked_until = now + self.lock_duration
        if not self._locks or not self._locks.are_in_order:
            self._timers.set(self, message.locked_until)
        self._locks[token] = message
        return token

    def _forget(self, message: StoredMessage) -> None:
        self.reported.look(milliseconds(self._clock))
        del self.messages[message.sequence_number]
        self.size -= taken(message.content.size)
        if self.payloads is not None:
            self.payloads.remove(message.original_number)
        self.recorder.removed(self.path, message.sequence_number)

    # Settlement

    def complete(self, token: bytes) -> None:
        """Remove a locked message; this and the methods below raise Refusal(MESSAGE_LOCK_LOST) without a valid lock."""
        self._forget(self._unlock(token))

    def abandon(self, token: bytes, changes: Changes | None = None) -> None:
        """End a lock as a failed attempt, changing application properties."""
        self._return([self._unlock_changed(token, changes)], failed=True)

    def release(self, token: bytes) -> None:
        """End a lock as if the message had not been delivered."""
        message = self._unlock(token)
        last = self.numbers.last[partition_of(message.sequence_number)] if self._config.released_go_last else 0
        self._return([message], failed=False, after=last)

    def defer(self, token: bytes, changes: Changes | None = None) -> None:
        """Defer a message, as one more attempt: from now on it is received by its sequence number only."""
        message = self._unlock_changed(token, changes)
        message.state = State.DEFERRED
        self._return([message], failed=True)

    def dead_letter(self, token: bytes, changes: Changes) -> None:
        """Move a locked message to the dead-letter queue; Refusal(NOT_ALLOWED) if it is already in one."""
        self.check_dead_letter(token, changes)
        self._bury(self._unlock(token), changes)

    def parts(self, token: bytes) -> frozenset[Part]:
        """Return the partition of a locked message, none without partitions; Refusal(MESSAGE_LOCK_LOST)."""
        number = self._locks.message(token).sequence_number
        return frozenset((Part(partition_of(number)),)) if self.numbers.are_partitioned else frozenset()

    def check_change(self, token: bytes, changes: Changes | None = None) -> None:
        """Raise a Refusal unless a message is locked with *token* and has room for *changes*."""
        message = self._locks.message(token)
        if changes:
            check_changes(message.content, changes)

    def check_dead_letter(self, token: bytes, changes: Changes) -> None:
        """Raise a Refusal unless `dead_letter` is possible."""
        if self._dead_letter is None:
            raise Refusal(NOT_ALLOWED, f"{self.path}: a message in a dead-letter queue cannot be dead-lettered")
        self.check_change(token, changes)

    def renew_lock(self, token: bytes) -> int:
        """Renew a lock and return its end."""
        return self._locks.renew(token, milliseconds(self._clock) + self.lock_duration)

    def _unlock(self, token: bytes) -> StoredMessage:
        return self._locks.end(token)

    def _unlock_changed(self, token: bytes, changes: Changes | None) -> StoredMessage:
        self.check_change(token, changes)
        message = self._unlock(token)
        if changes:
            self.size -= taken(message.content.size)
            message.content = changed(message.content, changes)
            self.size += taken(message.content.size)
            if self.payloads is not None:
                self.payloads.grow(message.original_number, message.content.size)
            self.recorder.changed(self.path, message)
        return message

    def _return(self, messages: list[StoredMessage], *, failed: bool, after: int = 0) -> None:
        """Make messages whose lock has ended ready again behind *after*, or dead-letter or expire them."""
        now = milliseconds(self._clock)
        limit = self._max_delivery_count
        queues: dict[ReadyQueue, None] = {}
        for message in sorted(messages, key=lambda message: message.sequence_number):
            message.delivery_count += failed
            if failed:
                self.recorder.updated(self.path, message)
            if limit is not None and failed and message.delivery_count >= limit:
                text = f"Message could not be consumed after {limit} delivery attempts."
                self._bury(message, why("MaxDeliveryCountExceeded", text))
            elif self._has_expired(message, now):
                self._expire(message)
            elif message.state is State.ACTIVE and self.forward is not None and self.forward(message):
                self._forget(message)
            elif message.state is State.ACTIVE:
                ready = self._ready_queue_for(message)
                ready.add(message.sequence_number, after=after)
                queues[ready] = None
        for ready in queues:
            self._dispatch(ready, now)

    def forward_all(self) -> None:
        """Pass on what is ready; a message that is locked follows when its lock ends."""
        if self.forward is not None:
            for message in [*self.messages.values()]:
                if message.state is State.ACTIVE and message.lock_token is None and self.forward(message):
                    self._forget(message)

    def forget(self, number: int, refusal: Refusal | None = None) -> None:
        """Remove a message that was passed on; dead-letter one that cannot be, unless it is a dead letter already."""
        if refusal is None:
            self._forget(self.messages[number])
        elif self._dead_letter is not None:
            self._bury(self.messages[number], why(refusal.condition, refusal.description))

    def _bury(self, message: StoredMessage, changes: Changes) -> None:
        self._forget(message)
        if self._dead_letter is not None:
            self._dead_letter(message, changes)

    def _expire(self, message: StoredMessage) -> None:
        if self._dead_letters_on_expiration:
            self._bury(message, why("TTLExpiredException", "The message expired and was dead lettered."))
        else:
            self._forget(message)

    # By sequence number

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the messages from a sequence number on, in order, whatever their state."""
        numbers: Iterator[int] = (each for each in self.messages if each >= from_sequence_number)
        if self.numbers.are_partitioned:
            # Few of them are read: sorting all would take longer.
            waiting = list(numbers)
            heapq.heapify(waiting)
            numbers = (heapq.heappop(waiting) for _ in range(len(waiting)))
        return map(self.messages.__getitem__, numbers)

    def receive_deferred(self, numbers: list[int], *, session_id: str | None, destructive: bool) -> list[StoredMessage]:
        """Return deferred messages, locked unless *destructive*; Refusal(MESSAGE_NOT_FOUND) if one does not exist."""
        found: list[StoredMessage] = []
        for number in numbers:
            message = self.messages.get(number)
            is_other = message is not None and session_id not in (None, message.content.session_id)
            if message is None or message.lock_token is not None or is_other or message in found:
                raise Refusal(errors.MESSAGE_NOT_FOUND, _NOT_LOCKED + _LOCKED_OR_MISSING)
            if message.state is not State.DEFERRED:
                raise Refusal(errors.MESSAGE_NOT_FOUND, _NOT_LOCKED + _NOT_DEFERRED)
            found.append(message)
        now = milliseconds(self._clock)
        for message in found:
            if destructive:
                self._forget(message)
            else:
                self._lock(message, now)
        return found

    def delete(self, count: int, *, before: int, session_id: str | None = None) -> int:
        """Delete up to *count* messages enqueued *before* a time, the oldest first, none that is locked or deferred."""
        found = (
            message
            for message in self.messages.values()
            if message.state is State.ACTIVE
            and message.lock_token is None
            and message.enqueued_time < before
            and session_id in (None, message.content.session_id)
        )
        chosen = list(itertools.islice(found, count))
        for message in chosen:
            self._forget(message)
        return len(chosen)

    # Time

    def advance(self, now: int) -> int | None:
        """Expire messages and locks that are due; see `Timed`."""
        due = [self.messages[number] for number in self._expiries.pop_due(now)]
        if self._is_received_from or not self._config.expires_lazily:
            self._expire_all(due, now)
        self._end_locks(now)
        deadlines = (self._expiries.next(), self._next_lock_end())
        return min((at for at in deadlines if at is not None), default=None)

    @property
    def _is_received_from(self) -> bool:
        return bool(self._ready.consumers)

    def _has_expired(self, message: StoredMessage, now: int) -> bool:
        return message.is_expired(now, if_deferred=self._config.deferred_expire)

    def _collect_expired(self) -> None:
        """Expire what has stayed because nobody received."""
        if self._config.expires_lazily:
            self._expire_all([*self.messages.values()], milliseconds(self._clock))

    def _expire_all(self, messages: list[StoredMessage], now: int) -> None:
        for message in messages:
            if message.lock_token is None and self._has_expired(message, now):
                self._expire(message)

    def expire_locks(self) -> None:
        """End all locks as if they had expired."""
        for message in self._locks.values():
            message.locked_until = 0
        self._end_locks(0)

    def _end_locks(self, now: int) -> None:
        lost = self._locks.due(now)
        for message in lost:
            if message.lock_token is not None:
                self._unlock(message.lock_token)
        self._return(lost, failed=self._dead_letter is not None)

    def _next_lock_end(self) -> int | None:
        return self._locks.next_end()
