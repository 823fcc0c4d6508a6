"""
A store that delivers messages by session, each session to one consumer at a time.

1. The lock on a session covers the messages delivered from it. Those name an end in the year 10000, and renewing one
   extends nothing.
2. When the lock expires, messages in flight count as failed attempts; when the receiver closes, they do not.
3. Over `$management` only the connection whose receiver holds a session can settle its messages.
4. Once the receiver has closed, nobody can lock the session until the handover is over (Azure/azure-sdk-for-go 17325).
5. A receiver that asks for the next available session waits until one has messages and no owner, in order of arrival.
   Which one it gets is nowhere promised: any (azure-sdk-for-net 42022).

Sources: Microsoft Learn, "Message sessions"; issue 41981 of azure-sdk-for-java for the year 10000, pull request 24966
of azure-sdk-for-go for settlement.
"""

import random
from collections.abc import Iterable, Iterator

from busway_broker import errors
from busway_broker.core.message import State, StoredMessage
from busway_broker.core.ready_queue import Consumer, MessageSession, ReadyQueue, SessionConsumer
from busway_broker.core.store import MessageStore
from busway_broker.core.times import in_milliseconds, milliseconds
from busway_broker.errors import Refusal
from shared.amqp.errors import NOT_ALLOWED

LOCK_END_OF_A_MESSAGE = 253_402_300_800_000
"""10000-01-01T00:00:00Z, in milliseconds since 1970 UTC."""


