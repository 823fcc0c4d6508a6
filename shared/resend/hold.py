"""The locked messages of a run."""

import asyncio
from collections.abc import Iterator, Sequence

from shared.resend.source import LockedMessage, Source

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
        self._others: dict[str | None, LockedMessage] = {}
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
        is_new = message.key not in self._others
        message.forget()
        self._others[message.key] = message
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
            self._others.pop(lost.key, None)

    async def give_back(self, source: Source) -> None:
        """Give all of them back."""
        messages = [*self._messages.values(), *self._others.values()]
        self._messages, self._others, self._bytes = {}, {}, 0
        await source.give_back(messages)
