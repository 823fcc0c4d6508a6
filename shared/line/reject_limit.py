"""
The limit on rejected messages: a task stops before it moves its whole source to `rejects`.

A task should stop if it has a fault itself, which starts with a restart, or if its target has one. A producer of bad
messages must not stop it for the others: each good message allows as many bad ones as the limit.
"""

DEFAULT_REJECTS_IN_A_ROW = 100
_MOST_BY_TASK, _MOST_BY_TARGET = 100, 10


class RejectLimit:
    """
    Compares the number of rejected messages of one task with the number of good ones.

    Without a good message *limit* messages may be rejected. Each good one adds that number again, up to 100 times the
    limit; for messages that a target refuses, up to 10 times, because a target may begin to refuse at any time. The
    count belongs to this process: a restart begins at zero.
    """

    def __init__(self, limit: int | None = DEFAULT_REJECTS_IN_A_ROW) -> None:
        """Admit *limit* rejected messages for each good one, None for any number."""
        self._limit = limit
        self._credit = limit or 0
        self.in_a_row = 0
        """Rejected messages since the last good one."""

    def good(self, messages: int) -> None:
        """Count *messages* that are not rejected."""
        if messages:
            self.in_a_row = 0
            if self._limit is not None:
                self._credit = min(self._credit + messages * self._limit, _MOST_BY_TASK * self._limit)

    def admit(self, *, by_target: bool) -> bool:
        """Return whether one more message may be rejected, and count it if so; a target may have refused it."""
        if self._limit is not None:
            if self._credit <= 0 or (by_target and self.in_a_row >= _MOST_BY_TARGET * self._limit):
                return False
            self._credit -= 1
        self.in_a_row += 1
        return True
