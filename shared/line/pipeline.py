"""
One straight line: received → edited → stamped → routed → journalled → sent → journalled; the caller then settles.

1. Everything before the send is synchronous and does no I/O, but for editors that are given a batch as a whole.
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
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.accepted import Key
from shared.line.deadline import DEFAULT_HOLD, Hold
from shared.line.editing import Ask, Piece, edited, edited_together
from shared.line.outages import Obstacles
from shared.line.reject_limit import DEFAULT_REJECTS_IN_A_ROW
from shared.line.rejection import Rejection, Stage
from shared.line.routing import Router, Target
from shared.line.sending import Dispatch, Item, follow, place_of, wait_seconds
from shared.line.shutdown import Shutdown
from shared.message.loop_prevention import LoopGuard, path_before
from shared.message.message import Arrival, Message, Origin
from shared.message.metadata import deterministic_id, stamp
from shared.message.ttl import TimeToLive
from shared.protocols import (
    BatchEditor,
    BatchReport,
    Editor,
    Entry,
    Flush,
    Journal,
    Locks,
    Outcome,
    Record,
    Telemetry,
    Withheld,
)

_LOGGER = logging.getLogger("busway.pipeline")

_JOURNAL = "the journal"


@dataclass(frozen=True)
class Task:
    """A replication task, assembled: what the pipeline needs to know of its file."""

    name: str
    origin: Origin
    editors: Sequence[Editor | BatchEditor]
    router: Router
    rejects: Target | None
    time_to_live: TimeToLive
    loop_guard: LoopGuard | None
    restore: Callable[[Message], None] | None = None
    """What a message that arrives needs done first (`shared.message.mapping`)."""
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
        self._batch_editors = [each for each in task.editors if isinstance(each, BatchEditor)]
        self._editors = [each for each in task.editors if not isinstance(each, BatchEditor)]
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
        delivered = list(zip(batch, tokens, strict=True))
        hold, parts, obstacle = await self._prepared(delivered, Arrival(origin), now)
        items = [item for each in parts for item in each]
        obstacle = await self._carry(items, parts, next(self._batch_ids), hold, obstacle)
        if self._telemetry is not None:
            seconds = self._clock.monotonic() - started
            self._telemetry.batch(BatchReport(origin, len(batch), items, now, seconds, hold.retries, obstacle))
        outcomes = Counter(item.outcome or Outcome.RETRY for item in items)
        if obstacle is not None:
            _LOGGER.error("%s: the batch stays at the source: %s", self._task.name, obstacle)
            raise obstacle
        return outcomes

    async def _carry(
        self,
        items: Sequence[Item],
        parts: Sequence[Sequence[Item]],
        batch_id: int,
        hold: Hold,
        obstacle: BuswayError | None,
    ) -> BuswayError | None:
        """
        Journal, send and journal what has been prepared; return what stood in the way.

        With an *obstacle* to begin with nothing is sent: the journal has what was received, and that it has to wait.
        """
        entries = [Entry(each[0].arrival, each[0].arrived, len(each)) for each in parts if each[0].arrived is not None]
        if entries:
            unwritten = await self._write(self._journal.received(entries, batch_id), hold)
            if unwritten is not None:
                return obstacle or unwritten
        if obstacle is None:
            obstacle = await self._dispatch.carry(items, hold)
            if self._batch_editors:
                unsettled = await self._settle_editors(items, hold)
                obstacle = obstacle or unsettled
        records = [self._record(item) for item in items]
        unwritten = await self._write(self._journal.decided(records, batch_id), hold)
        return obstacle or unwritten

    async def _write(self, flush: Flush, hold: Hold) -> BuswayError | None:
        """Write to the journal, for as long as *hold* lasts; return what stood in the way."""
        try:
            await self._ask(hold, _JOURNAL, lambda _: flush())
        except BuswayError as error:
            return error
        return None

    async def _settle_editors(self, items: Sequence[Item], hold: Hold) -> BuswayError | None:
        """Tell the editors that are given batches what became of the messages; return what kept one from noting it."""
        # A message that is in the batch twice has one outcome.
        ended = {item.key or id(item): (item.arrival, item.outcome) for item in items}
        outcomes = [(arrival, outcome) for arrival, outcome in ended.values() if outcome is not None]
        try:
            for editor in self._batch_editors if outcomes else ():
                await self._ask(hold, f"the editor {editor.name}", partial(_settled, editor, outcomes))
        except BuswayError as error:
            return error
        return None

    async def _ask[T](self, hold: Hold, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Ask until there is an answer; raises what stood in the way when *hold* is over."""
        attempts = 0
        while True:
            try:
                answer = await question(hold.attempt_seconds)
            except (TargetUnavailable, TargetRefused) as error:
                attempts += 1
                self._obstacles.note({place: error})
                if not await hold.pause(wait_seconds(error, attempts)):
                    raise
            else:
                self._obstacles.note({place: None})
                return answer

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

    async def _prepared(
        self, delivered: Sequence[tuple[bytes, bytes | None]], unread: Arrival, now: datetime
    ) -> tuple[Hold, list[list[Item]], BuswayError | None]:
        """Return the time of a batch, the items of each of its messages, and what kept the editors from their work."""
        try:
            if not self._batch_editors:
                parts = [self._prepare(*each, unread, now) for each in delivered]
                return self._hold([item for each in parts for item in each]), parts, None
        except Exception as error:  # noqa: BLE001 - whatever it is, what was received has to be on record
            obstacle = self._failed(error)
        received = [self._received(*each, unread) for each in delivered]
        hold = self._hold([item for item, _ in received])
        if self._batch_editors:
            try:
                return hold, await self._prepare_together(received, partial(self._ask, hold), now), None
            except Exception as error:  # noqa: BLE001 - as above
                obstacle = self._failed(error)
                received = [self._received(*each, unread) for each in delivered]
        for item, _ in received:
            item.reason = item.reason or str(obstacle)
        return hold, [[item] for item, _ in received], obstacle

    def _failed(self, error: Exception) -> BuswayError:
        """Return what stands in the way when *error* has ended the preparation of a batch."""
        if isinstance(error, BuswayError):
            return error
        told = (
            f"{self._task.name}: the batch cannot be prepared, {type(error).__name__} in an editor or in Busway itself"
        )
        fault = TargetRefused(told)
        fault.__cause__ = error
        return fault

    def _prepare(self, content: bytes, lock_token: bytes | None, unread: Arrival, now: datetime) -> list[Item]:
        item = current = Item(content, unread, lock_token)
        try:
            message = Message.received(content, unread.origin)
            item.arrival = message.arrival
            item.arrived = self._journal.arriving(message)
            if self._task.restore is not None:
                self._task.restore(message)
            item.stage = Stage.EDITED
            edits = edited(self._editors, message) if self._editors else (message,)
            if isinstance(edits, Withheld):
                _withhold(item, message, Outcome.FILTERED, edits.reason)
                return [item]
            items = [item] if len(edits) == 1 else [replace(item) for _ in edits]
            for part, (each, edit) in enumerate(zip(items, edits, strict=True)):
                current = each
                each.part = part if len(items) > 1 else None
                each.key = _key(each.arrival, part)
                each.outcome = self._dispatch.memory.outcome(each.key)
                each.is_remembered = each.outcome is not None
                if each.outcome is None:
                    self._decide(each, edit, now)
        except MessageRejected as error:
            # All of the message is rejected, whatever parts the editors have made of it.
            return [self._rejected(item, error, current.stage)]
        return items

    def _rejected(self, item: Item, error: MessageRejected, stage: Stage) -> Item:
        """Return *item* as one that is at fault, unless what became of it is remembered."""
        item.stage, item.part = stage, None
        item.key = _key(item.arrival, 0)
        item.outcome = self._dispatch.memory.outcome(item.key)
        item.is_remembered = item.outcome is not None
        item.target = item.outgoing = None
        if item.arrived is None:
            item.arrived = self._journal.unreadable(item.content)
        if item.outcome is None:
            item.reason = str(error)
            item.rejection = Rejection(error, stage, self._task.name)
        return item

    def _received(self, content: bytes, lock_token: bytes | None, unread: Arrival) -> tuple[Item, Message | None]:
        """Return the item of a message and, where it can be read, the message."""
        item = Item(content, unread, lock_token)
        try:
            message = Message.received(content, unread.origin)
            item.arrival = message.arrival
            item.key = _key(item.arrival, 0)
            item.arrived = self._journal.arriving(message)
            if self._task.restore is not None:
                self._task.restore(message)
        except MessageRejected as error:
            return self._rejected(item, error, item.stage), None
        item.stage = Stage.EDITED
        return item, message

    async def _prepare_together(
        self, received: Sequence[tuple[Item, Message | None]], ask: Ask, now: datetime
    ) -> list[list[Item]]:
        """Return for each received message its items: what `_prepare` does, with editors that look at the batch."""
        # A message that is in the batch twice is carried once.
        first = {item.key: index for index, (item, _) in reversed(list(enumerate(received))) if item.key is not None}
        messages = [
            (index, message)
            for index, (item, message) in enumerate(received)
            if message is not None and (item.key is None or first[item.key] == index)
        ]

        def is_sent(index: int, number: int) -> bool:
            return self._dispatch.memory.outcome(_key(received[index][0].arrival, number)) is not None

        pieces_of: dict[int, list[Piece]] = {}
        for piece in await edited_together(self._task.editors, messages, ask, is_sent):
            pieces_of.setdefault(piece.source, []).append(piece)
        item_of: dict[Piece, Item] = {}
        parts = [self._parts(item, pieces_of.get(index, ()), item_of, now) for index, (item, _) in enumerate(received)]
        for piece, item in item_of.items():
            if piece.leader is not None and piece.leader in item_of and item.outcome is None:
                leader = item_of[piece.leader]
                item.joined, leader.followers = piece.joined, (*leader.followers, item)
                if leader.outcome is not None:
                    follow(item, leader)
                else:
                    item.departed = leader.departed
            elif piece.leader is not None and item.outcome is None:
                # An editor behind the one that has joined them withholds the other.
                _withhold(item, piece.message, Outcome.FILTERED, _reason_of(piece.leader))
        return parts

    def _parts(self, item: Item, pieces: Sequence[Piece], item_of: dict[Piece, Item], now: datetime) -> list[Item]:
        """Return the items of a received message, of which *pieces* are left; enter them in *item_of*."""
        if not pieces:
            return [item]
        left = [piece for piece in pieces if not isinstance(piece.end, Withheld)]
        if not left:
            _withhold(item, pieces[-1].message, Outcome.FILTERED, _reason_of(pieces[-1]))
            return [item]
        items = [item] if len(left) == 1 else [replace(item) for _ in left]
        for number, (each, piece) in enumerate(zip(items, left, strict=True)):
            item_of[piece] = each
            each.part = number if len(items) > 1 else None
            each.key = _key(each.arrival, number)
            each.outcome = self._dispatch.memory.outcome(each.key)
            each.is_remembered = each.outcome is not None
            each.message_id = _id_of(piece.message)
            if each.outcome is not None or piece.leader is not None:
                continue
            try:
                if isinstance(piece.end, MessageRejected):
                    raise piece.end
                self._decide(each, piece.message, now)
            except MessageRejected as error:
                each.target = each.outgoing = None
                each.reason, each.rejection = str(error), Rejection(error, each.stage, self._task.name)
        return items

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
            outcome is Outcome.SENT and item.joined is not None,
        )


def _withhold(item: Item, message: Message, outcome: Outcome, reason: str) -> None:
    item.message_id = _id_of(message)
    item.outcome, item.reason = outcome, reason


def _reason_of(piece: Piece) -> str:
    return piece.end.reason if isinstance(piece.end, Withheld) else ""


def _id_of(message: Message) -> str | None:
    """Return the id for the journal, None where it is no text or cannot be read."""
    try:
        identity = message.message_id
    except MessageRejected:
        # What it is to be sent with is read again, and is what it is rejected for.
        return None
    return identity.payload if identity is not None and isinstance(identity.payload, str) else None


async def _settled(editor: BatchEditor, outcomes: Sequence[tuple[Arrival, Outcome]], seconds: float) -> None:
    await editor.settled(outcomes, timeout_seconds=seconds)


def _key(arrival: Arrival, part: int) -> Key | None:
    """Return what tells a message from all others at every delivery, None where the service gave it no number."""
    if arrival.sequence_number is None:
        return None
    # The enqueued time tells apart the messages of an entity that was deleted and made anew.
    return arrival.origin.partition, arrival.sequence_number, arrival.enqueued_time, part
