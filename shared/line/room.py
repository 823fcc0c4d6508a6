"""The memory that the messages of a batch may take together."""

from collections.abc import Iterable

from shared.line.item import Item
from shared.message.message import Message

# What a message takes beside its contents, with all that is known of it.
_OWN_BYTES = 4096


class Room:
    """The remaining bytes for the results of a step in a batch."""

    def __init__(self, limit: int) -> None:
        """Begin with room for *limit* bytes."""
        self._left = limit
        self._index = -1
        self.of_one = 0
        """The bytes that the latest message has become."""

    def takes(self, item: Item, messages: Iterable[Message]) -> bool:
        """Subtract the result for *item*; return whether there was room for it."""
        if item.index != self._index:
            self._index, self.of_one = item.index, 0
        for message in messages:
            raw = message.sections
            size = len(raw.body) + len(raw.application_properties) + _OWN_BYTES
            self.of_one += size
            self._left -= size
        return self._left >= 0
