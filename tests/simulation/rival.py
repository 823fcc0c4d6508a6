"""Another receiver of the source: it locks messages for a while, and then completes some and gives the others back."""

import random

from busway_broker.core.ready_queue import MessageSession
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.errors import Refusal
from tests.simulation.backlogs import name_of


class Rival:
    """Takes some messages, or some of one session."""

    is_destructive = False

    def __init__(self, store: MessageStore, taken: list[str], most: int) -> None:
        """Receive up to *most* messages; the names of those that it completes go to *taken*."""
        self.connection = self
        self._store = store
        self._taken = taken
        self._left = most
        self._is_over = False
        self._messages: dict[bytes, bytes] = {}
        self._session: MessageSession | None = None
        if isinstance(store, SessionStore):
            store.accept_next(self, 0)
        else:
            store.join(self)
            store.dispatch()

    def can_take(self) -> bool:
        """Return whether it receives more."""
        return self._left > 0

    def take(self, tag: bytes, message: bytes) -> None:
        """Lock a message."""
        self._left -= 1
        self._messages[tag] = message

    def session_granted(self, session: MessageSession) -> None:
        """Receive the messages of a session."""
        self._session = session
        assert isinstance(self._store, SessionStore)
        self._store.dispatch_session(session)

    def session_refused(self) -> None:
        """Receive nothing."""
        self._left = 0

    def session_lost(self, _: Refusal) -> None:
        """Stop."""
        self._session = None

    def end(self, chance: random.Random) -> None:
        """Settle what it has, as far as its locks still hold, or leave all to the end of their locks."""
        if self._is_over:
            return
        self._is_over = True
        settles = chance.random() < 0.7
        self._left = 0
        for tag, message in self._messages.items():
            is_done = chance.random() < 0.3
            try:
                if settles:
                    (self._store.complete if is_done else self._store.abandon)(tag)
            except Refusal:
                continue
            name = name_of(message)
            if settles and is_done and name is not None:
                self._taken.append(name)
        self._messages.clear()
        if isinstance(self._store, SessionStore):
            self._store.stop_waiting(self)
            if self._session is not None:
                self._store.release_session(self._session, self)
                self._session = None
        else:
            self._store.leave(self)
