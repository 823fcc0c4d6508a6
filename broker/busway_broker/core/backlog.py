"""What a queue or a subscription holds: its messages, its dead letters, and what it passes on."""

from dataclasses import dataclass, replace

from busway_broker.config import QueueConfig, SubscriptionConfig
from busway_broker.core.content import Content
from busway_broker.core.forwarding import Forwarding
from busway_broker.core.home import Home
from busway_broker.core.message import State, StoredMessage
from busway_broker.core.partitioned_store import PartitionedStore
from busway_broker.core.properties import Changes, changed, why
from busway_broker.core.sequence_numbers import SequenceNumbers
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.errors import Refusal
from shared.amqp.codec import encode
from shared.amqp.values import string, symbol

_DEAD_LETTERS = "$DeadLetterQueue", "$Transfer/$DeadLetterQueue"


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of messages in an entity; active ones include locked ones."""

    active: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int


class Backlog:
    """
    The stores of a queue or subscription: its messages, its dead-letter queue, its transfer dead-letter queue.

    Dead-lettered messages are forwarded to another entity if the configuration says so.
    """

    def __init__(
        self, path: str, config: QueueConfig | SubscriptionConfig, home: Home, numbers: SequenceNumbers
    ) -> None:
        """Number the messages of the entity with *numbers*; its dead-letter queues have numbers of their own."""
        self.path = path
        self.config = config
        self.forwarding = Forwarding(home)
        plain = PartitionedStore if numbers.are_partitioned else MessageStore
        kind = SessionStore if config.requires_session else plain
        self.store = kind(path, config, home, numbers, self.dead_letter)
        self.dead_letters, self.transfer_dead_letters = (
            plain(f"{path}/{name}", config, home, numbers.others()) for name in _DEAD_LETTERS
        )
        self.stores = self.store, self.dead_letters, self.transfer_dead_letters
        self._set_forwarding()

    @property
    def size(self) -> int:
        """Return the bytes of all messages in the three stores."""
        return self.store.size + self.dead_letters.size + self.transfer_dead_letters.size

    def reconfigure(self, config: QueueConfig | SubscriptionConfig) -> None:
        """Apply another configuration from now on."""
        self.config = config
        self._set_forwarding()
        for store in self.stores:
            store.reconfigure(config)
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
        failed = changed(content, why(refusal.condition, refusal.description))
        self.dead_letters.add(failed, enqueue_sequence_number=enqueue_sequence_number)

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

    def dead_letter(self, message: StoredMessage, changes: Changes) -> None:
        """Move a message that has left the store to the dead-letter queue, with other application properties."""
        # Here it shows when the message expires, or has expired.
        content = replace(changed(message.content, changes), time_to_live=message.time_to_live)
        to = self.config.forward_dead_lettered_messages_to
        is_held = False
        if to is not None:
            try:
                if self.forwarding.pass_on(self._with_source(content), to, 1):
                    return
                is_held = True
            except Refusal as refusal:
                content = changed(content, why(refusal.condition, refusal.description))
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
