"""Timers for everything that has deadlines."""

import heapq
import itertools
from collections.abc import Container
from typing import Protocol

_DROPPED_AT_LEAST = 1024


class Timed(Protocol):
    """Something with deadlines of its own."""

    def advance(self, now: int) -> int | None:
        """Do everything that is due at *now*, and return the next deadline, None for never."""
        ...


class Timers:
    """
    The earliest deadline of each owner.

    Units: milliseconds since 1970 UTC throughout. A timer may fire early, when the owner has dropped its earliest
    deadline; it is then set again.
    """

    def __init__(self) -> None:
        # (time, number), also of timers that were cancelled: the heap keeps no link or connection that has ended.
        self._heap: list[tuple[int, int]] = []
        self._timers: dict[Timed, tuple[int, int]] = {}
        self._owners: dict[int, Timed] = {}
        self._numbers = itertools.count()

    def set(self, owner: Timed, at: int) -> None:
        """Call *owner* at *at* or earlier."""
        timer = self._timers.get(owner)
        if timer is None or at < timer[0]:
            self.forget(owner)
            self._timers[owner] = timer = at, next(self._numbers)
            self._owners[timer[1]] = owner
            heapq.heappush(self._heap, timer)

    def forget(self, owner: Timed) -> None:
        """Cancel the timer of *owner*."""
        timer = self._timers.pop(owner, None)
        if timer is None:
            return
        del self._owners[timer[1]]
        if len(self._heap) > 2 * len(self._owners) + _DROPPED_AT_LEAST:
            self._heap = [each for each in self._heap if each[1] in self._owners]
            heapq.heapify(self._heap)

    def next_deadline(self) -> int | None:
        """Return when the next timer fires."""
        return self._heap[0][0] if self._heap else None

    def advance(self, now: int) -> None:
        """Call everyone who is due at *now*."""
        while self._heap and self._heap[0][0] <= now:
            owner = self._owners.get(heapq.heappop(self._heap)[1])
            if owner is None:
                continue
            self.forget(owner)
            following = owner.advance(now)
            if following is not None:
                self.set(owner, max(following, now + 1))


class Deadlines:
    """
    The deadlines of messages by sequence number, most of which are dropped before they are due.

    Dropped deadlines stay until they are due or outnumber the others, so that dropping costs nothing.
    """

    def __init__(self, messages: Container[int]) -> None:
        """Use the sequence numbers of *messages*: the deadline of one that is no longer there was dropped."""
        self._messages = messages
        self._heap: list[tuple[int, int]] = []
        self._limit = _DROPPED_AT_LEAST

    def add(self, at: int, sequence_number: int) -> bool:
        """Add a deadline; return whether it may be earlier than all others."""
        heapq.heappush(self._heap, (at, sequence_number))
        if len(self._heap) > self._limit:
            self._heap = [each for each in self._heap if each[1] in self._messages]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _DROPPED_AT_LEAST
        return self._heap[0][1] == sequence_number

    def next(self) -> int | None:
        """Return the next deadline that is not dropped."""
        while self._heap and self._heap[0][1] not in self._messages:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> list[int]:
        """Remove the deadlines due at *now* and return their sequence numbers in order."""
        due = []
        while (at := self.next()) is not None and at <= now:
            due.append(heapq.heappop(self._heap)[1])
        return sorted(due)
