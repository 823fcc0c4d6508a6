"""The limit on rejected messages in a row: better a task that stops than a source that is emptied into `rejects`."""

DEFAULT_REJECTS_IN_A_ROW = 100


class RejectLimit:
    """
    Counts the rejected messages of one task that follow each other without a good one between them.

    The count belongs to this process: a restart begins at zero, and so does the first good message.
    """

    def __init__(self, limit: int | None = DEFAULT_REJECTS_IN_A_ROW) -> None:
        """Admit *limit* rejected messages in a row, None for any number."""
        self.limit = limit
        self._count = 0

    def reset(self) -> None:
        """Begin at zero, after a good message."""
        self._count = 0

    def admit(self) -> bool:
        """Return whether one more message may be rejected, and count it if so."""
        if self.limit is not None and self._count >= self.limit:
            return False
        self._count += 1
        return True
