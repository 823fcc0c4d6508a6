"""Links that a client receives on from a queue, a subscription or a dead-letter queue."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from busway_broker import errors
from busway_broker.core.namespace import deleted
from busway_broker.core.properties import DESCRIPTION, REASON, Changes, why
from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.core.times import milliseconds
from busway_broker.core.transaction import Transaction, Work
from busway_broker.errors import Refusal
from busway_broker.faults import Operation
from busway_broker.protocol.fault_effects import under_faults
from busway_broker.protocol.link_session import LinkSession
from busway_broker.protocol.outgoing_link import OutgoingLink
from busway_broker.protocol.terminus import with_session_id
from shared.amqp import performatives
from shared.amqp.codec import encode
from shared.amqp.dispositions import Disposition
from shared.amqp.errors import AmqpError
from shared.amqp.fields import fields_of
from shared.amqp.performatives import Attach, Flow
from shared.amqp.values import Value, long, map_, string, symbol
from shared.clock import ManualClock
from shared.durations import format_timespan

_TICKS_AT_1970 = 621_355_968_000_000_000
_TICKS_PER_MILLISECOND = 10_000
_DEFAULT_SESSION_TIMEOUT = 64_980


class Settlement(NamedTuple):
    """What an outcome does with the message that has a lock token, and the state to answer with."""

    settle: Callable[[bytes], None]
    check: Callable[[bytes], None]
    answer: bytes


class ConsumerLink(OutgoingLink):
    """A receiver without sessions."""

    def __init__(self, session: LinkSession, attach: Attach, store: MessageStore) -> None:
        super().__init__(session, attach)
        self._store = store
        self._has_joined = False
        self.is_destructive = self._sends_settled

    def open(self) -> None:
        """Start receiving."""
        self._store.join(self)
        self._has_joined = True
        self.send_attach()

    def on_release(self) -> None:
        """Stop receiving; messages stay locked until their locks expire, as in the service."""
        super().on_release()
        if self._has_joined:
            self._store.leave(self)

    def pump(self) -> None:
        """Deliver the messages that are ready."""
        if self._credit > 0:
            self._store.dispatch()

    def can_take(self) -> bool:
        """Return whether one more message can be sent now; lost locks count as unsettled until the peer settles."""
        return not self.session.is_full and super().can_take()

    def on_flow(self, flow: Flow) -> None:
        """Handle the credit that the peer grants: it receives."""
        self.use()
        super().on_flow(flow)

    def take(self, tag: bytes, message: bytes) -> None:
        """Deliver a message of the store."""
        self.use()
        self.send(tag, message, settled=self.is_destructive)

    def accept(self, tag: bytes) -> bool:
        """Complete a message; return False, and do nothing, if a fault may strike or its lock is lost."""
        # Nearly all settlements, without the calls of the other outcomes.
        self.use()
        if self.faults.is_set:
            return False
        try:
            self._store.complete(tag)
        except AmqpError:
            return False
        return True

    def settle(self, delivery_id: int, tag: bytes, disposition: Disposition) -> bool:
        """Settle a message as the peer asks, and answer with the outcome unless it has settled it already."""
        self.use()
        state = disposition.state
        if state is None:
            return disposition.settled
        transaction_id = performatives.transaction_of(state)
        carry_out = partial(self._outcome, tag, state)
        if transaction_id is not None:
            try:
                transaction = self.session.connection.transactions.find(transaction_id)
            except AmqpError as refusal:
                if disposition.settled:
                    self.force_detach(refusal)
                else:
                    self.session.emit_outcome(delivery_id, performatives.rejected(refusal), role=False)
                return True
            carry_out = partial(self._enlist, transaction, delivery_id, tag, disposition)
        connection, refuse = self.session.connection, performatives.rejected
        outcome = under_faults(Operation.SETTLE, connection, self.path, carry_out, refuse)
        if outcome is not None and not disposition.settled:
            self.session.emit_outcome(delivery_id, outcome, role=False, transaction_id=transaction_id)
        # What is settled in a transaction stays locked until the commit.
        return disposition.settled or (outcome is not None and transaction_id is None)

    def _enlist(self, transaction: Transaction, delivery_id: int, tag: bytes, disposition: Disposition) -> bytes | None:
        """Add the settlement to a transaction and return the outcome to answer with; None without an outcome."""
        try:
            settlement = settlement_of(self._store, performatives.transactional_outcome_of(disposition.state))
            if settlement is None:
                return None

            def carry_out() -> None:
                settlement.settle(tag)
                self.session.settled(delivery_id)

            check = partial(self._check_settlement, settlement, tag)
            transaction.enlist(self.top_level, [Work(check, carry_out, tag, self._store.parts(tag))])
        except AmqpError as refusal:
            if disposition.settled:
                transaction.fail(refusal)
            return performatives.rejected(refusal)
        return settlement.answer

    def _check_settlement(self, settlement: Settlement, tag: bytes) -> None:
        if self.session.connection.namespace.store(self.path) is not self._store:
            raise deleted(self.path)
        settlement.check(tag)

    def _outcome(self, tag: bytes, state: Value) -> bytes | None:
        """Apply an outcome and return the state to answer with, rejected if it cannot be applied; None for others."""
        try:
            settlement = settlement_of(self._store, state)
            if settlement is None:
                return None
            settlement.settle(tag)
        except AmqpError as refusal:
            return performatives.rejected(refusal)
        return settlement.answer


class SessionConsumerLink(ConsumerLink):
    """A receiver of one session, by name or the next available."""

    def __init__(
        self, session: LinkSession, attach: Attach, store: SessionStore, session_id: str | None, timeout: int | None
    ) -> None:
        """Accept a session by its id, or the next one within *timeout* milliseconds."""
        super().__init__(session, attach, store)
        self._sessions = store
        self._session_id = session_id
        self._timeout = _DEFAULT_SESSION_TIMEOUT if timeout is None else timeout
        self.connection = session.connection
        self._granted: MessageSession | None = None

    def open(self) -> None:
        """Accept the session; the answer waits until one is available."""
        if self._session_id is not None:
            self.session_granted(self._sessions.accept(self._session_id, self))
        else:
            connection = self.session.connection
            clock = connection.namespace.clock
            if isinstance(clock, ManualClock) and connection.later is not None:
                # The client waits by its own clock, which does not stand still.
                connection.later(self._timeout / 1000, lambda: self._sessions.refuse_waiting(self))
            self._sessions.accept_next(self, milliseconds(clock) + self._timeout)

    def session_granted(self, session: MessageSession) -> None:
        """Open the link with the session."""
        self._granted = session
        self._session_id = session.session_id
        locked_until = session.locked_until * _TICKS_PER_MILLISECOND + _TICKS_AT_1970
        self.send_attach(properties=map_([(symbol("com.microsoft:locked-until-utc"), long(locked_until))]))

    def session_refused(self) -> None:
        """Refuse the link: no session became available in time."""
        waited = format_timespan(timedelta(milliseconds=self._timeout))
        text = f"The operation did not complete within the allotted timeout of {waited}."
        part = "The time allotted to this operation may have been a portion of a longer timeout."
        self.refuse(Refusal(errors.TIMEOUT, f"{text} {part}"))

    def session_lost(self, refusal: Refusal) -> None:
        """End the link: the lock on its session is lost."""
        self._granted = None
        self.detach(refusal)

    def source(self) -> Value | None:
        """Return the peer's source with the accepted session."""
        return with_session_id(self.peer.source, self._session_id or "")

    def on_release(self) -> None:
        """Release the session."""
        self.session.forget(self)
        sessions, granted = self._sessions, self._granted
        sessions.stop_waiting(self)
        if granted is not None:
            sessions.release_session(granted, self)
            connection = self.session.connection
            if isinstance(connection.namespace.clock, ManualClock) and connection.later is not None:
                # The next client retries by its own clock, which does not stand still.
                handover = sessions.handover / 1000
                connection.later(handover, lambda: sessions.end_handover(granted.session_id))

    def pump(self) -> None:
        """Deliver the messages that are ready in the session."""
        if self._credit > 0 and self._granted is not None:
            self._sessions.dispatch_session(self._granted)


