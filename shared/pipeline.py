"""
One straight line: received → edited → stamped → routed → sent → journalled; the caller then settles the source.

1. Everything before the send is synchronous and does no I/O.
2. A message is decided once. What the target has accepted is remembered, so that the redelivery of a batch that failed
   half-way does not send it again from this instance.
3. `run` returns when every message has its outcome and raises when one must stay at the source. Functions settle a
   whole batch or nothing, so raising leaves all of it there.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shared.amqp.values import string
from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.loop_prevention import LoopGuard, path_before
from shared.message import Arrival, Message, Origin
from shared.metadata import deterministic_id, stamp
from shared.protocols import Editor, Journal, Outcome, Outgoing, Record, Withheld
from shared.rejection import set_aside, wrapped
from shared.routing import Router, Target
from shared.ttl import TimeToLive

_LOGGER = logging.getLogger("busway.pipeline")

# Left of a lock for the journal and for the host to settle the batch: a quarter of it, but not more than this.
LOCK_MARGIN_SECONDS = 10.0
# Opening a connection takes a good part of a second; an attempt without the time for it would hide the last answer.
SHORTEST_ATTEMPT_SECONDS = 2.0
# How long a batch without locks (Event Hubs, or a session's) may be held while its target is away.
UNLOCKED_BUDGET_SECONDS = 30.0
FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0
REMEMBERED_SENDS = 10_000


@dataclass(frozen=True)
class Task:
    """A replication task, assembled: what the pipeline needs to know of its file."""

    name: str
    origin: Origin
    editors: Sequence[Editor]
    router: Router
    rejects: Target | None
    time_to_live: TimeToLive
    loop_guard: LoopGuard | None
    restore: Callable[[Message], None] | None = None
    """What a message that arrives needs done first (`shared.mapping`)."""
    partitions: frozenset[str] | None = None
    """Of a hub, those that the task is for; it passes over the batches of others. None: all."""


@dataclass(slots=True)
class _Item:
    """One message of a batch on its way: what is known of it, where it is to go, what became of it."""

    content: bytes
    arrival: Arrival
    key: tuple[object, ...] | None = None
    outcome: Outcome | None = None
    target: Target | None = None
    outgoing: Outgoing | None = None
    message_id: str | None = None
    reason: str | None = None
    rejection: MessageRejected | None = None
    is_wrapped: bool = False


class Pipeline:
    """The line of one task; one instance carries all its batches, in turn or interleaved."""

    def __init__(
        self,
        task: Task,
        journal: Journal,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Wait between attempts with *sleep*."""
        self._task = task
        self._journal = journal
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._accepted: OrderedDict[tuple[object, ...], Outcome] = OrderedDict()

    async def run(self, batch: Sequence[bytes], partition: str | None = None) -> Counter[Outcome]:
        """
        Carry the encoded messages of *batch*, from one *partition* where the source has any; count their outcomes.

        Raises TargetUnavailable or TargetRefused when a target took nothing within the time that the locks allow, and
        MessageRejected when a message is at fault and the task has no `rejects`: the batch must then be redelivered.
        """
        started = self._clock.monotonic()
        if not self._takes_from(partition):
            return Counter()
        origin = self._task.origin if partition is None else self._task.origin._replace(partition=partition)
        now = self._clock.now()
        items = [item for content in batch for item in self._prepare(content, origin, now)]
        deadline = started + self._budget_seconds(items)
        obstacle = await self._deliver(items, deadline)
        await self._journal.write([self._record(item) for item in items])
        outcomes = Counter(item.outcome or Outcome.RETRY for item in items)
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        seconds = self._clock.monotonic() - started
        _LOGGER.info("%s: %d messages in %.0f ms: %s.", self._task.name, len(batch), seconds * 1000, told)
        if obstacle is not None:
            _LOGGER.error("%s: the batch stays at the source: %s", self._task.name, obstacle)
            raise obstacle
        return outcomes

    def _takes_from(self, partition: str | None) -> bool:
        """Tell whether the batch is the task's affair; what is not, it neither carries nor journals."""
        wanted = self._task.partitions
        if wanted is not None and partition is None:
            raise TargetRefused(f"{self._task.name}: the host did not say which partition the batch is from")
        return wanted is None or partition in wanted

    # Before the send: decisions without I/O

    def _prepare(self, content: bytes, origin: Origin, now: datetime) -> list[_Item]:
        item = _Item(content, Arrival(origin))
        try:
            message = Message.received(content, origin)
            item.arrival = message.arrival
            if self._task.restore is not None:
                self._task.restore(message)
            edited = self._edited(message) if self._task.editors else (message,)
            if isinstance(edited, Withheld):
                _withhold(item, message, Outcome.FILTERED, edited.reason)
                return [item]
            items = [item] if len(edited) == 1 else [replace(item) for _ in edited]
            for part, (each, edit) in enumerate(zip(items, edited, strict=True)):
                each.key = _key(each.arrival, part)
                if each.key is not None and each.key in self._accepted:
                    each.outcome = self._accepted[each.key]
                else:
                    self._decide(each, edit, now)
        except MessageRejected as error:
            # All of the message is rejected, whatever parts the editors have made of it.
            item.key = _key(item.arrival, 0)
            item.outcome = None if item.key is None else self._accepted.get(item.key)
            if item.outcome is None:
                self._reject(item, error)
            return [item]
        return items

    def _edited(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what the editors have made of *message*; Withheld where nothing is left, with the last reason."""
        messages: Sequence[Message] = (message,)
        for editor in self._task.editors:
            withheld = Withheld("withheld by an editor")
            left: list[Message] = []
            for each in messages:
                edited = editor.edit(each)
                if isinstance(edited, Withheld):
                    withheld = edited
                else:
                    left += edited
            if not left:
                return withheld
            messages = left
        return messages

    def _decide(self, item: _Item, message: Message, now: datetime) -> None:
        task = self._task
        visited = path_before(message)
        stamp(message)
        if task.time_to_live.expires(message, now):
            _withhold(item, message, Outcome.EXPIRED, "its life was over before it could be carried on")
            return
        target = task.router.route(message)
        if target is None:
            _withhold(item, message, Outcome.FILTERED, "no route takes it")
            return
        objection = task.loop_guard.objection(visited, target.site) if task.loop_guard else None
        if objection is not None:
            _withhold(item, message, Outcome.LOOPED, objection)
            return
        if not message.has_message_id:
            identity = deterministic_id(message.arrival)
            message.message_id = None if identity is None else string(identity)
        item.target = target
        item.outgoing = target.outgoing(message)

    def _reject(self, item: _Item, error: MessageRejected) -> None:
        item.rejection = error
        item.reason = str(error)
        item.target = self._task.rejects
        if item.target is not None:
            item.outgoing = set_aside(item.target, item.content, item.arrival, error, self._task.name)

    # The send

    async def _deliver(self, items: Sequence[_Item], deadline: float) -> BuswayError | None:
        """Send until every item has its outcome or the time is over; return what stood in the way of the rest."""
        wait = FIRST_WAIT_SECONDS
        while True:
            pending = [item for item in items if item.outcome is None and item.target is not None]
            obstacles = await self._send(pending, deadline)
            if not obstacles:
                return next((item.rejection for item in items if item.outcome is None), None)
            pause = max([wait, *map(_asked_wait, obstacles)])
            if self._clock.monotonic() + pause + SHORTEST_ATTEMPT_SECONDS > deadline:
                return obstacles[0]
            _LOGGER.warning("%s: next attempt in %.1f s: %s", self._task.name, pause, obstacles[0])
            await self._sleep(pause)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _send(self, pending: Sequence[_Item], deadline: float) -> list[BuswayError]:
        """Send once to every target; return the obstacle of each target that took not all."""
        by_target: dict[Target, list[_Item]] = {}
        for item in pending:
            if item.target is not None:
                by_target.setdefault(item.target, []).append(item)
        answers = await asyncio.gather(
            *(self._send_to(target, waiting, deadline) for target, waiting in by_target.items())
        )
        return [answer for answer in answers if answer is not None]

    async def _send_to(self, target: Target, waiting: Sequence[_Item], deadline: float) -> BuswayError | None:
        timeout_seconds = max(deadline - self._clock.monotonic(), SHORTEST_ATTEMPT_SECONDS)
        messages = [item.outgoing for item in waiting if item.outgoing is not None]
        answers = await target.output.send(target.entity, messages, timeout_seconds=timeout_seconds)
        obstacle = None
        refused: list[_Item] = []
        for item, answer in zip(waiting, answers, strict=True):
            if answer is None:
                self._accept(item)
            elif not isinstance(answer, MessageRejected):
                obstacle = obstacle or answer
            elif item.rejection is None:
                self._reject(item, answer)
                refused.append(item)
            elif not item.is_wrapped:
                item.is_wrapped = True
                item.outgoing = wrapped(target, item.content, item.arrival, item.rejection, self._task.name)
                refused.append(item)
            else:
                obstacle = TargetRefused(f"{target}: it takes rejected messages in no form, {answer.description}")
        if refused and self._task.rejects is not None:
            # At once, whatever stands in the way of the others: what has been found out is not to be found out again.
            unrejected = await self._send_to(self._task.rejects, refused, deadline)
            obstacle = obstacle or unrejected
        return obstacle

    def _accept(self, item: _Item) -> None:
        item.outcome = Outcome.SENT if item.rejection is None else Outcome.REJECTED
        if item.key is not None:
            self._accepted[item.key] = item.outcome
            if len(self._accepted) > REMEMBERED_SENDS:
                self._accepted.popitem(last=False)

    def _budget_seconds(self, items: Sequence[_Item]) -> float:
        locks = [item.arrival.locked_until for item in items if item.arrival.locked_until is not None]
        if not locks:
            return UNLOCKED_BUDGET_SECONDS
        left = min(locks) / 1000 - self._clock.now().timestamp()
        return left - min(left / 4, LOCK_MARGIN_SECONDS)

    def _record(self, item: _Item) -> Record:
        return Record(
            self._task.name,
            item.arrival,
            item.outgoing.message_id if item.outgoing else item.message_id,
            item.outcome or Outcome.RETRY,
            None if item.target is None else str(item.target),
            item.reason,
        )


def _withhold(item: _Item, message: Message, outcome: Outcome, reason: str) -> None:
    identity = message.message_id
    item.message_id = identity.payload if identity is not None and isinstance(identity.payload, str) else None
    item.outcome, item.reason = outcome, reason


def _key(arrival: Arrival, part: int) -> tuple[object, ...] | None:
    """Return what tells a message from all others at every delivery, None where the service gave it no number."""
    if arrival.sequence_number is None:
        return None
    # The enqueued time tells apart the messages of an entity that was deleted and made anew.
    return (*arrival[:4], part)


def _asked_wait(obstacle: BuswayError) -> float:
    asked = obstacle.retry_after if isinstance(obstacle, TargetUnavailable) else None
    return asked.total_seconds() if asked is not None else 0.0
