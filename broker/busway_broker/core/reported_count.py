"""
The number of messages that the administration reports, which is some seconds old.

Clients that send and then ask read the number of before; so do those that have emptied an entity. The number of
scheduled messages falls with every cancellation, also of a message that is not there, and so below 0.

Sources: issues 254 and 653 of Azure/azure-service-bus, 26852 of Azure/azure-sdk-for-net.
"""

from collections.abc import Sized


class ReportedCount:
    """The number of some messages as it was at one moment of the last *lag* milliseconds."""

    __slots__ = ("_at", "_lag", "_messages", "_number", "_too_few")

    def __init__(self, messages: Sized, lag: int) -> None:
        self._messages = messages
        self._lag = lag
        self._number = 0
        self._at: int | None = None
        self._too_few = 0

    def look(self, now: int) -> None:
        """Count again if the last count is too old; call it before each change."""
        if self._at is None or not 0 <= now - self._at < self._lag:
            self._at, self._number = now, len(self._messages)

    def lose(self) -> None:
        """Report one less from now on."""
        self._too_few += 1

    def at(self, now: int) -> int:
        """Return the number that is reported."""
        self.look(now)
        return self._number - self._too_few
