"""
The work of one worker on a session (or on a message that is locked individually).

The order of writes must not change: recorded as working, given to the application, recorded as completed or faulted,
settled at the namespace. The next worker can see between which of them a worker died.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from busway_clients.aio.sessions.lane import Lane
from busway_clients.errors import Conflict, LeaseLost, StoreRefused, StoreUnavailable
from busway_clients.sessions import order
from busway_clients.sessions.delivery import LOG, Delivery, LockLost
from busway_clients.sessions.entries import Entry, State
from busway_clients.sessions.leases import HeldLease
from busway_clients.sessions.order import Arrival
from busway_clients.sessions.plan import Ending, Plan, Worker

Answer = TypeVar("Answer")


class SessionWork:
    """
    The work of *worker* on *partition*, with the *given* messages, or with all that it receives.

    *held_lease* is for the renewal too, None without a lease.
    """

    def __init__(self, partition: str, worker: Worker, lane: Lane, given: Sequence[Arrival] | None = None) -> None:
        self.partition = partition
        self.worker = worker
        self.held_lease: HeldLease | None = None
        self._settings = worker.settings
        self._lane = lane
        self._given = given
        self._plan = Plan(partition, worker)
        self._started = 0.0
        self._is_cut_off = False

    async def run(self) -> Ending:
        """
        Work until there is nothing to do, or nothing that can be done now.

        Raises StoreUnavailable when the store stays unavailable, and JournalMalformed. No message is settled before it
        is recorded.
        """
        try:
            try:
                return await self._process()
            except LockLost:
                self._is_cut_off = True
                await self._release()
                return Ending.LOCK_LOST
        except LeaseLost as lost:
            LOG.warning("%s", str(lost))
            return Ending.LOCK_LOST if self._is_cut_off else Ending.BUSY
        except StoreUnavailable:
            for _, entry in self._plan.finished:
                if entry.state is State.COMPLETED:
                    self._plan.memory(entry.message_id).unrecorded = entry.token
            raise

    async def _process(self) -> Ending:
        self._started = self.worker.monotonic()
        while True:
            if self.worker.is_stopping():
                await self._release()
                return Ending.STOPPED
            if not self._plan.waiting:
                await self._flush()
                await self._receive()
                if not self._plan.waiting:
                    await self._release()
                    return Ending.EMPTY
                await self._read()
            for arrival in list(self._plan.waiting):
                entry = self._plan.record.entries.get(arrival.message_id)
                if entry is not None and entry.state.is_final:
                    self._plan.waiting.remove(arrival)
                    await self._settle(arrival, entry)
            if not self._plan.waiting:
                continue
            reason = self._plan.blocked_by(is_held=self.held_lease is not None)
            if reason is None:
                await self._process_group()
                continue
            await self._release()
            await self._register()
            if self._settings.lock == "message":
                return Ending.BUSY
            if self.worker.monotonic() - self._started >= self._settings.patience_seconds:
                LOG.warning("%s", f"{self.partition}: {reason}; left for now")
                return Ending.BUSY
            await self._lane.wait(self._settings.poll_seconds)
            await self._read()

    # Read

    async def _receive(self) -> None:
        while True:
            arrivals: Sequence[Arrival]
            if self._given is None:
                arrivals = await self._lane.receive(self._settings.batch)
            else:
                arrivals, self._given = self._given, []
            for arrival in arrivals:
                if arrival.problem is None:
                    # It is seen from now on, if it was not before.
                    self._plan.memory(arrival.message_id)
                    self._plan.waiting.append(arrival)
                else:
                    # It has no id for other sites, or no place in the order: an operator must look at it.
                    LOG.warning("%s", f"{self.partition}: a message {arrival.problem}; dead-lettered")
                    await self._lane.dead_letter(arrival, "NotRecognised", f"The message {arrival.problem}.")
            if self._plan.waiting or not arrivals:
                return

    async def _read(self) -> None:
        ids = list(dict.fromkeys(arrival.message_id for arrival in self._plan.waiting))
        self._plan.record = await self._patiently(lambda: self._lane.read(self.partition, ids))
        lease = self._plan.record.lease
        if self.held_lease is not None:
            if not self.held_lease.adopt(self._plan.record, is_stale=False):
                taken = "it is gone" if lease is None else f"{lease.worker} has it with token {lease.token}"
                self.held_lease = None
                raise LeaseLost(f"{self.partition}: the lease of {self.worker.name} is lost, {taken}")
        elif lease is not None and lease.is_held and lease.worker == self.worker.name:
            # The claim succeeded, but its answer was lost.
            self.held_lease = HeldLease(self.partition, lease, self._plan.record.version, self.worker.monotonic())

    # Process

    async def _process_group(self) -> None:
        """Begin the next messages, give them to the application, and decide the state of each."""
        group = self._plan.next_group()
        token = self._plan.next_token() if self.held_lease is None else self.held_lease.lease.token
        for arrival in list(group):
            decided = self._plan.final_without_run(arrival, token)
            if decided is not None:
                group.remove(arrival)
                self._plan.decide(arrival, decided)
        entries = {
            entry.message_id: entry for entry in [*self._plan.missing_entries(), *self._plan.entries_to_skip(group)]
        }
        for arrival in group:
            entries[arrival.message_id] = self._plan.started_entry(arrival, token)
        if not await self._write(list(entries.values())):
            return
        for position, arrival in enumerate(group):
            if not self.worker.is_stopping() and await self._run(arrival, entries[arrival.message_id]):
                continue
            await self._write(self._plan.revert_started([entries[arrival.message_id] for arrival in group[position:]]))
            if not self.worker.is_stopping():
                await self._lane.wait(self._settings.retry_seconds)
            return
        if not self._plan.waiting:
            await self._flush(is_last=self._settings.lock == "message")

    async def _run(self, arrival: Arrival, entry: Entry) -> bool:
        """Give a message to the application; return whether its final state is decided, so that the next may follow."""
        held = self._held()
        if not held.is_fresh(self.worker.monotonic() + self._settings.heartbeat_seconds):
            await self._write([], is_renewal=True)
            held = self._held()
        delivery = Delivery(
            message=arrival.message,
            message_id=arrival.message_id,
            session_id=arrival.session_id,
            attempt=entry.attempt,
            token=entry.token,
            may_have_run=self._plan.memory(arrival.message_id).may_have_run,
            is_held=lambda: held.is_fresh(self.worker.monotonic()),
        )
        self._plan.mark_delivered(entry)
        fault = await self._lane.run(delivery)
        self._started = self.worker.monotonic()
        if fault is None:
            self._plan.decide(arrival, self._plan.final(entry, State.COMPLETED))
            return True
        LOG.warning("%s", f"{self.partition}: message {arrival.message_id}, attempt {entry.attempt}: {fault.reason}")
        if not fault.counts:
            self._plan.uncount(entry)
            return False
        if fault.is_final or entry.attempt >= self._settings.max_attempts:
            self._plan.decide(arrival, self._plan.final(entry, State.FAULTED, fault.reason, fault.description))
            return True
        return False

    async def _settle(self, arrival: Arrival, entry: Entry) -> None:
        self._started = self.worker.monotonic()
        if self._is_cut_off:
            return
        if entry.state is State.COMPLETED:
            await self._lane.complete(arrival)
        else:
            await self._lane.dead_letter(arrival, entry.reason, entry.description)
        self.worker.cache.forget(self.partition, arrival.message_id)

    # Write

    async def _write(self, entries: Sequence[Entry], *, is_renewal: bool = False, **changes: Any) -> bool:  # noqa: ANN401 - of Lease
        """
        Write *entries* and the finished messages, claiming the lease if necessary, then settle the finished messages.

        Return whether it was written; if not, the record has changed and the next steps must be decided again. Raises
        LeaseLost.
        """
        claiming = self.held_lease is None
        held = self.held_lease or HeldLease(self.partition, self._plan.new_lease(), self._plan.record.version)
        finished = list(self._plan.finished)
        final = [entry for _, entry in finished]
        changes |= order.progress(held.lease, final)
        written = [*final, *entries]
        try:
            await self._patiently(lambda: self._lane.commit(held, changes, written))
        except Conflict:
            if claiming:
                # Another worker may have processed them first.
                self._plan.waiting[:0] = [arrival for arrival, _ in finished]
                self._plan.finished.clear()
            await self._read()
            if self.held_lease is None or not is_renewal:
                return False
            return await self._write(entries, is_renewal=True, **changes)
        if claiming:
            self.held_lease = held
        self._plan.record = replace(self._plan.record, lease=held.lease, version=held.version).with_entries(*written)
        del self._plan.finished[: len(finished)]
        for arrival, entry in finished:
            await self._settle(arrival, entry)
        return True

    async def _flush(self, *, is_last: bool = False) -> None:
        """Record and settle the finished messages."""
        while self._plan.finished:
            if self.held_lease is None:
                return
            await self._write([], **(self._plan.release_changes() if is_last else {}))
        if self.held_lease is not None and not self.held_lease.lease.is_held:
            self.held_lease = None

    async def _release(self) -> None:
        """Release the lease, so that no other worker must wait until it expires."""
        await self._flush()
        while self.held_lease is not None:
            if await self._write([], **self._plan.release_changes()):
                self.held_lease = None

    async def _register(self) -> None:
        """Register the messages received here, since workers at other sites may have to wait for them."""
        unknown = [entry for entry in self._plan.missing_entries() if entry.message_id not in self._plan.record.entries]
        if not unknown or self._settings.lock == "message":
            return
        lease = self._plan.record.lease or replace(self._plan.new_lease(), is_held=False, worker="")
        arrivals = replace(lease, arrivals=lease.arrivals + 1)
        try:
            version = self._plan.record.version
            await self._patiently(lambda: self._lane.register(self.partition, arrivals, version, unknown))
        except Conflict:
            return

    async def _patiently(self, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call the journal, and retry while the store is unavailable, at most for patience_seconds."""
        started = self.worker.monotonic()
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                if (
                    isinstance(error, StoreRefused)
                    or self.worker.monotonic() - started >= self._settings.patience_seconds
                ):
                    raise
                LOG.warning("%s", f"{error}; trying again")
            await self._lane.wait(self._settings.poll_seconds)

    def _held(self) -> HeldLease:
        if self.held_lease is None:
            raise LeaseLost(f"{self.partition}: {self.worker.name} no longer has the lease")
        return self.held_lease


async def renew(held: HeldLease, lane: Lane) -> bool:
    """Renew a lease while the application works, and return whether it is still held by this worker."""
    while True:
        try:
            await lane.commit(held, {}, [], is_renewal=True)
        except Conflict:
            # If someone has registered messages, the visit must read them before it begins with another.
            if not held.adopt(await lane.read(held.partition, []), is_stale=True):
                held.is_lost = True
                return False
        else:
            return True
