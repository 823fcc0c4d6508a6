"""
The sequence numbers of one partition: which were received, and which are missing between them.

Pure; time is an argument. A missing number is a gap until it is received, and a loss once the source no longer holds it
and the journal, read after that, still has no record of it. docs/decisions/0048 has the reasons.

Units: times are milliseconds since 1970 UTC; `now` is the reader's clock, enqueued times are those of the service.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

PATIENCE = 50_000
"""How long the source has not held a number before it can be a loss."""
GRACE = 110_000
"""The age from which a gap can be a loss; both end 10 s early, as a timer does not fire to the second."""
MOST_GAPS = 2000
MOST_LOSSES = 100
_RECREATED = 60_000
"""A number that is not higher than the last, but enqueued that much later, belongs to another entity of this name."""
_SCHEDULED_FOR = 180_000
"""A message that was scheduled for longer was seen at the source while it waited."""
_REMEMBERED_CREDIT = 1_200_000
_REMEMBERED = 7 * 86_400_000


class Received(NamedTuple):
    """A number that a task received; a message that was due at *scheduled* had another number before."""

    number: int | None
    enqueued: int | None
    scheduled: int | None = None


class Gap(msgspec.Struct, array_like=True):
    """Numbers that are missing below received ones; *after* and *before* are the enqueued times of its neighbours."""

    first: int
    last: int
    since: int
    after: int
    before: int
    absent: int | None = None
    """Since when the source does not hold them."""

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return self.last - self.first + 1

    def part(self, first: int, last: int, absent: int | None) -> "Gap":
        """Return some of its numbers."""
        return Gap(first, last, self.since, self.after, self.before, absent)


class Loss(msgspec.Struct, array_like=True):
    """
    Numbers that are gone without a record, when that was found, and the enqueued times of their neighbours.

    So many of the losses found together as *scheduled* says were the numbers of scheduled messages, which got others.
    """

    first: int
    last: int
    found: int
    after: int
    before: int
    scheduled: int = 0

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> "Loss":
        """Return some of its numbers."""
        return Loss(first, last, self.found, self.after, self.before, min(self.scheduled, last - first + 1))


class Held(NamedTuple):
    """A number that the source still holds; a scheduled message gets another number when it is *due*."""

    number: int
    due: int | None = None


class Dead(NamedTuple):
    """A dead letter of the source: its number there, its number before if it is known, and when it was enqueued."""

    number: int
    original: int | None
    enqueued: int | None
    is_given_up: bool
    """Whether the service gave it up: it expired, or was delivered too often."""


class Numbers(msgspec.Struct, omit_defaults=True):
    """The numbers of one partition since *since*; those up to *floor* are not watched."""

    since: int
    floor: int | None = None
    high: int = 0
    high_time: int = 0
    gaps: list[Gap] = []
    losses: list[Loss] = []
    credits: list[tuple[int, int]] = []
    """Messages that account for one missing number below their own, which is known, and when they were enqueued."""
    due: list[int] = []
    """When the scheduled messages are due whose numbers were seen at the source."""
    dead_mark: int = 0
    resume: int = 0
    """Where the next look at the source begins, as the last one could not see all of it."""
    unwatched: int = 0
    """Missing numbers that were given up, because there were too many gaps or the entity was created again."""

    def receive(self, received: Iterable[Received], now: int) -> int:
        """Add what a task received; return how many of these had been reported as lost."""
        recovered = 0
        # By time first: the numbers of an entity that was created again follow all numbers of the one before.
        for each in sorted(received, key=lambda each: (each.enqueued or 0, each.number or 0)):
            if each.number is None:
                self.credits.append((self.high + 1, now))
                continue
            enqueued = self.high_time if each.enqueued is None else each.enqueued
            recovered += self._add(each.number, enqueued, now)
            if each.scheduled in self.due:
                self.due.remove(each.scheduled)
            elif each.scheduled is not None and self.floor is not None and each.number > self.floor:
                self.credits.append((each.number, enqueued))
        self.credits = [credit for credit in self.credits if credit[1] > now - _REMEMBERED_CREDIT][-MOST_GAPS:]
        self.due = [each for each in self.due if each > now - _REMEMBERED][-MOST_GAPS:]
        self.losses = [loss for loss in self.losses if now - loss.found < _REMEMBERED]
        surplus = len(self.gaps) - MOST_GAPS
        if surplus > 0:
            self.unwatched += sum(gap.count for gap in self.gaps[:surplus])
            del self.gaps[:surplus]
        return recovered

    def _add(self, number: int, enqueued: int, now: int) -> int:
        if self.floor is None:
            if enqueued >= self.since:
                self.floor, self.high, self.high_time = number, number, enqueued
            return 0
        if number > self.high:
            if enqueued < self.since - _RECREATED:
                return 0  # a late delivery of an entity that was deleted meanwhile
            if number > self.high + 1:
                self.gaps.append(Gap(self.high + 1, number - 1, now, self.high_time, enqueued))
            self.high, self.high_time = number, max(enqueued, self.high_time)
            return 0
        if enqueued > self.high_time + _RECREATED:
            self._start_again(number, enqueued)
            return 0
        at = bisect_right(self.gaps, number, key=lambda gap: gap.first) - 1
        if at >= 0 and number <= self.gaps[at].last:
            gap = self.gaps[at]
            below = Gap(gap.first, number - 1, gap.since, gap.after, max(enqueued, gap.after), gap.absent)
            above = Gap(number + 1, gap.last, gap.since, min(enqueued, gap.before), gap.before, gap.absent)
            self.gaps[at : at + 1] = [gap for gap in (below, above) if gap.count > 0]
            return 0
        return self._recover(number)

    def _recover(self, number: int) -> int:
        for at, loss in enumerate(self.losses):
            if loss.first <= number <= loss.last:
                parts = [loss.part(loss.first, number - 1), loss.part(number + 1, loss.last)]
                self.losses[at : at + 1] = [part for part in parts if part.count > 0]
                return 1
        return 0

    def _start_again(self, number: int, enqueued: int) -> None:
        self.unwatched += sum(gap.count for gap in self.gaps)
        self.gaps, self.credits, self.due, self.dead_mark = [], [], [], 0
        self.since, self.floor, self.high, self.high_time = enqueued, number, number, enqueued

    def questions(self) -> list[Gap]:
        """Return the numbers to look for at the source, in their order."""
        gaps = [gap for gap in self.gaps if gap.last >= self.resume]
        return [gap.part(max(gap.first, self.resume), gap.last, gap.absent) for gap in gaps]

    def answer(self, held: Sequence[Held], until: int | None, now: int) -> None:
        """Divide the gaps in question by what the source holds; it was looked at up to *until*, None for to its end."""
        numbers = sorted(held)
        keys = [number.number for number in numbers]
        asked = {gap.last: gap for gap in self.questions()}
        answered: list[Gap] = []
        for gap in self.gaps:
            seen = asked.get(gap.last)
            last = gap.last if until is None else min(gap.last, until)
            if seen is None or last < seen.first:
                answered.append(gap)
                continue
            within = numbers[bisect_left(keys, seen.first) : bisect_right(keys, last)]
            self.due += [each.due for each in within if each.due is not None]
            parts = [gap.part(gap.first, seen.first - 1, gap.absent)]
            parts += _runs(seen.part(seen.first, last, gap.absent), within, now)
            parts.append(gap.part(last + 1, gap.last, gap.absent))
            answered += [part for part in parts if part.count > 0]
        self.gaps = answered
        self.resume = 0 if until is None else until + 1

    def candidates(self, now: int) -> list[Gap]:
        """Return the gaps that are losses unless a dead letter, a credit or a gap of the journal explains them."""
        return [
            gap
            for gap in self.gaps
            if now - gap.since >= GRACE and gap.absent is not None and now - gap.absent >= PATIENCE
        ]

    def explain(self, dead: Sequence[Dead]) -> int:
        """Take away the missing numbers that are dead letters; return how many these were."""
        explained = 0
        for each in sorted(dead):
            gap = None
            original = each.original
            if original is not None:
                gap = next((gap for gap in self.gaps if gap.first <= original <= gap.last), None)
            if gap is not None and original is not None:
                self._take(gap, original)
                explained += 1
            elif original is not None and self.floor is not None and self.floor < original <= self.high:
                continue  # it was received before
            elif each.number > self.dead_mark and each.is_given_up and each.enqueued is not None:
                time = each.enqueued
                found = next(
                    (gap for gap in self.gaps if gap.absent is not None and gap.after <= time <= gap.before), None
                )
                if found is not None:
                    self._take(found, found.first)
                    explained += 1
        self.dead_mark = max([self.dead_mark, *(each.number for each in dead)])
        return explained

    def lose(self, now: int) -> list[Loss]:
        """Turn the candidates into losses, and return these; which numbers were of scheduled messages is not known."""
        candidates = self.candidates(now)
        gone = {candidate.first for candidate in candidates}
        self.gaps = [gap for gap in self.gaps if gap.first not in gone]
        explained = {gap.first for gap in candidates if any(_explains(credit, gap) for credit in self.credits)}
        used = [credit for credit in self.credits if any(_explains(credit, gap) for gap in candidates)]
        doubtful = sum(gap.count for gap in candidates if gap.first in explained)
        self.credits = [credit for credit in self.credits if credit not in used] + used[doubtful:]
        if len(used) >= doubtful:
            candidates = [candidate for candidate in candidates if candidate.first not in explained]
        lost = [
            Loss(candidate.first, candidate.last, now, candidate.after, candidate.before) for candidate in candidates
        ]
        left = len(used) if len(used) < doubtful else 0
        for loss in lost:
            if loss.first in explained:
                loss.scheduled = min(left, loss.count)
                left -= loss.scheduled
        self.losses = [*self.losses, *lost][-MOST_LOSSES:]
        return lost

    def forgive(self, first: int, last: int) -> int:
        """Give up the gaps that were seen first between two times; return their numbers."""
        forgiven = [gap for gap in self.gaps if first <= gap.since <= last]
        self.gaps = [gap for gap in self.gaps if not first <= gap.since <= last]
        count = sum(gap.count for gap in forgiven)
        self.unwatched += count
        return count

    def _take(self, gap: Gap, number: int) -> None:
        at = next(at for at, each in enumerate(self.gaps) if each.first == gap.first)
        parts = [gap.part(gap.first, number - 1, gap.absent), gap.part(number + 1, gap.last, gap.absent)]
        self.gaps[at : at + 1] = [part for part in parts if part.count > 0]


def _explains(credit: tuple[int, int], gap: Gap) -> bool:
    number, enqueued = credit
    return number > gap.first and gap.before >= enqueued - _SCHEDULED_FOR


def _runs(gap: Gap, held: Sequence[Held], now: int) -> list[Gap]:
    """Return the parts of a gap: what the source holds, without scheduled numbers, and what it does not hold."""
    absent = now if gap.absent is None else gap.absent
    parts: list[Gap] = []
    next_number = gap.first
    for each in held:
        if each.number > next_number:
            parts.append(gap.part(next_number, each.number - 1, absent))
        if each.due is None:
            if parts and parts[-1].absent is None and parts[-1].last == each.number - 1:
                parts[-1].last = each.number
            else:
                parts.append(gap.part(each.number, each.number, None))
        next_number = each.number + 1
    if next_number <= gap.last:
        parts.append(gap.part(next_number, gap.last, absent))
    return parts
