"""The stop on a run of rejects: rather a task that stands than a source that is emptied into `rejects`."""

DEFAULT_REJECTS_IN_A_ROW = 100


class RejectGuard:
    """
    Counts the messages at fault of one task that follow each other without a good one between them.

    The count is this process's: a restart begins anew, and so does the first message that is not at fault.
    """

    def __init__(self, limit: int | None = DEFAULT_REJECTS_IN_A_ROW) -> None:
        """Let *limit* messages in a row be set aside, None for any number."""
        self.limit = limit
        self._count = 0

    def saw_a_good_message(self) -> None:
        """End the run."""
        self._count = 0

    def admits_one_at_fault(self) -> bool:
        """Tell whether one more message may be set aside, and count it if so."""
        if self.limit is not None and self._count >= self.limit:
            return False
        self._count += 1
        return True