class SessionStore(MessageStore):
    """A store of an entity that requires sessions."""

    def prepare(self) -> None:
        """Set up the sessions."""
        self.handover = in_milliseconds(self._config.links.session_handover)
        self._sessions: dict[str, MessageSession] = {}
        self._available: dict[str, MessageSession] = {}
        # In the order in which the locks expire.
        self._held: dict[str, MessageSession] = {}
        # Until when nobody can lock them, in this order unless the clock goes back.
        self._in_handover: dict[str, int] = {}
        self._waiting: dict[SessionConsumer, int] = {}

    # Sessions

    def accept(self, session_id: str, consumer: SessionConsumer) -> MessageSession:
        """Lock a session by id, even if empty; Refusal(SESSION_CANNOT_BE_LOCKED) while nobody else can."""
        self._collect_expired()
        session = self._session(session_id)
        if session.owner is not None or session_id in self._in_handover:
            raise Refusal(
                errors.SESSION_CANNOT_BE_LOCKED,
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver.",
            )
        self._grant(session, consumer)
        return session

    def accept_next(self, consumer: SessionConsumer, deadline: int) -> None:
        """Lock the next session that has messages; the consumer is called with it, or when the deadline has passed."""
        self._collect_expired()
        self._waiting[consumer] = deadline
        self._timers.set(self, deadline)
        available = [*self._available.values()]
        first = random.randrange(len(available)) if available else 0
        for session in (*available[first:], *available[:first]):
            self._offer(session)
            if consumer not in self._waiting:
                return

    def refuse_waiting(self, consumer: SessionConsumer) -> None:
        """Refuse a consumer if it still waits for a session."""
        if self._waiting.pop(consumer, None) is not None:
            consumer.session_refused()

    def stop_waiting(self, consumer: SessionConsumer) -> None:
        """Forget a consumer that waits for a session."""
        self._waiting.pop(consumer, None)

    def release_session(self, session: MessageSession, consumer: SessionConsumer) -> None:
        """End a consumer's lock on its session, as its receiver closes, and begin the handover."""
        if session.owner is not consumer:
            return
        if self.handover:
            ends_at = milliseconds(self._clock) + self.handover
            self._in_handover[session.session_id] = ends_at
            self._timers.set(self, ends_at)
        self._end(session, failed=False)

    def end_handover(self, session_id: str) -> None:
        """Let the next consumer lock a session that was released."""
        if self._in_handover.pop(session_id, None) is not None:
            self._offer(self._session(session_id))

    def lose_sessions(self) -> None:
        """End all locks on sessions without counting an attempt, as when the entity moves to another node."""
        for session in list(self._held.values()):
            self._lose(session, failed=False)

    def renew_session_lock(self, session_id: str) -> int:
        """Renew a session's lock and return its end; this and the methods below raise Refusal(SESSION_LOCK_LOST)."""
        session = self._held_session(session_id)
        del self._held[session_id]
        self._hold(session)
        return session.locked_until

    def check_session(self, session_id: str) -> None:
        """Raise Refusal(SESSION_LOCK_LOST) unless the session is locked."""
        self._held_session(session_id)

    def check_holder(self, session_id: str, connection: object) -> None:
        """Raise Refusal(SESSION_LOCK_LOST) unless a receiver of *connection* holds the session."""
        owner = self._held_session(session_id).owner
        if owner is None or owner.connection is not connection:
            raise _lock_lost()

    def session_of(self, token: bytes) -> str:
        """Return the session of the message that is locked with *token*."""
        return self._locks.message(token).content.session_id or ""

    def session_state(self, session_id: str) -> bytes | None:
        """Return the state of a locked session."""
        return self._held_session(session_id).state

    def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Set the state of a locked session; None clears it."""
        session = self._held_session(session_id)
        session.state = state
        session.state_updated_time = milliseconds(self._clock)
        self.recorder.session_updated(self.path, session_id, state, session.state_updated_time)

    def restore_session(self, session_id: str, state: bytes | None, updated_time: int) -> None:
        """Load the state of a stored session."""
        session = self._session(session_id)
        session.state, session.state_updated_time = state, updated_time

    @property
    def session_states(self) -> Iterator[tuple[str, bytes, int]]:
        """Return each session that has a state, the state and the time it was set, in milliseconds since 1970 UTC."""
        return (
            (session.session_id, session.state, session.state_updated_time)
            for session in self._sessions.values()
            if session.state is not None
        )

    def restore(self, messages: Iterable[StoredMessage]) -> None:
        """Load the messages of a stored entity; their sessions are available."""
        super().restore(messages)
        for session in list(self._sessions.values()):
            self._offer(session)

    def session_ids(self, updated_since: int | None) -> Iterator[str]:
        """Return the sessions whose state was set since a time; without one, those that have messages or a state."""
        if updated_since is not None:
            return (
                session.session_id
                for session in self._sessions.values()
                if session.state is not None and session.state_updated_time >= updated_since
            )
        with_messages = {
            message.content.session_id: None for message in self.messages.values() if message.state is State.ACTIVE
        }
        with_state = {session.session_id: None for session in self._sessions.values() if session.state is not None}
        return (session_id for session_id in with_messages | with_state if session_id is not None)

    def dispatch_session(self, session: MessageSession) -> None:
        """Deliver what is ready in a session; to be called when its consumer can take messages again."""
        self._dispatch(session, milliseconds(self._clock))

    def _session(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id)
        return session

    def _held_session(self, session_id: str) -> MessageSession:
        session = self._held.get(session_id)
        if session is None:
            raise _lock_lost()
        return session

    def _grant(self, session: MessageSession, consumer: SessionConsumer) -> None:
        self._available.pop(session.session_id, None)
        session.owner = consumer
        session.join(consumer)
        self._hold(session)

    def _hold(self, session: MessageSession) -> None:
        session.locked_until = milliseconds(self._clock) + self.lock_duration
        self._held[session.session_id] = session
        self._timers.set(self, session.locked_until)

    def _offer(self, session: MessageSession) -> None:
        """Give a session that has messages and no owner to the consumer that has waited longest."""
        if session.owner is not None or session.session_id in self._in_handover:
            return
        if session.next_ready(self.messages) is None:
            self._available.pop(session.session_id, None)
            if session.state is None:
                self._sessions.pop(session.session_id, None)
            return
        consumer = next(iter(self._waiting), None)
        if consumer is None:
            self._available[session.session_id] = session
            return
        del self._waiting[consumer]
        self._grant(session, consumer)
        consumer.session_granted(session)

    def _lose(self, session: MessageSession, *, failed: bool = True) -> None:
        owner = session.owner
        self._end(session, failed=failed)
        if owner is not None:
            owner.session_lost(_lock_lost())

    def _end(self, session: MessageSession, *, failed: bool) -> None:
        if session.owner is not None:
            session.leave(session.owner)
        session.owner = None
        del self._held[session.session_id]
        in_flight = list(session.in_flight.values())
        for token in list(session.in_flight):
            self._unlock(token)
        self._return(in_flight, failed=failed)
        self._offer(session)

    # Overrides of the store without sessions

    def join(self, consumer: Consumer) -> None:  # noqa: ARG002 - the signature is that of every store
        """Refuse a consumer that does not name a session or ask for the next."""
        raise Refusal(
            NOT_ALLOWED,
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.",
        )

    @property
    def _is_received_from(self) -> bool:
        return bool(self._held or self._waiting)

    def _ready_queue_for(self, message: StoredMessage) -> ReadyQueue:
        session_id = message.content.session_id
        if session_id is None:
            raise without_session()
        return self._session(session_id)

    def _dispatch(self, ready: ReadyQueue, now: int) -> None:
        if isinstance(ready, MessageSession) and ready.owner is None:
            self._offer(ready)
        super()._dispatch(ready, now)

    def _lock(self, message: StoredMessage, now: int) -> bytes:
        session = self._held_session(message.content.session_id or "")
        token = super()._lock(message, now)
        message.locked_until = LOCK_END_OF_A_MESSAGE
        session.in_flight[token] = message
        return token

    def _unlock(self, token: bytes) -> StoredMessage:
        message = super()._unlock(token)
        session = self._sessions.get(message.content.session_id or "")
        if session is not None:
            session.in_flight.pop(token, None)
        return message

    def release(self, token: bytes) -> None:
        """End a lock as if the message had not been delivered; it keeps its place in the session."""
        self._return([self._unlock(token)], failed=False)

    def renew_lock(self, token: bytes) -> int:
        """Return the end that the message names; the session's lock is not extended."""
        return self._locks.message(token).locked_until

    def expire_locks(self) -> None:
        """End the locks on all sessions as if they had expired."""
        for session in list(self._held.values()):
            self._lose(session)

    def _end_locks(self, now: int) -> None:
        due = [session for session in self._held.values() if session.locked_until <= now]
        for session in due:
            self._lose(session)
        for session_id in [session_id for session_id, at in self._in_handover.items() if at <= now]:
            self.end_handover(session_id)
        for consumer in [consumer for consumer, deadline in self._waiting.items() if deadline <= now]:
            self.refuse_waiting(consumer)

    def _next_lock_end(self) -> int | None:
        held = (session.locked_until for session in self._held.values())
        first = next(held, None) if self._locks.are_in_order else min(held, default=None)
        ends = [*self._waiting.values(), *self._in_handover.values()]
        if first is not None:
            ends.append(first)
        return min(ends, default=None)


def without_session() -> Refusal:
    """Return the refusal of a message that has no session id."""
    return Refusal(
        NOT_ALLOWED,
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
        "support enabled can only receive messages that have the SessionId set to a valid value.",
    )


def _lock_lost() -> Refusal:
    return Refusal(
        errors.SESSION_LOCK_LOST,
        "The session lock has expired on the MessageSession. Accept a new MessageSession.",
    )
