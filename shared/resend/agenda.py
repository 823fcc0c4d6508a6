"""What a run has still to do, which message of a session goes next, and the messages that it has locked meanwhile."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from shared.resend.source import LockedMessage, Source


class Agenda:
    """
    The keys of the messages that are neither done nor left, in the order of their source.

    Messages of one session go in their order. A source that is read only once adds its messages as they come.
    """

    def __init__(
        self, wanted: Mapping[str, str | None] | None, *, is_sent: Callable[[str], bool], keeps_order: bool
    ) -> None:
        """
        Start with the messages *wanted*: the session of each by its key; None: with whatever the source has.

        Those that *is_sent* hold nobody up, and without *keeps_order* none does.
        """
        self._sessions = dict(wanted or {})
        self._is_open = wanted is None
        self._keeps_order = keeps_order
        self._counts = Counter(self._sessions.values())
        self._queues: dict[str, deque[str]] = {}
        for key, session_id in self._sessions.items() if keeps_order else ():
            if session_id is not None and not is_sent(key):
                self._queues.setdefault(session_id, deque()).append(key)

    def __bool__(self) -> bool:
        return self._is_open or bool(self._sessions)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._sessions))

    def __contains__(self, key: str) -> bool:
        return key in self._sessions

    def takes(self, key: str) -> bool:
        """Return whether a message that has come is to be sent."""
        if self._is_open and key not in self._sessions:
            self._sessions[key] = None
            self._counts[None] += 1
        return key in self._sessions

    def close(self) -> None:
        """Note that the source has given all its messages."""
        self._is_open = False

    def session_of(self, key: str) -> str | None:
        """Return the session of a message."""
        return self._sessions.get(key)

    def session_ids(self) -> Sequence[str | None]:
        """Return the sessions of the messages, in their order."""
        return list(dict.fromkeys(self._sessions.values()))

    def keys_of(self, session_id: str | None) -> list[str]:
        """Return the messages of a session, or with None all."""
        return [key for key, session in self._sessions.items() if session_id is None or session == session_id]

    def has_more(self, session_id: str | None) -> bool:
        """Return whether something of a session, or with None anything, is to be done."""
        return bool(self) if session_id is None else self._counts[session_id] > 0

    def is_next(self, key: str, taken: Mapping[str | None, int]) -> bool:
        """Return whether a message may go now, if *taken* messages of each session go just before it."""
        session_id = self._sessions.get(key)
        if session_id is None or not self._keeps_order:
            return True
        queue, before = self._queue_of(key), taken.get(session_id, 0)
        return before < len(queue) and queue[before] == key

    def behind(self, key: str) -> list[str]:
        """Return the messages of the session of *key* that wait for it."""
        queue = list(self._queue_of(key))
        return queue[queue.index(key) + 1 :] if key in queue else []

    def pass_by(self, key: str) -> None:
        """Let the message behind *key* in its session go."""
        queue = self._queue_of(key)
        if key in queue:
            queue.remove(key)

    def end(self, key: str) -> None:
        """Take a message off; nothing waits for it any more."""
        self._counts[self._sessions.pop(key)] -= 1

    def _queue_of(self, key: str) -> deque[str]:
        session_id = self._sessions.get(key)
        return deque() if session_id is None else self._queues.get(session_id, deque())


_RENEWAL_SECONDS = 0.5
_MOST_BYTES = 64 * 2**20


class Hold:
    """
    The messages that are to be sent, and others that are not: one that is given back comes again before all others.

    Only those to be sent keep their content.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._messages: dict[str, LockedMessage] = {}
        self._others: dict[str | int, LockedMessage] = {}
        self._bytes = 0
        self._renewed = 0.0

    def __contains__(self, key: str) -> bool:
        return key in self._messages

    def __iter__(self) -> Iterator[tuple[str, LockedMessage]]:
        return iter(list(self._messages.items()))

    @property
    def is_full(self) -> bool:
        """Whether their content takes more memory than a run may use."""
        return self._bytes > _MOST_BYTES

    def of(self, keys: Sequence[str]) -> list[LockedMessage]:
        """Return the messages with *keys* that are still locked."""
        return [message for message in map(self._messages.get, keys) if message is not None]

    def add(self, key: str, message: LockedMessage) -> None:
        """Hold a message to be sent; one that came before has lost its lock."""
        self.drop(key)
        self._messages[key] = message
        self._bytes += len(message.delivery.payload)

    def drop(self, key: str) -> LockedMessage | None:
        """Return a message that is not to be sent any more, None if it is not held."""
        message = self._messages.pop(key, None)
        if message is not None:
            self._bytes -= len(message.delivery.payload)
        return message

    def keep_back(self, message: LockedMessage) -> bool:
        """Hold a message that is not to be sent; return whether it is new."""
        identity = _identity(message)
        is_new = identity not in self._others
        message.forget()
        self._others[identity] = message
        return is_new

    async def renew(self, source: Source) -> None:
        """Renew the locks that end soon; what has lost its lock comes again."""
        now = asyncio.get_running_loop().time()
        if now < self._renewed + _RENEWAL_SECONDS:
            return
        self._renewed = now
        for lost in await source.renew([*self._messages.values()]):
            if lost.key is not None:
                self.drop(lost.key)
        for lost in await source.renew([*self._others.values()]):
            self._others.pop(_identity(lost), None)

    async def give_back(self, source: Source) -> None:
        """Give all of them back."""
        messages = [*self._messages.values(), *self._others.values()]
        self._messages, self._others, self._bytes = {}, {}, 0
        await source.give_back(messages)


def _identity(message: LockedMessage) -> str | int:
    """Return the key of a message, or of one that cannot be read the number of its delivery."""
    return message.delivery.delivery_id if message.key is None else message.key
