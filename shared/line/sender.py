"""
The send of a batch: attempts until every message has its result or the deadline has passed.

An attempt has three parts: all targets get their messages concurrently; the reject limit counts refused messages; the
messages that it admits are set aside.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from shared.clock import Clock
from shared.errors import BuswayError, LockLost, MessageRejected, TargetUnavailable
from shared.line.accepted_sends import AcceptedSends
from shared.line.deadline import Deadline
from shared.line.item import Item
from shared.line.outages import LONGEST_WAIT_SECONDS, Outages, wait_seconds
from shared.line.pace import Pace
from shared.line.rejects import Rejects, dead_letter_queue
from shared.line.routing import Target
from shared.line.states import OUTCOMES, TO_REJECTS, TO_TARGET, WITH_FIRST, Rejection, Stage, State
from shared.line.task import Task
from shared.protocols import Outgoing

_REJECT_LIMIT = "the limit of rejects in a row"

# What one target has is recorded while another has not answered for this long.
_PATIENCE_SECONDS = 1.0

# A call of about one transfer: below the 256 KB that the Standard tier takes at once.
_CALL_BYTES = 200_000


class Sender:
    """Sends the batches of one task."""

    def __init__(self, task: Task, accepted: AcceptedSends, outages: Outages, clock: Clock) -> None:
        """Remember sent messages in *accepted*; log outages in *outages*."""
        self._task = task.name
        self._pace = Pace(task.rate)
        self._accepted = accepted
        self._outages = outages
        self._clock = clock
        self._rejects = Rejects(task, accepted)

    async def send(
        self, items: Sequence[Item], deadline: Deadline, progress: Callable[[], Awaitable[None]] | None = None
    ) -> BuswayError | None:
        """
        Send until every item has its result or *deadline* has passed; return the error that keeps the rest.

        *progress* is called after each attempt that left some without, and while one target lets the others wait.
        """
        attempts = 0
        uncounted = [item for item in items if item.state not in WITH_FIRST]
        try:
            await deadline.begin()
            _leave_lost(items, deadline)
            count = sum(item.state in TO_TARGET for item in items)
            while turn := self._pace.turn(count, deadline.now):
                if not await deadline.pause(min(turn, LONGEST_WAIT_SECONDS), is_retry=False):
                    return TargetUnavailable(f"{self._task}: the batch has no turn before its deadline, by limits.rate")
                _leave_lost(items, deadline)
            while True:
                errors = await self._attempt(items, uncounted, deadline, progress)
                attempts += 1
                if all(isinstance(error, MessageRejected) for error in errors):
                    return next(iter(errors), None)
                if not await deadline.pause(max(wait_seconds(error, attempts) for error in errors)):
                    return errors[0]
                _leave_lost(items, deadline)
        except LockLost as error:
            return error
        finally:
            self._accepted.trim(len(items))

    async def _attempt(
        self,
        items: Sequence[Item],
        uncounted: list[Item],
        deadline: Deadline,
        progress: Callable[[], Awaitable[None]] | None,
    ) -> list[BuswayError]:
        """Make one attempt; return the errors, which are empty if every item has its result."""
        # Two routes may have equal targets: what they send there keeps its order.
        by_target: dict[Target, list[Item]] = {}
        last, waiting = None, list[Item]()
        now = round(self._clock.now().timestamp() * 1000)
        for item in items:
            target = item.target
            if item.state in TO_TARGET and target is not None:
                item.shorten(now)
                if target is not last:
                    last, waiting = target, by_target.setdefault(target, [])
                waiting.append(item)
        answers = await _all_answers([self._send(*item, deadline) for item in by_target.items()], progress)
        # A list, because two targets may have one name: a hub by its keys and one of its partitions, or `rejects`.
        attempts = [(str(target), answer) for target, answer in zip(by_target, answers, strict=True)]
        attempts.append((_REJECT_LIMIT, self._rejects.admit(uncounted)))
        if any(item.state in TO_REJECTS for item in items):
            # The record of other results may have taken longer than a lock lasts.
            await deadline.begin()
            _leave_lost(items, deadline)
        # Even if targets fail: otherwise the next attempt would have to reject these messages again.
        (set_aside,) = await _all_answers([self._rejects.send(items, deadline)], progress)
        if set_aside is not None:
            attempts.append(set_aside)
        if progress is not None and any(
            error is not None and not isinstance(error, MessageRejected) for _, error in attempts
        ):
            # An operator who reads in the log that the batch waits may end the process.
            await progress()
        # Of two with one name, the one with an error counts.
        self._outages.note(dict(sorted(attempts, key=lambda attempt: attempt[1] is not None)))
        return [error for _, error in attempts if error is not None]

    async def _send(self, target: Target, waiting: Sequence[Item], deadline: Deadline) -> BuswayError | None:
        """Send once to one target; return the error that kept it from accepting messages, apart from refused ones."""
        busy = self._pace.refusal(target, deadline.now)
        if busy is not None:
            return busy
        timeout_seconds = deadline.attempt_seconds
        messages = [item.outgoing for item in waiting if item.outgoing is not None]
        answers: list[BuswayError | None] = [None] * len(messages)
        calls = calls_at_once(messages) if target.at_once else [range(len(messages))]

        async def call(positions: Sequence[int]) -> None:
            part = [messages[position] for position in positions]
            returned = await target.output.send(target.entity, part, timeout_seconds=timeout_seconds)
            for position, answer in zip(positions, returned, strict=True):
                answers[position] = answer

        await asyncio.gather(*map(call, calls))
        error = None
        for item, answer in zip(waiting, answers, strict=True):
            if answer is None and target.binding is not None:
                item.become(State.HANDED_OVER)
            elif answer is None:
                item.accept()
                self._remember(item)
            elif isinstance(answer, MessageRejected):
                item.refuse(Rejection(answer, Stage.SENT, self._task))
            else:
                error = error or answer
        if isinstance(error, TargetUnavailable):
            self._pace.note(target, error, deadline.now)
        return error

    def _remember(self, item: Item) -> None:
        outcome = item.outcome
        if outcome is not None:
            if item.event_key is None:
                self._accepted.remember(item.key, outcome)
            else:
                self._accepted.remember_event(item.event_key, item.key, outcome)
        for follower in item.followers:
            self._remember(follower)


async def _all_answers[T](
    calls: Iterable[Coroutine[Any, Any, T]], progress: Callable[[], Awaitable[None]] | None
) -> Sequence[T]:
    """Await *calls*; call *progress* at the start, and after each answer, once the others let it wait for a second."""
    if progress is None:
        return await asyncio.gather(*calls)
    tasks = [asyncio.ensure_future(call) for call in calls]
    answers = asyncio.gather(*tasks)
    try:
        waiting = {*tasks}
        patience: float | None = _PATIENCE_SECONDS
        while waiting:
            answered, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not answered:
                await progress()
            patience = _PATIENCE_SECONDS if answered else None
        return await answers
    finally:
        answers.cancel()  # in vain, unless this attempt was cancelled


def calls_at_once(messages: Sequence[Outgoing]) -> Sequence[Sequence[int]]:
    """
    Return the positions of *messages* in calls that may be under way together, of about a transfer each.

    Those with the same session id or partition key are in one call, in their order: if the first were refused and the
    second were not, they would arrive in another order.
    """
    count = 1 + sum(len(message.content) for message in messages) // _CALL_BYTES
    if count == 1:
        return [range(len(messages))]
    calls: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    of_key: dict[str, int] = {}
    current = 0
    for position, message in enumerate(messages):
        if sizes[current] >= _CALL_BYTES and current < count - 1:
            current += 1
        key = message.order_key
        call = current if key is None else of_key.setdefault(key, current)
        calls[call].append(position)
        sizes[call] += len(message.content)
    return [call for call in calls if call]


def _leave_lost(items: Sequence[Item], deadline: Deadline) -> None:
    """Leave messages whose lock was lost to their source, unless others depend on their results."""
    locks = deadline.locks
    if locks is None:
        return
    for item in items:
        is_alone = item.joined is None and not item.followers
        if is_alone and item.state not in OUTCOMES and locks.is_lost(item.original.lock_token):
            item.leave("its lock was lost")


def place_of(item: Item) -> str | None:
    """Return where a message was or will be sent, None if it is not sent."""
    if item.state is State.DEAD_LETTERED:
        return dead_letter_queue(item)
    return None if item.target is None else str(item.target)
