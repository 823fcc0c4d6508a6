"""
The delivery whose frames arrive on a link.

Source: OASIS AMQP 1.0, part 2, section 2.6.14.
"""

import sys

from shared.amqp.performatives import Transfer


class Assembly:
    """The frames of one delivery so far; beyond *limit* bytes only their size is kept."""

    __slots__ = ("_limit", "first", "held", "size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        """Start without a frame."""
        self._limit = limit
        self.first: Transfer | None = None
        """The first frame, None between deliveries."""
        self.size = 0
        self.held = bytearray()

    def add(self, transfer: Transfer, payload: bytes) -> Transfer:
        """Add a frame and return the first one."""
        first = self.first
        if first is None:
            first = self.first = transfer
        self.size += len(payload)
        if self.size > self._limit:
            self.held = bytearray()
        elif transfer.more or self.held:
            self.held += payload
        return first

    def take(self, payload: bytes) -> bytes:
        """Return the message, whose last frame has the *payload*, and start again."""
        self.first, self.size = None, 0
        if not self.held:
            return payload
        message = bytes(self.held)
        self.held = bytearray()
        return message