def settlement_of(store: MessageStore, state: Value | None) -> Settlement | None:
    """Return what an outcome does with a message of *store*; None for a state that is not an outcome."""
    if state is None:
        return None
    code, fields = fields_of(state, "delivery state")
    match code:
        case performatives.ACCEPTED:
            return Settlement(store.complete, store.check_change, performatives.ACCEPTED_STATE)
        case performatives.RELEASED:
            return Settlement(store.release, store.check_change, performatives.RELEASED_STATE)
        case performatives.MODIFIED:
            changes = _texts_and_values(fields.value(2))
            # Abandoning counts as a failed attempt even without delivery-failed: @azure/service-bus omits it.
            settle = store.defer if fields.flag(1) else store.abandon
            check = partial(store.check_change, changes=changes)
            return Settlement(partial(settle, changes=changes), check, encode(state))
        case performatives.REJECTED:
            why_not = _dead_lettering(fields.value(0))
            check = partial(store.check_dead_letter, changes=why_not)
            return Settlement(partial(store.dead_letter, changes=why_not), check, performatives.REJECTED_STATE)
        case _:
            return None


def _dead_lettering(error: Value | None) -> Changes:
    """Return the application properties that a rejection sets: those in the error, and why."""
    if error is None:
        return {}
    _, fields = fields_of(error, "error")
    changes = _texts_and_values(fields.value(2))
    reason, description = (_text(changes.pop(name, None)) for name in (REASON, DESCRIPTION))
    if fields.text(0) != errors.DEAD_LETTER:
        reason = reason or fields.text(0) or ""
    return {**changes, **why(reason, description or fields.text(1) or "")}


def _texts_and_values(value: Value | None) -> dict[str, Value]:
    """Return the pairs of a map by their text keys; symbols become strings."""
    if value is None or value.kind != "map":
        return {}
    pairs: tuple[tuple[Value, Value], ...] = value.payload  # type: ignore[assignment] # its kind says so
    return {
        key.payload: string(item.payload) if item.kind == "symbol" and isinstance(item.payload, str) else item
        for key, item in pairs
        if isinstance(key.payload, str)
    }


def _text(value: Value | None) -> str:
    return value.payload if value is not None and isinstance(value.payload, str) else ""
