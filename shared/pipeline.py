"""
One straight line: received → edited → stamped → routed → journalled → sent → journalled; the caller then settles.

1. Everything before the send is synchronous and does no I/O.
2. A message is decided once. What the target has accepted is remembered, so that the redelivery of a batch that failed
   half-way does not send it again from this instance.
3. The journal has what was received before anything is sent, and what became of it before the source is settled.
4. `run` returns when every message has its outcome and raises when one must stay at the source. Functions settle a
   whole batch or nothing, so raising leaves all of it there.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from shared.amqp.values import string
from shared.clock import Clock, SystemClock
from shared.dispatch import Dispatch, Item, place_of, wait_seconds
from shared.errors import BuswayError, LockLost, MessageRejected, TargetRefused, TargetUnavailable
from shared.hold import DEFAULT_HOLD, Hold
from shared.loop_prevention import LoopGuard, path_before
from shared.memory import Key
from shared.message import Arrival, Message, Origin
from shared.metadata import deterministic_id, stamp
from shared.obstacles import Obstacles
from shared.protocols import BatchReport, Editor, Entry, Journal, Locks, Outcome, Record, Telemetry, Withheld
from shared.reject_guard import DEFAULT_REJECTS_IN_A_ROW
from shared.rejection import Rejection, Stage
from shared.routing import Router, Target
from shared.shutdown import Shutdown
from shared.ttl import TimeToLive

_LOGGER = logging.getLogger("busway.pipeline")

_JOURNAL = "the journal"


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
    locks: Locks | None = None
    """How to reach the locks on a batch at its source, None where there are none (Event Hubs)."""
    hold: timedelta = DEFAULT_HOLD
    """For how long a batch may wait for its targets."""
    rejects_in_a_row: int | None = DEFAULT_REJECTS_IN_A_ROW
    """So many messages at fault without a good one between them stop the task; None: none do."""


class Pipeline:
    """The line of one task; one instance carries all its batches, in turn or interleaved."""

    def __init__(
        self,
        task: Task,
        journal: Journal,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        *,
        shutdown: Shutdown | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """
        Wait between attempts with *sleep*, and let go of what is held when *shutdown* is requested.

        *telemetry* is told of every batch.
        """
        self._task = task
        self._journal = journal
        self._clock = clock or SystemClock()
        self._shutdown = shutdown or Shutdown()
        self._sleep = sleep or self._shutdown.sleep
        self._obstacles = Obstacles(task.name, self._clock, telemetry)
        self._dispatch = Dispatch(
            task.name, task.rejects, task.locks, self._obstacles, rejects_in_a_row=task.rejects_in_a_row
        )
        self._telemetry = telemetry
        self._batch_ids = count(1)

    async def run(
        self, batch: Sequence[bytes], partition: str | None = None, lock_tokens: Sequence[bytes] = ()
    ) -> Counter[Outcome]:
        """
        Carry the encoded messages of *batch*, from one *partition* where the source has any; count their outcomes.

        Shape:   *lock_tokens* are those of the messages, in their order, where the source has locks.
        Raises:  TargetUnavailable or TargetRefused when a target has not taken all within the time that a batch may be
                 held, and MessageRejected when a message is at fault and there is no way to set it aside: the batch
                 must then be redelivered.
        """
        started = self._clock.monotonic()
        if not self._takes_from(partition):
            return Counter()
        origin = self._task.origin if partition is None else self._task.origin._replace(partition=partition)
        now = self._clock.now()
        tokens: Sequence[bytes | None] = lock_tokens or [None] * len(batch)
        items: list[Item] = []
        entries: list[Entry] = []
        unread = Arrival(origin)
        for content, token in zip(batch, tokens, strict=True):
            parts = self._prepare(content, token, unread, now)
            items += parts
            if parts[0].arrived is not None:
                entries.append(Entry(parts[0].arrival, parts[0].arrived, len(parts)))
        hold = self._hold(items)
        batch_id = next(self._batch_ids)
        obstacle = await self._journalled(partial(self._journal.received, entries, batch_id), hold) if entries else None
        if obstacle is None:
            obstacle = await self._dispatch.carry(items, hold)
            records = [self._record(item) for item in items]
            unwritten = await self._journalled(partial(self._journal.write, records, batch_id), hold)
            obstacle = obstacle or unwritten
        if self._telemetry is not None:
            seconds = self._clock.monotonic() - started
            self._telemetry.batch(BatchReport(origin, len(batch), items, now, seconds, hold.retries, obstacle))
        outcomes = Counter(item.outcome or Outcome.RETRY for item in items)
        if obstacle is not None:
            _LOGGER.error("%s: the batch stays at the source: %s", self._task.name, obstacle)
            raise obstacle
        return outcomes

    async def _journalled(self, write: Callable[[], Awaitable[None]], hold: Hold) -> BuswayError | None:
        """Attempt to write until it is done or *hold* is over; return what stood in the way then."""
        attempts = 0
        while True:
            try:
                await write()
            except (TargetUnavailable, TargetRefused) as error:
                attempts += 1
                self._obstacles.note({_JOURNAL: error})
                try:
                    if not await hold.pause(wait_seconds(error, attempts)):
                        return error
                except LockLost as lost:
                    return lost
            else:
                self._obstacles.note({_JOURNAL: None})
                return None

    def _takes_from(self, partition: str | None) -> bool:
        """Tell whether the batch is the task's affair; what is not, it neither carries nor journals."""
        wanted = self._task.partitions
        if wanted is not None and partition is None:
            raise TargetRefused(f"{self._task.name}: the host did not say which partition the batch is from")
        return wanted is None or partition in wanted

    def _hold(self, items: Sequence[Item]) -> Hold:
        """Return the time of the batch, which has begun with its delivery."""
        ends = [item.arrival.locked_until for item in items if item.arrival.locked_until is not None]
        has_locks = self._task.locks is not None and any(item.lock_token is not None for item in items)
        return Hold(
            self._task.name,
            self._clock,
            self._sleep,
            limit_seconds=self._task.hold.total_seconds(),
            locked_until=min(ends, default=None),
            renew=partial(self._dispatch.renew, items) if has_locks else None,
            is_shutting_down=lambda: self._shutdown.is_requested,
        )

    # Before the send: decisions without I/O

    def _prepare(self, content: bytes, lock_token: bytes | None, unread: Arrival, now: datetime) -> list[Item]:
        item = current = Item(content, unread, lock_token)
        try:
            message = Message.received(content, unread.origin)
            item.arrival = message.arrival
            item.arrived = self._journal.arriving(message)
            if self._task.restore is not None:
                self._task.restore(message)
            item.stage = Stage.EDITED
            edited = self._edited(message) if self._task.editors else (message,)
            if isinstance(edited, Withheld):
                _withhold(item, message, Outcome.FILTERED, edited.reason)
                return [item]
            items = [item] if len(edited) == 1 else [replace(item) for _ in edited]
            for part, (each, edit) in enumerate(zip(items, edited, strict=True)):
                current = each
                each.part = part if len(items) > 1 else None
                each.key = _key(each.arrival, part)
                each.outcome = self._dispatch.memory.outcome(each.key)
                each.is_remembered = each.outcome is not None
                if each.outcome is None:
                    self._decide(each, edit, now)
        except MessageRejected as error:
            # All of the message is rejected, whatever parts the editors have made of it.
            item.stage = current.stage
            item.key = _key(item.arrival, 0)
            item.outcome = self._dispatch.memory.outcome(item.key)
            item.is_remembered = item.outcome is not None
            item.target = item.outgoing = None
            if item.arrived is None:
                item.arrived = self._journal.unreadable(content)
            if item.outcome is None:
                item.reason = str(error)
                item.rejection = Rejection(error, item.stage, self._task.name)
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

    def _decide(self, item: Item, message: Message, now: datetime) -> None:
        task = self._task
        item.stage = Stage.STAMPED
        visited = path_before(message)
        stamp(message)
        if task.time_to_live.expires(message, now):
            _withhold(item, message, Outcome.EXPIRED, "its life was over before it could be carried on")
            return
        item.stage = Stage.ROUTED
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
        item.stage = Stage.FITTED
        item.target = target
        item.outgoing = target.outgoing(message)
        if item.arrived is not None:
            item.departed = self._journal.departing(message, item.arrived)

    def _record(self, item: Item) -> Record:
        outcome, outgoing = item.outcome or Outcome.RETRY, item.outgoing
        return Record(
            self._task.name,
            item.arrival,
            outgoing.message_id if outgoing else item.message_id,
            outcome,
            place_of(item),
            item.reason,
            None if outcome is Outcome.SENT else item.stage,
            None if outgoing is None else outgoing.session_id or outgoing.partition_key,
            item.part,
            item.is_remembered,
            item.arrived,
            item.departed,
        )


def _withhold(item: Item, message: Message, outcome: Outcome, reason: str) -> None:
    identity = message.message_id
    item.message_id = identity.payload if identity is not None and isinstance(identity.payload, str) else None
    item.outcome, item.reason = outcome, reason


def _key(arrival: Arrival, part: int) -> Key | None:
    """Return what tells a message from all others at every delivery, None where the service gave it no number."""
    if arrival.sequence_number is None:
        return None
    # The enqueued time tells apart the messages of an entity that was deleted and made anew.
    return arrival.origin.partition, arrival.sequence_number, arrival.enqueued_time, part
