"""
How much a connection, and all connections of a namespace together, may make the broker hold.

Counted is what a peer can leave there without sending a message to an entity: incomplete frames and requests, sessions,
links, and answers that it does not fetch. Until it has opened the connection and shown a valid token or key (where the
namespace has keys) the limit is small. If all connections together hold too much, the largest holder is closed, one
without a token first, so that an attack closes the attacker's connections.
"""

from collections.abc import Callable

UNTRUSTED_LIMIT = 256 * 1024
TRUSTED_LIMIT = 16 * 1024 * 1024
TOTAL_LIMIT = 64 * 1024 * 1024

SESSION_SIZE = 1024
LINK_SIZE = 1024
"""Bytes for which a session or link counts; for a link those of its attach are added."""


class TotalHoldings:
    """What all connections of a namespace hold."""

    def __init__(self, limit: int = TOTAL_LIMIT) -> None:
        """Close connections when they hold more than *limit* bytes together."""
        self.size = 0
        self._limit = limit
        self._holders: set[Holdings] = set()

    def change(self, holder: "Holdings", size: int) -> None:
        """Count *size* more bytes of *holder*."""
        self.size += size
        if holder.size > 0:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        while size > 0 and self.size > self._limit and self._holders:
            largest = max(self._holders, key=lambda holder: (not holder.is_trusted, holder.size))
            largest.give_up(f"all connections together hold {self.size} bytes, expected at most {self._limit}")


class Holdings:
    """What one connection holds."""

    def __init__(self, total: TotalHoldings, is_trusted: Callable[[], bool], close: Callable[[str], None]) -> None:
        """Call *close* with the reason when it is too much; *is_trusted* returns whether the larger limit applies."""
        self.size = 0
        self._total = total
        self._is_trusted = is_trusted
        self._close = close
        self.unread = 0
        self._is_closed = False

    @property
    def is_trusted(self) -> bool:
        """Return whether the peer has opened the connection, and has shown a token or key or needs none."""
        return self._is_trusted()

    def change(self, size: int) -> None:
        """Count *size* more bytes, or fewer; close the connection if they are too many."""
        if self._is_closed:
            return
        self.size += size
        self._total.change(self, size)
        limit = TRUSTED_LIMIT if self.is_trusted else UNTRUSTED_LIMIT
        if size > 0 and self.size > limit and not self._is_closed:
            when = "" if self.is_trusted else " before a valid token or key"
            self.give_up(
                f"the connection holds {self.size} bytes of requests and links, expected at most {limit}{when}"
            )

    def set_unread(self, size: int) -> None:
        """Count *size* bytes of an incomplete frame; those of a trusted peer are bounded by the size of a frame."""
        size = 0 if self.is_trusted else size
        change, self.unread = size - self.unread, size
        self.change(change)

    def give_up(self, reason: str) -> None:
        """Release everything, and close the connection."""
        self.release()
        self._close(reason)

    def release(self) -> None:
        """Count nothing from now on: the connection is closed."""
        if not self._is_closed:
            size, self.size, self._is_closed = self.size, 0, True
            self._total.change(self, -size)
