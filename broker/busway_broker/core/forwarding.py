"""
What a queue or subscription passes on to another entity, and what waits until that has room.

1. A disabled target gets its messages all the same, a full one once it has room (Azure/azure-service-bus 666).
2. What cannot be passed on at all goes to the dead-letter queue of the entity itself (MicrosoftDocs/azure-docs 111251).
3. A target that was deleted does not come back by its name: the entity must be updated first (azure-service-bus 693).
"""

from collections import deque
from typing import NamedTuple

from busway_broker import errors
from busway_broker.core.content import Content
from busway_broker.core.home import Home
from busway_broker.core.store import MessageStore
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal

MISSING = "The transfer destination entity does not exist."

_RETRY_MILLISECONDS = 1000


class _Waiting(NamedTuple):
    store: MessageStore
    number: int
    to: str


class Forwarding:
    """Passes on the messages of one entity; it is `Timed`."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._waiting: deque[_Waiting] = deque()
        self._gone: set[str] = set()
        self._retry: int | None = None

    def lose(self, target: str) -> None:
        """Note that an entity was deleted; one that gets its name later is another one."""
        self._gone.add(target.lower())

    def renew(self) -> None:
        """Look for targets by their names again, as after an update of the entity."""
        self._gone.clear()
        self.advance(milliseconds(self._home.clock))

    def pass_on(self, content: Content, to: str, hops: int) -> bool:
        """Send a message on and return True, False if it must wait for room; raises a Refusal that names why not."""
        if any(each.to == to for each in self._waiting):
            return False
        return self._sent(content, to, hops)

    def hold(self, store: MessageStore, number: int, to: str) -> None:
        """Pass on a message of *store* once its target has room."""
        self._waiting.append(_Waiting(store, number, to))
        self._set_timer()

    def advance(self, now: int) -> int | None:
        """Pass on what waits, in order, until a target is full again; see `Timed`."""
        if self._retry is not None and now < self._retry:
            return self._retry
        self._retry = None
        full: set[str] = set()
        for _ in range(len(self._waiting)):
            each = self._waiting.popleft()
            message = each.store.messages.get(each.number)
            if message is None:
                continue
            if each.to in full or not self._leaves(each, message.content):
                full.add(each.to)
                self._waiting.append(each)
        if self._waiting:
            self._set_timer()
        return self._retry

    def _leaves(self, waiting: _Waiting, content: Content) -> bool:
        try:
            if not self._sent(content, waiting.to, 1):
                return False
        except Refusal as refusal:
            waiting.store.forget(waiting.number, refusal)
            return True
        waiting.store.forget(waiting.number)
        return True

    def _sent(self, content: Content, to: str, hops: int) -> bool:
        if to.lower() in self._gone:
            raise Refusal(MISSING, f"'{to}' was deleted, and created again as another entity.")
        try:
            self._home.forward(content, to, hops)
        except Refusal as refusal:
            if refusal.condition == errors.RESOURCE_LIMIT_EXCEEDED:
                return False
            if refusal.condition == errors.NOT_FOUND:
                raise Refusal(MISSING, refusal.description) from refusal
            raise
        return True

    def _set_timer(self) -> None:
        if self._retry is None:
            self._retry = milliseconds(self._home.clock) + _RETRY_MILLISECONDS
            self._home.timers.set(self, self._retry)
