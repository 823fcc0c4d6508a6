"""
The line of a task: received → edited → stamped → routed → journalled → sent → journalled; the caller then settles.

1. The steps before the send do no I/O, except editors of whole batches.
2. A message is decided once. The line remembers accepted messages, so that this instance does not send them again from
   a redelivered batch.
3. The journal records received messages before the send, and every result before the source is settled.
4. `run` returns when every message has its result, and the host settles them all. It raises if one must stay at the
   source; the line has then settled the others itself, and so it has while a batch waits. `run_each` is for messages
   that the host delivers and settles one by one.
5. If messages become too large together, the batch is processed in several parts, one after the other.

`shared.line.states` has the states of a message, `shared.line.preparation` the steps.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, LockLost, TargetRefused
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch, Release, Watch, number_parts
from shared.line.deadline import Deadline
from shared.line.heartbeats import Arrivals, Heartbeats
from shared.line.in_hand import InHand
from shared.line.item import Item
from shared.line.locks import Locks, SourceLocks
from shared.line.outages import OutageLog
from shared.line.pausing import Pause
from shared.line.preparation import Preparation
from shared.line.questions import Questions
from shared.line.records import Records
from shared.line.sending import Sender
from shared.line.shutdown import Shutdown
from shared.line.states import OUTCOMES, State
from shared.line.task import Task
from shared.message.arrival import Arrival
from shared.printable import printable
from shared.protocols import BatchEditor, HeldSession, Journal, Outcome, Telemetry

_LOGGER = logging.getLogger("busway.pipeline")


class Pipeline:
    """The line of one task; one instance runs all its batches, in sequence or concurrently."""

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
        self._in_hand = InHand(task.name)
        outages = OutageLog(task.name, self._clock, telemetry)
        self._questions = Questions(outages)
        self._records = Records(task, journal, self._questions)
        accepted = AcceptedSends() if accepted is None else accepted
        self._sender = Sender(task, accepted, outages)
        self._preparation = Preparation(task, journal, accepted)
        steps = self._preparation.steps()
        self._steps = steps if watch is None else watch(steps)
        self._settling = [each for each in task.editors if isinstance(each, BatchEditor) and not task.dry_run]
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
        return await self._run(batch, partition, lock_tokens, session=session)

    async def run_each(
        self, batch: Sequence[bytes], lock_tokens: Sequence[bytes | None], release: Release
    ) -> BuswayError | None:
        """
        Replicate messages that were delivered one by one; return the error that keeps some at their source.

        *release* is called with the position of each message that its source may give up, once that is on record. The
        others must be redelivered.
        """
        try:
            await self._run(batch, None, lock_tokens, release)
        except BuswayError as error:
            return error
        return None

    async def _run(
        self,
        batch: Sequence[bytes],
        partition: str | None,
        lock_tokens: Sequence[bytes | None],
        release: Release | None = None,
        session: HeldSession | None = None,
    ) -> Counter[Outcome]:
        origin = self._task.origin if partition is None else self._task.origin._replace(partition=partition)
        tokens: Sequence[bytes | None] = lock_tokens or [None] * len(batch)
        received = Batch(origin, batch, tokens, self._clock.now())
        self._preparation.receive(received)
        locks = self._locks(received.items, session)
        releases_all = release is not None
        if release is None and locks is not None:
            release = partial(locks.complete, tokens)
        received.release = release
        received.releases_all = releases_all
        deadline = self._deadline(locks)
        with self._shutdown.delivery():
            try:
                if self._pause is not None:
                    await self._pause.wait(deadline)
                async with self._in_hand.hold(received.items, deadline):
                    if self._telemetry is None:
                        return await self._run_all(received, batch, tokens, deadline)
                    times = [each.arrival.enqueued_time for each in received.items]
                    oldest = min((each for each in times if each is not None), default=None)
                    with self._telemetry.in_hand(len(batch), oldest):
                        return await self._run_all(received, batch, tokens, deadline)
            except BuswayError:
                if locks is not None:
                    await deadline.outlast_session()
                    if deadline.is_over and not self._task.one_by_one:
                        await locks.give_back()
                raise

    async def _run_all(
        self, received: Batch, batch: Sequence[bytes], tokens: Sequence[bytes | None], deadline: Deadline
    ) -> Counter[Outcome]:
        """Replicate a delivery, whose first part is *received* already; as `run`."""
        origin, held = received.origin, received.items
        release, releases_all = received.release, received.releases_all
        outcomes: Counter[Outcome] = Counter()
        with_host: list[Item] = []
        while True:
            decided = await self._run_some(received, len(batch), deadline, with_host)
            outcomes.update([OUTCOMES[item.state] for item in decided])
            taken = len(received.contents)
            first, skipped = received.first + taken, received.decides
            if skipped:
                first -= 1
            if first == len(batch):
                return outcomes
            # What waits was edited in vain: next time twice as many as there was room for.
            last = first + 2 * taken
            received = Batch(
                origin, batch[first:last], tokens[first:last], self._clock.now(), first=first, skipped=skipped
            )
            received.release, received.releases_all = release, releases_all
            self._preparation.receive(received)
            for item in decided:
                item.release()
            held += received.items

    async def _run_some(self, batch: Batch, total: int, deadline: Deadline, with_host: list[Item]) -> Sequence[Item]:
        """
        Replicate the messages of *batch*, of *total* that were delivered together, as far as there is room for them.

        Returns those that are decided. Messages for the host are collected in *with_host* until the last message is
        decided.
        """
        started, retries = self._clock.monotonic(), deadline.retries
        batch.ask = partial(self._questions.ask, deadline)
        error = await self._prepare(batch)
        deliveries = batch.by_delivery()
        number_parts(deliveries)
        items = batch.items
        is_last = self._task.dry_run or (batch.first + len(batch.contents) == total and not batch.postponed)
        delivery = self._deliver(batch, deliveries, deadline, error, with_host, is_last=is_last)
        if batch.heartbeats and self._heartbeats is not None:
            (error, decided), _ = await asyncio.gather(delivery, self._heartbeats.send(batch.heartbeats))
        else:
            error, decided = await delivery
        if self._telemetry is not None:
            seconds = self._clock.monotonic() - started
            self._telemetry.batch(batch.report(items, seconds, deadline.retries - retries, error))
        if error is not None:
            _LOGGER.error("%s: the batch stays at the source: %s", self._task.name, printable(str(error)))
            raise error
        return decided

    def _takes_from(self, partition: str | None) -> bool:
        """Return whether the task reads *partition*; it neither sends nor journals batches of other partitions."""
        wanted = self._task.partitions
        if wanted is not None and partition is None:
            raise TargetRefused(f"{self._task.name}: the host did not name the partition of the batch")
        return wanted is None or partition in wanted

    def _locks(self, items: Sequence[Item], session: HeldSession | None) -> Locks | None:
        """Return the locks on a delivery, None if its source has none."""
        ends = {item.lock_token: item.arrival.locked_until for item in items if item.lock_token is not None}
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
            limit_seconds=self._task.hold.total_seconds(),
            locks=locks,
            is_shutting_down=lambda: self._shutdown.is_requested and not is_late,
        )

    async def _prepare(self, batch: Batch) -> BuswayError | None:
        """Run the steps before the send; return the error that ended them, if any: then nothing is decided."""
        try:
            for step in self._steps:
                pending = step.run(batch)
                if pending is not None:
                    await pending
        except Exception as fault:  # noqa: BLE001 - whatever it is, the journal must have what was received
            error = self._error_of(fault)
            self._preparation.receive(batch)
            for item in batch.items:
                if item.outcome is None and item.state is not State.REPEATED:
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

    async def _deliver(
        self,
        batch: Batch,
        deliveries: Iterable[Sequence[Item]],
        deadline: Deadline,
        error: BuswayError | None,
        with_host: list[Item],
        *,
        is_last: bool,
    ) -> tuple[BuswayError | None, Sequence[Item]]:
        """
        Journal, send and journal the prepared messages; return the error that keeps them at their source.

        If there is already an *error*, nothing is sent: the journal records that the messages were received and must
        wait. Returns what is decided too, as `_run_some`.
        """
        items: Sequence[Item] = batch.items
        early: Sequence[Item] = ()
        batch_id = next(self._batch_ids)
        unsettled: BuswayError | None = None
        unwritten = await self._records.received(deliveries, batch_id, deadline)
        if unwritten is not None:
            _end([*with_host, *items])
            return error or unwritten, items
        if error is None:
            progress = None if batch.release is None else partial(self._conclude, batch, batch_id, deadline)
            error = await self._sender.send(items, deadline, progress)
            if batch.released:
                early = [item for item in items if item.delivery in batch.released]
                items = batch.unreleased(items)
            unsettled = await self._settle_editors(items, deadline) if self._settling else None
            error = error or unsettled or self._left_behind(items)
        decided = items
        if is_last or error is not None:
            decided = [*with_host, *items] if with_host else items
            with_host.clear()
        elif self.bindings:
            decided = [item for item in items if not _is_with_host(item)]
            with_host += [item for item in items if _is_with_host(item)]
        if error is None and is_last:
            # From here on only the journal can fail; with an error the function would hand nothing over.
            for item in decided:
                if item.state is State.HANDED_OVER:
                    item.accept()
        if error is not None or batch.has_repeats:
            _end(decided)
        if not decided:
            return error, early
        unwritten = await self._records.decided(decided, batch_id, deadline)
        # A batch without an error is settled by the host when the function returns.
        is_by_itself = batch.releases_all or error is not None or not is_last
        if is_by_itself and unwritten is None and unsettled is None:
            await batch.conclude(batch.concluded())
        return error or unwritten, [*early, *decided] if early else decided

    def _left_behind(self, items: Sequence[Item]) -> BuswayError | None:
        """Return an error if the lock of a message was lost before it had its result."""
        if not any(item.state is State.LEFT for item in items):
            return None
        return LockLost(f"{self._task.name}: the lock of a message was lost")

    async def _conclude(self, batch: Batch, batch_id: int, deadline: Deadline) -> None:
        """Release the messages of *batch* that have their result, while others wait for their targets."""
        concluded = batch.concluded()
        items = [item for members in concluded.values() for item in members]
        if not items or await self._settle_editors(items, deadline) is not None:
            return
        if await self._records.decided(items, batch_id, deadline, is_last=False) is None:
            await batch.conclude(concluded)

    async def _settle_editors(self, items: Sequence[Item], deadline: Deadline) -> BuswayError | None:
        """Report the outcomes to the editors that are given batches; return the error of one that cannot store them."""
        outcomes = [(item.arrival, OUTCOMES[item.state]) for item in items if item.state in OUTCOMES]
        try:
            for editor in self._settling if outcomes else ():
                await self._questions.ask(deadline, f"the editor {editor.name}", partial(_settle, editor, outcomes))
        except BuswayError as error:
            return error
        return None


def _is_with_host(item: Item) -> bool:
    """Return whether the host will be asked to send it, or the message that it repeats."""
    first = item if item.first is None else item.first
    return first.state is State.HANDED_OVER


def _end(items: Sequence[Item]) -> None:
    """Leave messages without a result at the source; then give repeated messages the result of the first."""
    for item in items:
        if item.state not in OUTCOMES and item.state is not State.REPEATED:
            item.leave()
    for item in items:
        if item.state is State.REPEATED:
            item.end_as_first()


async def _settle(editor: BatchEditor, outcomes: Sequence[tuple[Arrival, Outcome]], seconds: float) -> None:
    await editor.settled(outcomes, timeout_seconds=seconds)
