"""Timers for everything that has deadlines."""

import heapq
import itertools
from collections.abc import Callable
from typing import Protocol


class Timed(Protocol):
    """Something with deadlines of its own."""

    def advance(self, now: int) -> None:
        """Do everything that is due at *now*."""
        ...

    def next_deadline(self) -> int | None:
        """Return its next deadline, None for never."""
        ...


class Timers:
    """
    The earliest deadline of each owner.

    Units: milliseconds since 1970 UTC throughout. A timer may fire early, when the owner has dropped its earliest
    deadline; it is then set again.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._earliest: dict[Timed, int] = {}
        self._order = itertools.count()

    def set(self, owner: Timed, at: int) -> None:
        """Call *owner* at *at* or earlier."""
        earliest = self._earliest.get(owner)
        if earliest is None or at < earliest:
            self._earliest[owner] = at
            heapq.heappush(self._heap, (at, next(self._order), owner))

    def forget(self, owner: Timed) -> None:
        """Cancel the timer of *owner*."""
        self._earliest.pop(owner, None)

    def next_deadline(self) -> int | None:
        """Return when the next timer fires."""
        return self._heap[0][0] if self._heap else None

    def advance(self, now: int) -> None:
        """Call everyone who is due at *now*."""
        while self._heap and self._heap[0][0] <= now:
            at, _, owner = heapq.heappop(self._heap)
            if self._earliest.get(owner) != at:
                continue
            del self._earliest[owner]
            owner.advance(now)
            following = owner.next_deadline()
            if following is not None:
                self.set(owner, max(following, now + 1))


class Deadlines:
    """
    The deadlines of messages by sequence number, most of which are dropped before they are due.

    Dropped deadlines stay until they are due or outnumber the others, so that dropping costs nothing.
    """

    def __init__(self, is_current: Callable[[int, int], bool]) -> None:
        """Use *is_current* (deadline, sequence number) to recognise dropped deadlines."""
        self._is_current = is_current
        self._heap: list[tuple[int, int]] = []
        self._limit = 1024

    def add(self, at: int, sequence_number: int) -> None:
        """Add a deadline."""
        heapq.heappush(self._heap, (at, sequence_number))
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if self._is_current(*entry)]
            heapq.heapify(self._heap)
            self._limit = max(1024, 2 * len(self._heap))

    def next(self) -> int | None:
        """Return the next deadline that is not dropped."""
        while self._heap and not self._is_current(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> list[int]:
        """Remove the deadlines due at *now* and return their sequence numbers in order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(*entry):
                due.append(entry[1])
        return sorted(due)
