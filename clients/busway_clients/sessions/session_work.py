"""
The work of one worker on a session (or on a message that is locked individually), as steps without I/O.

The order of writes must not change: recorded as working, given to the application, recorded as completed or faulted,
settled at the namespace. The next worker can see between which of them a worker died.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeAlias

from busway_clients.sessions import order
from busway_clients.sessions.effects import (
    Commit,
    Complete,
    DeadLetter,
    Delivery,
    Effect,
    Fault,
    HeldLease,
    LockLost,
    Log,
    Read,
    Receive,
    Register,
    Run,
    Wait,
)
from busway_clients.sessions.entries import Entry, State
from busway_clients.sessions.errors import Conflict, JournalUnavailable, LeaseLost
from busway_clients.sessions.plan import Plan, Worker
from busway_clients.sessions.received import Arrival
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.worker_cache import WorkerCache

EffectSteps: TypeAlias = Generator[Effect, Any, Any]


class Ending(Enum):
    """Why the work ended; after all except EMPTY, messages may be left."""

    EMPTY = "empty"
    BUSY = "busy"
    LOCK_LOST = "lock lost"
    STOPPED = "stopped"


class SessionWork:
    """
    The work of *worker* on *partition*, with the *given* messages, or with all that it receives.

    *held_lease* is for the renewal too, None without a lease.
    """

    def __init__(self, partition: str, worker: Worker, given: Sequence[Arrival] | None = None) -> None:
        self.partition = partition
        self.worker = worker
        self.held_lease: HeldLease | None = None
        self._given = given
        self._plan = Plan(partition, worker)
        self._started = 0.0
        self._is_cut_off = False

    def steps(self) -> Generator[Effect, Any, Ending]:
        """
        Yield effects until there is nothing to do, or nothing that can be done now.

        Raises JournalUnavailable when the store stays unavailable, JournalMalformed and JournalRefused as the store
        does. No message is settled before it is recorded.
        """
        try:
            return (yield from self._process())
        except LeaseLost as lost:
            yield Log(str(lost))
            return Ending.BUSY
        except LockLost:
            self._is_cut_off = True
            yield from self._release()
            return Ending.LOCK_LOST
        except JournalUnavailable:
            for done in self._plan.finished:
                if done.entry.state is State.COMPLETED:
                    self._cache.unrecorded[self.partition, done.entry.message_id] = done.entry.token
            raise

    @property
    def _settings(self) -> Settings:
        return self.worker.settings

    @property
    def _cache(self) -> WorkerCache:
        return self.worker.cache

    def _process(self) -> Generator[Effect, Any, Ending]:
        self._touch()
        while True:
            if self.worker.is_stopping():
                yield from self._release()
                return Ending.STOPPED
            if not self._plan.waiting:
                yield from self._flush()
                yield from self._receive()
                if not self._plan.waiting:
                    yield from self._release()
                    return Ending.EMPTY
                yield from self._read()
            yield from self._settle_what_is_final()
            if not self._plan.waiting:
                continue
            reason = self._plan.blocked_by(is_held=self.held_lease is not None)
            if reason is None:
                yield from self._process_group()
                continue
            yield from self._release()
            yield from self._register()
            if self._settings.lock == "message":
                return Ending.BUSY
            if self.worker.monotonic() - self._started >= self._settings.patience_seconds:
                yield Log(f"{self.partition}: {reason}; left for now")
                return Ending.BUSY
            yield Wait(self._settings.poll_seconds)
            yield from self._read()

    def _touch(self) -> None:
        self._started = self.worker.monotonic()

    # Read

    def _receive(self) -> EffectSteps:
        while True:
            arrivals: Sequence[Arrival]
            if self._given is None:
                arrivals = yield Receive(self._settings.batch)
            else:
                arrivals, self._given = self._given, []
            now = self.worker.monotonic()
            for arrival in arrivals:
                if arrival.problem is None:
                    self._cache.seen.first((self.partition, arrival.message_id), now)
                    self._plan.waiting.append(arrival)
                else:
                    # It has no id for other sites, or no place in the order: an operator must look at it.
                    yield Log(f"{self.partition}: a message {arrival.problem}; dead-lettered")
                    yield DeadLetter(arrival, "NotRecognised", f"The message {arrival.problem}.")
            if self._plan.waiting or not arrivals:
                return

    def _read(self) -> EffectSteps:
        ids = list(dict.fromkeys(arrival.message_id for arrival in self._plan.waiting))
        self._plan.record = yield from self._patiently(Read(self.partition, ids))
        lease = self._plan.record.lease
        if self.held_lease is not None:
            if lease is None or (lease.worker, lease.token) != (self.worker.name, self.held_lease.lease.token):
                taken = "it is gone" if lease is None else f"{lease.worker} has it with token {lease.token}"
                self.held_lease = None
                raise LeaseLost(f"{self.partition}: the lease of {self.worker.name} is lost, {taken}")
            self.held_lease.lease, self.held_lease.version, self.held_lease.is_stale = (
                lease,
                self._plan.record.version,
                False,
            )
        elif lease is not None and lease.is_held and lease.worker == self.worker.name:
            # The claim succeeded, but its answer was lost.
            self.held_lease = HeldLease(self.partition, lease, self._plan.record.version, self.worker.monotonic())

    def _settle_what_is_final(self) -> EffectSteps:
        for arrival in list(self._plan.waiting):
            entry = self._plan.record.entries.get(arrival.message_id)
            if entry is None or not entry.state.is_final:
                continue
            self._plan.waiting.remove(arrival)
            yield from self._settle(arrival, entry)

    # Process

    def _process_group(self) -> EffectSteps:
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
        if not (yield from self._write(list(entries.values()))):
            return
        for position, arrival in enumerate(group):
            if not self.worker.is_stopping() and (yield from self._run(arrival, entries[arrival.message_id])):
                continue
            yield from self._write(self._plan.revert_started([entries[each.message_id] for each in group[position:]]))
            if not self.worker.is_stopping():
                yield Wait(self._settings.retry_seconds)
            return
        if not self._plan.waiting:
            yield from self._flush(is_last=self._settings.lock == "message")

    def _run(self, arrival: Arrival, entry: Entry) -> EffectSteps:
        """Give a message to the application; return whether its final state is decided, so that the next may follow."""
        held = self._held()
        if not held.is_fresh(self.worker.monotonic() + self._settings.heartbeat_seconds):
            yield from self._write([], is_renewal=True)
            held = self._held()
        delivery = Delivery(
            message=arrival.message,
            message_id=arrival.message_id,
            session_id=arrival.session_id,
            attempt=entry.attempt,
            token=entry.token,
            may_have_run=self._plan.may_have_run[arrival.message_id],
            is_held=lambda: held.is_fresh(self.worker.monotonic()),
        )
        self._plan.mark_delivered(entry)
        fault: Fault | None = yield Run(delivery)
        self._touch()
        if fault is None:
            self._plan.decide(arrival, self._plan.final(entry, State.COMPLETED))
            return True
        yield Log(f"{self.partition}: message {arrival.message_id}, attempt {entry.attempt}: {fault.reason}")
        if not fault.counts:
            self._plan.uncount(entry)
            return False
        if fault.is_final or entry.attempt >= self._settings.max_attempts:
            self._plan.decide(arrival, self._plan.final(entry, State.FAULTED, fault.reason, fault.description))
            return True
        return False

    def _settle(self, arrival: Arrival, entry: Entry) -> EffectSteps:
        self._touch()
        if self._is_cut_off:
            return
        if entry.state is State.COMPLETED:
            yield Complete(arrival)
        else:
            yield DeadLetter(arrival, entry.reason, entry.description)
        for kept in (self._cache.seen, self._cache.blocked, self._cache.unrecorded, self._cache.uncounted):
            kept.forget((self.partition, arrival.message_id))

    # Write

    def _write(self, entries: Sequence[Entry], *, is_renewal: bool = False, **changes: Any) -> EffectSteps:  # noqa: ANN401 - of Lease
        """
        Write *entries* and the finished messages, claiming the lease if necessary, then settle the finished messages.

        Return whether it was written; if not, the record has changed and the next steps must be decided again. Raises
        LeaseLost.
        """
        claiming = self.held_lease is None
        held = self.held_lease or HeldLease(self.partition, self._plan.new_lease(), self._plan.record.version)
        finished = list(self._plan.finished)
        changes |= order.progress(held.lease, [each.entry for each in finished])
        written = [*(each.entry for each in finished), *entries]
        try:
            yield from self._patiently(Commit(held, changes, written, empties=self._empties(changes)))
        except Conflict:
            if claiming:
                self._plan.reopen_decided()
            yield from self._read()
            if self.held_lease is None or not is_renewal:
                return False
            return (yield from self._write(entries, is_renewal=True, **changes))
        if claiming:
            self.held_lease = held
        self._plan.record = replace(self._plan.record, lease=held.lease, version=held.version).with_entries(*written)
        del self._plan.finished[: len(finished)]
        for each in finished:
            yield from self._settle(each.arrival, each.entry)
        return True

    def _empties(self, changes: Mapping[str, Any]) -> bool:
        """Whether to move all entries out of the lease's row, since nobody may write it again."""
        # With lock="message" no other worker registers messages, so the lease's row is the only one.
        return self._settings.lock == "session" and changes.get("is_held") is False

    def _flush(self, *, is_last: bool = False) -> EffectSteps:
        """Record and settle the finished messages."""
        while self._plan.finished:
            if self.held_lease is None:
                return
            yield from self._write([], **(self._plan.release_changes() if is_last else {}))
        if self.held_lease is not None and not self.held_lease.lease.is_held:
            self.held_lease = None

    def _release(self) -> EffectSteps:
        """Release the lease, so that no other worker must wait until it expires."""
        yield from self._flush()
        while self.held_lease is not None:
            if (yield from self._write([], **self._plan.release_changes())):
                self.held_lease = None

    def _register(self) -> EffectSteps:
        """Register the messages received here, since workers at other sites may have to wait for them."""
        unknown = [entry for entry in self._plan.missing_entries() if entry.message_id not in self._plan.record.entries]
        if not unknown or self._settings.lock == "message":
            return
        lease = self._plan.record.lease or replace(self._plan.new_lease(), is_held=False, worker="")
        arrivals = replace(lease, arrivals=lease.arrivals + 1)
        try:
            yield from self._patiently(Register(self.partition, arrivals, self._plan.record.version, unknown))
        except Conflict:
            return

    def _patiently(self, effect: Effect) -> EffectSteps:
        """Yield an effect on the store, and retry while the store is unavailable, at most for patience_seconds."""
        started = self.worker.monotonic()
        while True:
            try:
                return (yield effect)
            except JournalUnavailable as error:
                if self.worker.monotonic() - started >= self._settings.patience_seconds:
                    raise
                yield Log(f"{error}; trying again")
            yield Wait(self._settings.poll_seconds)

    def _held(self) -> HeldLease:
        if self.held_lease is None:
            raise LeaseLost(f"{self.partition}: {self.worker.name} no longer has the lease")
        return self.held_lease
