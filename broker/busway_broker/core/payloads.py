"""
What the messages of an entity take of its size.

A topic stores a message once, however many subscriptions have a copy (a service engineer in azure-service-bus-java
301). One above 1 MB takes its size twice in a queue, and once for each copy and once more in a topic (Microsoft Learn,
Service Bus quotas).
"""

_LARGE = 1024 * 1024


def taken(size: int, copies: int = 1) -> int:
    """Return the bytes that a message of *size* bytes takes with this number of copies."""
    return size if size <= _LARGE else size * (copies + 1)


class Payloads:
    """The messages of a topic, each with the number of its copies in the subscriptions."""

    def __init__(self) -> None:
        self.size = 0
        # By the sequence number in the topic: the copies, and the size of the largest one.
        self._stored: dict[int, tuple[int, int]] = {}

    def add(self, number: int, size: int) -> None:
        """Count a copy."""
        copies, largest = self._stored.get(number, (0, 0))
        self._set(number, copies + 1, max(largest, size))

    def remove(self, number: int) -> None:
        """Forget a copy; the last one leaves with the message."""
        copies, largest = self._stored[number]
        self._set(number, copies - 1, largest)

    def grow(self, number: int, size: int) -> None:
        """Count a copy that has changed."""
        copies, largest = self._stored[number]
        self._set(number, copies, max(largest, size))

    def _set(self, number: int, copies: int, size: int) -> None:
        before = self._stored.get(number)
        if before is not None:
            self.size -= taken(before[1], before[0])
        if copies:
            self._stored[number] = copies, size
            self.size += taken(size, copies)
        else:
            del self._stored[number]
