"""The locks on the messages of one store."""

import itertools
import os
import struct

from busway_broker import errors
from busway_broker.core.message import StoredMessage
from busway_broker.errors import Refusal

_TOKEN = struct.Struct(">8sQ")


class Locks(dict[bytes, StoredMessage]):
    """
    The locked messages by token.

    They are in the order of expiry: all locks last equally long, and renewing one moves it to the end. Shortening the
    lock duration while messages are locked breaks the order, and so do the locks of a group.
    """

    def __init__(self) -> None:
        super().__init__()
        self.are_in_order = True
        self._prefix = os.urandom(8)
        self._numbers = itertools.count(1)

    def new_token(self) -> bytes:
        """Return a token that was never used."""
        return _TOKEN.pack(self._prefix, next(self._numbers))

    def message(self, token: bytes) -> StoredMessage:
        """Return the message with this lock; this and the methods below raise Refusal(MESSAGE_LOCK_LOST)."""
        message = self.get(token)
        if message is None:
            raise Refusal(
                errors.MESSAGE_LOCK_LOST,
                "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
                "the queue.",
            )
        return message

    def renew(self, token: bytes, until: int) -> int:
        """Let a lock end at *until*, and return that."""
        message = self.message(token)
        del self[token]
        message.locked_until = until
        self[token] = message
        return until

    def end(self, token: bytes) -> StoredMessage:
        """Remove a lock and return its message."""
        message = self.pop(token, None) or self.message(token)
        message.lock_token = None
        return message

    def due(self, now: int) -> list[StoredMessage]:
        """Return the messages whose lock has ended."""
        lost = []
        for message in self.values():
            if message.locked_until <= now:
                lost.append(message)
            elif self.are_in_order:
                break
        return lost

    def next_end(self) -> int | None:
        """Return when the next lock ends."""
        ends = (message.locked_until for message in self.values())
        return next(ends, None) if self.are_in_order else min(ends, default=None)
