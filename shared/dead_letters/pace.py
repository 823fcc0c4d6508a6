"""How fast messages are sent if the operator has set a rate."""


class Pace:
    """
    Says how long to wait between sends, so that at most the wanted number of messages is sent in a second.

    Time in which nothing could be sent is not caught up: a target that was away would get all of it at once.
    """

    def __init__(self) -> None:
        """Let the first send begin at any time."""
        self._due = 0.0

    def begin(self, now: float) -> None:
        """Note that a send begins, at *now* in seconds."""
        self._due = max(self._due, now)

    def seconds_after(self, sent: int, rate: float | None, now: float) -> float:
        """Return how long to wait at *now* after a send of *sent* messages; without a *rate* per second, 0."""
        if rate is None:
            return 0.0
        self._due += sent / rate
        return max(self._due - now, 0.0)
