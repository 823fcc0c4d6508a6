"""
The line of a task: received → edited → stamped → routed → journalled → sent → journalled; the caller then settles.

1. The steps before the send do no I/O, except editors of whole batches.
2. A message is decided once. The line remembers accepted messages, so that this instance does not send them again from
   a redelivered batch.
3. The journal records received messages before the send, and every result before an editor stores it and before the
   source is settled.
4. `run` returns when every message has its result, and the host settles them all. It raises if one must stay at the
   source; the line has then settled the others itself, and so it has while a batch waits. `run_each` is for messages
   that the host delivers and settles one by one.
5. If messages become too large together, the delivery is processed in several batches, one after the other.

`shared.line.states` has the states of a message, `shared.line.preparation` the steps before the journal,
`shared.line.delivery` what an invocation has.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, LockLost, TargetRefused
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch, Watch
from shared.line.deadline import Deadline
from shared.line.delivery import Deliveries, Delivery, Release
from shared.line.heartbeats import Arrivals, Heartbeats
from shared.line.item import Item
from shared.line.locks import Locks, SourceLocks
from shared.line.outages import Outages
from shared.line.pause import Pause
from shared.line.preparation import Preparation
from shared.line.records import Records
from shared.line.sender import Sender
from shared.line.shutdown import Shutdown
from shared.line.states import OUTCOMES, WITH_FIRST, State
from shared.line.task import Task
from shared.message.arrival import Arrival
from shared.printable import printable
from shared.protocols import BatchEditor, HeldSession, Journal, Outcome, Telemetry

_LOGGER = logging.getLogger("busway.pipeline")


class Pipeline:
    """The line of one task; one instance runs all its deliveries, in sequence or concurrently."""

    def __init__(
        self,
        task: Task,
        journal: Journal,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        *,
        shutdown: Shutdown | None = None,
        telemetry: Telemetry | None = None,
        accepted: AcceptedSends | None = None,
        watch: Watch | None = None,
        pause: Pause | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        """
        Wait between attempts with *sleep*, and stop waiting when *shutdown* is requested.

        *telemetry* gets a report of every batch. *accepted* has the messages that were sent before. *watch* may put an
        observer around each step. *pause* holds batches back while the task is paused. *arrivals* gets the results of
        its heartbeats.
        """
        self._task = task
        self._clock = clock or SystemClock()
        self._shutdown = shutdown or Shutdown()
        self._sleep = sleep or self._shutdown.sleep
        self._telemetry = telemetry
        self._pause = pause
        self._heartbeats = None
        if arrivals is not None and task.heartbeat_targets:
            self._heartbeats = Heartbeats(task.name, task.heartbeat_targets, arrivals, self._clock)
        self._source_locks = None
        if task.settlement is not None:
            place = f"{task.origin.site}/{task.origin.entity}"
            self._source_locks = SourceLocks(task.name, place, task.settlement, self._clock)
        self._deliveries = Deliveries(task.name)
        self._outages = Outages(task.name, self._clock, telemetry)
        self._records = Records(task, journal, self._outages)
        accepted = AcceptedSends() if accepted is None else accepted
        self.forget = accepted.forget
        self._sender = Sender(task, accepted, self._outages, self._clock)
        self._preparation = Preparation(task, journal, accepted)
        steps = self._preparation.steps()
        self._steps = steps if watch is None else watch(steps)
        self._settling = [editor for editor in task.editors if isinstance(editor, BatchEditor) and not task.dry_run]
        self._batch_ids = count(1)
        self.bindings = task.router.bindings

    async def run(
        self,
        batch: Sequence[bytes],
        partition: str | None = None,
        lock_tokens: Sequence[bytes] = (),
        session: HeldSession | None = None,
    ) -> Counter[Outcome]:
        """
        Replicate the encoded messages of *batch*, from one *partition* where the source has any; count their outcomes.

        Shape:   *lock_tokens* are those of the messages, in their order, where the source has locks; *session* is the
                 one that all messages have, where it has sessions.
        Raises: TargetUnavailable or TargetRefused if a target has not accepted all messages before the deadline, and
        MessageRejected if an invalid message cannot be set aside: the batch must be redelivered.
        """
        if not self._takes_from(partition):
            return Counter()
        origin = self._task.origin if partition is None else self._task.origin._replace(partition=partition)
        delivery = Delivery(origin, batch, lock_tokens, self._outages)
        await self._replicate(delivery, session)
        return delivery.outcomes

    async def run_each(
        self, batch: Sequence[bytes], lock_tokens: Sequence[bytes | None], release: Release
    ) -> BuswayError | None:
        """
        Replicate messages that were delivered one by one; return the error that keeps some at their source.

        *release* is called with the position of each message that its source may give up, once that is on record. The
        others must be redelivered.
        """
        try:
            await self._replicate(Delivery(self._task.origin, batch, lock_tokens, self._outages, release))
        except BuswayError as error:
            return error
        return None

    def _takes_from(self, partition: str | None) -> bool:
        """Return whether the task reads *partition*; it neither sends nor journals batches of other partitions."""
        wanted = self._task.partitions
        if wanted is not None and partition is None:
            raise TargetRefused(f"{self._task.name}: the host did not name the partition of the batch")
        return wanted is None or partition in wanted

    async def _replicate(self, delivery: Delivery, session: HeldSession | None = None) -> None:
        """Replicate the messages of *delivery*, batch by batch; raises the error that keeps some at their source."""
        batch = delivery.batch(self._clock.now())
        self._preparation.receive(batch)
        locks = self._locks(batch.items, session)
        delivery.deadline = self._deadline(locks)
        with self._shutdown.delivery():
            try:
                if self._pause is not None:
                    await self._pause.wait(delivery.deadline)
                async with self._deliveries.hold(batch.items, delivery.deadline):
                    with self._in_hand(batch):
                        await self._pass(batch, delivery)
                        while not delivery.is_complete(batch):
                            batch = delivery.batch(self._clock.now(), batch)
                            self._preparation.receive(batch)
                            await self._pass(batch, delivery)
            except BuswayError:
                if locks is not None:
                    await delivery.deadline.outlast_session()
                    if delivery.deadline.is_shutting_down() and not self._task.one_by_one:
                        await locks.give_back()
                raise

    def _locks(self, items: Sequence[Item], session: HeldSession | None) -> Locks | None:
        """Return the locks on a delivery, None if its source has none."""
        originals = [item.original for item in items]
        ends = {
            original.lock_token: original.arrival.locked_until
            for original in originals
            if original.lock_token is not None
        }
        if self._source_locks is None or not ends:
            return None
        return Locks(self._source_locks, ends, session, host_renews=self._task.one_by_one)

    def _deadline(self, locks: Locks | None) -> Deadline:
        """
        Return the deadline of a delivery that begins now.

        What is delivered after the shutdown was requested waits for the end of the process: if it failed at once, the
        host would deliver it again at once, until its attempts are used up.
        """
        is_late = self._shutdown.is_requested
        return Deadline(
            self._clock,
            asyncio.sleep if is_late else self._sleep,
            self._clock.monotonic() + self._task.hold.total_seconds(),
            locks,
            lambda: self._shutdown.is_requested and not is_late,
        )

    def _in_hand(self, batch: Batch) -> AbstractContextManager[None]:
        if self._telemetry is None:
            return nullcontext()
        messages = [item for item in batch.items if item not in batch.heartbeats]
        times = [time for item in messages if (time := item.arrival.enqueued_time) is not None]
        return self._telemetry.in_hand(len(batch.contents) - len(batch.heartbeats), min(times, default=None))

    async def _pass(self, batch: Batch, delivery: Delivery) -> None:
        """Take the messages of *batch* through the steps; raises the error that keeps some at their source."""
        started, retries = self._clock.monotonic(), delivery.deadline.retries
        batch.now = self._clock.now()  # it may have waited: for the end of a pause, or for an earlier delivery
        error = await self._prepare(batch, delivery.deadline)
        pending = self._journal_and_send(batch, delivery, error)
        if batch.heartbeats and self._heartbeats is not None:
            error, _ = await asyncio.gather(pending, self._heartbeats.send(batch.heartbeats))
        else:
            error = await pending
        if self._telemetry is not None:
            seconds = self._clock.monotonic() - started
            self._telemetry.batch(batch.report(seconds, delivery.deadline.retries - retries, error))
        if error is not None:
            _LOGGER.error("%s: the batch stays at the source: %s", self._task.name, printable(str(error)))
            raise error

    async def _prepare(self, batch: Batch, deadline: Deadline) -> BuswayError | None:
        """Run the steps before the journal; return the error that ended them, if any: then nothing is decided."""
        try:
            for step in self._steps:
                pending = step.run(batch)
                if pending is not None:
                    await deadline.renew_during(pending)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the journal must have what was received
            error = self._error_of(fault)
            self._preparation.receive(batch)
            for item in batch.items:
                if item.outcome is None and item.state not in WITH_FIRST:
                    item.leave(str(error))
            return error
        return None

    def _error_of(self, fault: Exception) -> BuswayError:
        if isinstance(fault, BuswayError):
            return fault
        kind = type(fault).__name__
        error = TargetRefused(f"{self._task.name}: the batch cannot be prepared, {kind} in Busway itself")
        error.__cause__ = fault
        return error

    async def _journal_and_send(
        self, batch: Batch, delivery: Delivery, error: BuswayError | None
    ) -> BuswayError | None:
        """
        Journal, send and journal the prepared messages; return the error that keeps some at their source.

        If there is already an *error*, nothing is sent: the journal records that the messages were received and must
        wait.
        """
        batch_id = next(self._batch_ids)
        entries = batch.number()
        unwritten = await self._records.received(entries, batch_id, delivery.deadline)
        if unwritten is not None:
            delivery.decide(batch, unwritten, is_last=True)
            return error or unwritten
        settled: _Outcomes = []
        if error is None:
            has_progress = delivery.can_release or (bool(entries) and any(item.is_share for item in batch.items))
            progress = partial(self._note_progress, batch, delivery, batch_id) if has_progress else None
            error = await self._sender.send(batch.items, delivery.deadline, progress)
            items = delivery.unreleased(batch)
            settled = _outcomes_of(items)
            error = error or self._left_behind(items)
        is_last = self._task.dry_run or delivery.is_complete(batch)
        decided = delivery.decide(batch, error, is_last=is_last)
        if not decided:
            return error
        unwritten = await self._records.decided(batch, decided, batch_id, delivery.deadline)
        self._records.keep(batch)
        if unwritten is None:
            # Not earlier: an editor may withhold the next delivery of what it knows as sent.
            unwritten = await self._settle_editors(settled, delivery)
        if unwritten is None:
            finished = delivery.finished(batch)
            kept = await delivery.dead_letter(finished)
            error = error or next(iter(kept.values()), None)
            # A delivery without an error is settled by the host when the function returns.
            if delivery.settles_each or error is not None or not is_last:
                await delivery.release([position for position in finished if position not in kept])
        return error or unwritten

    def _left_behind(self, items: Sequence[Item]) -> BuswayError | None:
        """Return an error if the lock of a message was lost before it had its result."""
        if not any(item.state is State.LEFT for item in items):
            return None
        return LockLost(f"{self._task.name}: the lock of a message was lost")

    async def _note_progress(self, batch: Batch, delivery: Delivery, batch_id: int) -> None:
        """Record the results in *batch* while others wait for their targets, and release what has all of its own."""
        finished = delivery.finished(batch) if delivery.can_release else {}
        items = [item for items in finished.values() for item in items]
        shares = [item for item in delivery.unreleased(batch) if item.is_share and item.state in OUTCOMES]
        decided = dict.fromkeys([*items, *shares])
        unwritten = await self._records.decided(batch, decided, batch_id, delivery.deadline)
        if unwritten is None and await self._settle_editors(_outcomes_of(items), delivery) is None:
            kept = await delivery.dead_letter(finished, waits=False)
            settled = [position for position in finished if position not in kept]
            delivery.outcomes.update([OUTCOMES[item.state] for position in settled for item in finished[position]])
            await delivery.release(settled)

    async def _settle_editors(self, outcomes: "_Outcomes", delivery: Delivery) -> BuswayError | None:
        """Report *outcomes* to the editors that are given batches; return the error of one that cannot store them."""
        try:
            for editor in self._settling if outcomes else ():
                await delivery.ask(f"the editor {editor.name}", partial(_settle, editor, outcomes))
        except BuswayError as error:
            return error
        return None


type _Outcomes = Sequence[tuple[Arrival, Outcome]]


def _outcomes_of(items: Sequence[Item]) -> _Outcomes:
    """Return the results of *items*; for an editor a message is sent once all its targets have it."""
    whole = (item for item in items if not item.copies or item is item.copies[0])
    return [(item.arrival, outcome) for item in whole if (outcome := item.common_outcome) is not None]


async def _settle(editor: BatchEditor, outcomes: _Outcomes, seconds: float) -> None:
    await editor.settled(outcomes, timeout_seconds=seconds)
