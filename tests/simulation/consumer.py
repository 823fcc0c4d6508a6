"""The service's end of a receiving link: a consumer of the broker's stores."""

import asyncio
from typing import TYPE_CHECKING

from busway_broker import errors
from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.errors import Refusal
from busway_broker.protocol.consumer_link import settlement_of
from shared.amqp.codec import decode_all
from shared.amqp.performatives import Transfer
from shared.ends.azure_amqp.raw_link import RawLink

if TYPE_CHECKING:
    from tests.simulation.carrier import Carrier

_MOST_UNSETTLED = 5_000


class Consumer:
    """The service's end of a receiving link."""

    def __init__(self, carrier: "Carrier", raw: RawLink, store: MessageStore | None = None) -> None:
        """Receive from *store*, or without one from a partition."""
        self.is_destructive = False
        self.carrier = carrier
        self.raw = raw
        self.credit = 0
        self.delivery_count = 0
        self.is_over = False
        self.used_at = carrier.network.loop.time()
        self.session: MessageSession | None = None
        self.granted: asyncio.Future[MessageSession | None] | None = None
        self._store = store
        self._has_joined = False
        self._tags: dict[int, bytes] = {}

    # As the stores see it

    @property
    def connection(self) -> object:
        """Return the connection that it receives on."""
        return self.carrier

    def can_take(self) -> bool:
        """Return whether one more message can be delivered."""
        return self.credit > 0 and not self.is_over and len(self._tags) < _MOST_UNSETTLED

    def take(self, tag: bytes, message: bytes) -> None:
        """Deliver a message."""
        number = self.delivery_count
        self.credit -= 1
        self.delivery_count += 1
        self.used_at = self.carrier.network.loop.time()
        self._tags[number] = tag
        transfer = Transfer(0, number, tag, 0, settled=False, more=False, aborted=False)
        self.carrier.channel.answer(lambda: self._arrive(transfer, message))

    def session_granted(self, session: MessageSession) -> None:
        """Start with a session."""
        self.session = session
        if self.granted is not None and not self.granted.done():
            self.granted.set_result(session)

    def session_refused(self) -> None:
        """Stop waiting for a session."""
        if self.granted is not None and not self.granted.done():
            self.granted.set_result(None)

    def session_lost(self, refusal: Refusal) -> None:
        """End the link."""
        self.session = None
        self.end(refusal.condition)

    # As the connection sees it

    def join(self) -> None:
        """Start to receive from an entity without sessions."""
        assert self._store is not None
        self._store.join(self)
        self._has_joined = True

    def flow(self, delivery_count: int, credit: int, *, drain: bool) -> None:
        """Take the credit that the instance grants, and deliver."""
        if self.is_over:
            return
        self.used_at = self.carrier.network.loop.time()
        self.credit = max(delivery_count + credit - self.delivery_count, 0)
        self.pump()
        if drain:
            self.delivery_count += self.credit
            self.credit = 0
            count = self.delivery_count
            self.carrier.channel.answer(lambda: self.carrier.drained(self.raw, count))

    def pump(self) -> None:
        """Deliver what is ready."""
        if self.session is not None and isinstance(self._store, SessionStore):
            self._store.dispatch_session(self.session)
        elif self._store is not None and self._has_joined:
            self._store.dispatch()

    def settle(self, number: int, state: bytes) -> str | None:
        """Settle a message; return the condition if that fails."""
        self.used_at = self.carrier.network.loop.time()
        tag = self._tags.pop(number, None)
        if tag is None or self._store is None or self.is_over:
            return errors.MESSAGE_LOCK_LOST
        settlement = settlement_of(self._store, decode_all(state))
        assert settlement is not None
        try:
            settlement.settle(tag)
        except Refusal as refusal:
            return refusal.condition
        self.pump()
        return None

    def end(self, condition: str | None = None) -> None:
        """End the link at the service; with a *condition* the instance learns of it."""
        if self.is_over:
            return
        self.is_over = True
        store = self._store
        if isinstance(store, SessionStore):
            store.stop_waiting(self)
            if self.session is not None:
                session, self.session = self.session, None
                store.release_session(session, self)
        elif store is not None and self._has_joined:
            store.leave(self)
        self.carrier.leave(self)
        if condition is not None:
            self.carrier.channel.answer(lambda: self.carrier.detached(self.raw, condition))

    def force_detach(self, refusal: Refusal) -> None:
        """End the link because its entity goes or changes."""
        self.session = None
        self.end(refusal.condition)

    def give(self, number: int, state: bytes) -> None:
        """Take a state without an answer."""
        self.settle(number, state)

    def _arrive(self, transfer: Transfer, message: bytes) -> None:
        self.raw.on_transfer(transfer, message)
        self.raw.pump()
