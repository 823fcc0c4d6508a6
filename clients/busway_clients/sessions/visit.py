"""
One visit of a worker to a session (or to a message that is locked by itself), as steps without I/O.

The order of writes is what nothing may change: on record as working, given to the application, on record as completed
or faulted, settled at the namespace. A worker that dies between two of them leaves what the next one can tell apart.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeAlias

from busway_clients.sessions import order
from busway_clients.sessions.arrivals import Arrival, age
from busway_clients.sessions.effects import (
    Commit,
    Complete,
    DeadLetter,
    Delivery,
    Effect,
    Fault,
    Hold,
    LockLost,
    Read,
    Receive,
    Register,
    Run,
    Tell,
    Wait,
)
from busway_clients.sessions.entries import Entry, Lease, Record, State
from busway_clients.sessions.errors import Conflict, JournalUnavailable, LeaseLost
from busway_clients.sessions.memory import Memory
from busway_clients.sessions.settings import Settings

Steps: TypeAlias = Generator[Effect, Any, Any]


class Ending(Enum):
    """Why a visit has ended; after all but EMPTY there may be messages that were left as they are."""

    EMPTY = "empty"
    BUSY = "busy"
    LOCK_LOST = "lock lost"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Worker:
    """Who visits; *name* must be no other's and differ from visit to visit."""

    name: str
    site: str
    settings: Settings
    memory: Memory
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    is_stopping: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class _Finished:
    """A message whose fate is decided; its entry waits to be written, then it is settled."""

    arrival: Arrival
    entry: Entry


@dataclass
class Visit:
    """The steps of a visit to *partition*; *hold* is for the shell's heartbeat too."""

    partition: str
    worker: Worker
    hold: Hold | None = None
    _record: Record = field(default_factory=lambda: Record(None, None, {}))
    _waiting: list[Arrival] = field(default_factory=list)
    _finished: list[_Finished] = field(default_factory=list)
    _given: set[tuple[str, int]] = field(default_factory=set)
    _may_have_run: dict[str, bool] = field(default_factory=dict)
    _started: float = 0.0
    _is_cut_off: bool = False

    def steps(self) -> Generator[Effect, Any, Ending]:
        """
        Yield effects until there is nothing to do, or nothing that can be done now.

        Raises JournalUnavailable when the store stays away, JournalMalformed and JournalRefused as the store does; in
        all cases what is not on record is not settled.
        """
        try:
            return (yield from self._visit())
        except LeaseLost as lost:
            yield Tell(str(lost))
            return Ending.BUSY
        except LockLost:
            self._is_cut_off = True
            yield from self._release()
            return Ending.LOCK_LOST
        except JournalUnavailable:
            for done in self._finished:
                if done.entry.state is State.COMPLETED:
                    self._memory.unrecorded[self.partition, done.entry.message_id] = done.entry.token
            raise

    @property
    def _settings(self) -> Settings:
        return self.worker.settings

    @property
    def _memory(self) -> Memory:
        return self.worker.memory

    def _visit(self) -> Generator[Effect, Any, Ending]:
        self._touch()
        while True:
            if self.worker.is_stopping():
                yield from self._release()
                return Ending.STOPPED
            if not self._waiting:
                yield from self._receive()
                if not self._waiting:
                    yield from self._release()
                    return Ending.EMPTY
                yield from self._read()
            yield from self._settle_what_is_final()
            if not self._waiting:
                continue
            obstacle = self._obstacle()
            if obstacle is None:
                yield from self._work()
                continue
            yield from self._release()
            yield from self._register()
            # A message that is locked by itself keeps no other waiting, and giving it up counts as a delivery.
            is_over = self.worker.monotonic() - self._started >= self._settings.patience_seconds
            if is_over and self._settings.lock == "session":
                yield Tell(f"{self.partition}: {obstacle}; left for now")
                return Ending.BUSY
            yield Wait(self._settings.poll_seconds)
            yield from self._read()

    def _touch(self) -> None:
        self._started = self.worker.monotonic()

    # What there is

    def _receive(self) -> Steps:
        arrivals: Sequence[Arrival] = yield Receive(self._settings.batch)
        now = self.worker.monotonic()
        for arrival in arrivals:
            if arrival.problem is None:
                self._memory.seen.first((self.partition, arrival.message_id), now)
                self._waiting.append(arrival)
                continue
            # It has no entry that another site could find, or no place in the order: only a person can tell.
            yield from self._flush()
            yield Tell(f"{self.partition}: a message {arrival.problem}; dead-lettered")
            yield DeadLetter(arrival, "NotRecognised", f"The message {arrival.problem}.")
        if arrivals and not self._waiting:
            yield from self._receive()

    def _read(self) -> Steps:
        ids = list(dict.fromkeys(arrival.message_id for arrival in self._waiting))
        self._record = yield from self._patiently(Read(self.partition, ids))
        lease = self._record.lease
        if self.hold is not None:
            if lease is None or (lease.worker, lease.token) != (self.worker.name, self.hold.lease.token):
                taken = "it is gone" if lease is None else f"{lease.worker} has it with token {lease.token}"
                self.hold = None
                raise LeaseLost(f"{self.partition}: the lease of {self.worker.name} is lost, {taken}")
            self.hold.lease, self.hold.version, self.hold.is_stale = lease, self._record.version, False
        elif lease is not None and lease.is_held and lease.worker == self.worker.name:
            # The claim went through, its answer did not.
            self.hold = Hold(self.partition, lease, self._record.version, self.worker.monotonic())

    def _settle_what_is_final(self) -> Steps:
        for arrival in list(self._waiting):
            entry = self._record.entries.get(arrival.message_id)
            if entry is None or not entry.state.is_final:
                continue
            self._waiting.remove(arrival)
            yield from self._settle(arrival, entry)

    def _obstacle(self) -> str | None:
        """Return what keeps this worker from the first message, in words."""
        if self.hold is None:
            obstacle = self._lease_of_someone_else() or self._head_start()
            if obstacle is not None:
                return obstacle
        return None if self._next_group() else self._earlier(self._known(), self._waiting[0], ())

    def _lease_of_someone_else(self) -> str | None:
        lease = self._record.lease
        if lease is None or not lease.is_held:
            return None
        # Nobody's clock is compared with another's: a lease is over when it has been seen unchanged for its own time.
        now = self.worker.monotonic()
        quiet = self._memory.unchanged_seconds(self.partition, lease.token, lease.beat, now)
        if quiet >= lease.seconds:
            return None
        return f"{lease.worker} at {lease.site} has the lease"

    def _head_start(self) -> str | None:
        lease = self._record.lease
        first = self._waiting[0]
        if self._settings.head_start_seconds == 0 or (lease is not None and lease.is_held):
            return None
        now = self.worker.monotonic()
        seen = now - self._memory.seen.first((self.partition, first.message_id), now)
        if max(seen, age(first, self.worker.wall())) >= self._settings.head_start_seconds:
            return None
        return "it is left to the primary region"

    # What is done

    def _known(self) -> Record:
        """Return the record as it is once everything that waits is registered."""
        return self._record.with_entries(*self._unknown(), *(each.entry for each in self._finished))

    def _unknown(self) -> list[Entry]:
        """Return entries for those that wait and have none, or whose entry lacks the places seen here."""
        entries: dict[str, Entry] = {}
        for arrival in self._waiting:
            known = self._record.entries.get(arrival.message_id)
            if known is None:
                entries.setdefault(arrival.message_id, self._entry(arrival, State.PENDING))
            elif not arrival.lines.items() <= known.lines.items() and not known.state.is_final:
                entries.setdefault(arrival.message_id, replace(known, lines={**known.lines, **arrival.lines}))
        return list(entries.values())

    def _next_group(self) -> list[Arrival]:
        """Return which messages to begin: the first that may be, and as many after it as go on record together."""
        known = self._known()
        picked: list[Arrival] = []
        ids: set[str] = set()
        for arrival in self._waiting:
            entry = known.entries[arrival.message_id]
            if entry.state.is_final or arrival.message_id in ids or self._earlier(known, arrival, ids):
                continue
            if entry.attempt and picked:
                break
            picked.append(arrival)
            ids.add(arrival.message_id)
            # One that has been tried before goes alone, so that no other is blamed for a worker that it ends.
            if entry.attempt or len(picked) == self._settings.record_every:
                break
        return picked

    def _earlier(self, known: Record, arrival: Arrival, ids: "set[str] | tuple[()]") -> str | None:
        blocking = order.earlier_than(arrival, known, self._settings, ids) if self._settings.lock == "session" else None
        if blocking is None:
            return None
        now = self.worker.monotonic()
        waited = now - self._memory.blocked.first((self.partition, arrival.message_id), now)
        limit = self._settings.wait_for_earlier_seconds
        if limit is not None and waited >= limit:
            return None
        return f"message {arrival.message_id} waits for {blocking}"

    def _work(self) -> Steps:
        """Begin the next messages, give them to the application and decide what becomes of each."""
        group = self._next_group()
        token = self._next_token() if self.hold is None else self.hold.lease.token
        for arrival in list(group):
            decided = self._decided_already(arrival, token)
            if decided is not None:
                group.remove(arrival)
                self._waiting.remove(arrival)
                self._finished.append(_Finished(arrival, decided))
        entries = {entry.message_id: entry for entry in self._unknown()}
        for arrival in group:
            entries[arrival.message_id] = self._begun(arrival, token)
        if not (yield from self._write(list(entries.values()))):
            return
        for position, arrival in enumerate(group):
            if not self.worker.is_stopping() and (yield from self._run(arrival, entries[arrival.message_id])):
                continue
            yield from self._take_back([entries[each.message_id] for each in group[position:]])
            if not self.worker.is_stopping():
                yield Wait(self._settings.retry_seconds)
            return
        if not self._waiting:
            yield from self._flush(is_last=self._settings.lock == "message")

    def _begun(self, arrival: Arrival, token: int) -> Entry:
        """Return the entry of a message that is given to the application next."""
        known = self._record.entries.get(arrival.message_id)
        self._may_have_run.setdefault(arrival.message_id, known is not None and known.state is State.WORKING)
        if known is not None and self._is_unanswered(known):
            return known
        return self._entry(arrival, State.WORKING, token, attempts=1)

    def _is_unanswered(self, entry: Entry) -> bool:
        """Whether this visit has written it as begun, did not hear that it was written, and so did not begin."""
        mine = entry.state is State.WORKING and entry.worker == self.worker.name
        return mine and (entry.message_id, entry.attempt) not in self._given

    def _has_cost_enough(self, entry: Entry) -> bool:
        """Whether as many workers were lost with it as there may be attempts."""
        is_begun = entry.state is State.WORKING and not self._is_unanswered(entry)
        return is_begun and entry.attempt >= self._settings.max_attempts

    def _take_back(self, entries: Sequence[Entry]) -> Steps:
        """Write that messages which were on record as begun are not being worked on."""
        back = []
        for entry in entries:
            if (entry.message_id, entry.attempt) in self._given:
                self._may_have_run[entry.message_id] = False
                back.append(replace(entry, state=State.PENDING))
            else:
                state = State.WORKING if self._may_have_run[entry.message_id] else State.PENDING
                back.append(replace(entry, state=state, worker="", attempt=entry.attempt - 1))
        yield from self._write(back)

    def _decided_already(self, arrival: Arrival, token: int) -> Entry | None:
        """Return the final entry of a message that needs no (further) try."""
        entry = self._record.entries.get(arrival.message_id)
        if entry is not None and entry.state is State.WORKING:
            remembered = self._memory.unrecorded[self.partition, arrival.message_id]
            if remembered is not None and remembered == entry.token:
                return self._final(replace(entry, token=token), State.COMPLETED)
        if entry is not None and self._has_cost_enough(entry):
            told = f"{entry.attempt} workers were given it, and none came to an end."
            return self._final(replace(entry, token=token), State.FAULTED, "WorkersLost", told)
        if self._settings.lock == "session" and self._settings.late == "dead-letter":
            known = self._record.with_entries(*(each.entry for each in self._finished))
            if order.is_late(arrival, known, self._settings):
                told = "A later message of its session was finished before it came."
                return self._final(self._entry(arrival, State.PENDING, token), State.FAULTED, "OutOfOrder", told)
        return None

    def _run(self, arrival: Arrival, entry: Entry) -> Steps:
        """Give a message to the application; whether its fate is decided, so that the next may follow."""
        hold = self._held()
        if not hold.is_fresh(self.worker.monotonic() + self._settings.heartbeat_seconds):
            yield from self._write([], is_renewal=True)
            hold = self._held()
        delivery = Delivery(
            message=arrival.message,
            message_id=arrival.message_id,
            session_id=arrival.session_id,
            attempt=entry.attempt,
            token=entry.token,
            may_have_run=self._may_have_run[arrival.message_id],
            is_held=lambda: hold.is_fresh(self.worker.monotonic()),
        )
        self._given.add((arrival.message_id, entry.attempt))
        fault: Fault | None = yield Run(delivery)
        self._touch()
        if fault is None:
            self._waiting.remove(arrival)
            self._finished.append(_Finished(arrival, self._final(entry, State.COMPLETED)))
            return True
        yield Tell(f"{self.partition}: message {arrival.message_id}, attempt {entry.attempt}: {fault.reason}")
        if fault.is_final or entry.attempt >= self._settings.max_attempts:
            self._waiting.remove(arrival)
            final = self._final(entry, State.FAULTED, fault.reason, fault.description)
            self._finished.append(_Finished(arrival, final))
            return True
        return False

    def _settle(self, arrival: Arrival, entry: Entry) -> Steps:
        self._touch()
        if self._is_cut_off:
            return
        if entry.state is State.COMPLETED:
            yield Complete(arrival)
        else:
            yield DeadLetter(arrival, entry.reason, entry.description)
        for kept in (self._memory.seen, self._memory.blocked, self._memory.unrecorded):
            kept.forget((self.partition, arrival.message_id))

    # What is written

    def _write(self, entries: Sequence[Entry], *, is_renewal: bool = False, **changes: Any) -> Steps:  # noqa: ANN401 - of Lease
        """
        Write *entries* and what is finished, claiming the lease if need be, then settle what is finished.

        Whether it was written: not so where something has changed in between, so that what to do must be thought over.
        Raises LeaseLost.
        """
        claiming = self.hold is None
        hold = self.hold or Hold(self.partition, self._claimed(), self._record.version)
        finished = list(self._finished)
        changes |= order.progress(hold.lease, [each.entry for each in finished])
        written = [*(each.entry for each in finished), *entries]
        try:
            yield from self._patiently(Commit(hold, changes, written))
        except Conflict:
            yield from self._read()
            if claiming:
                # What was decided before the claim has to be decided again: someone else may have come first.
                self._waiting[:0] = [each.arrival for each in self._finished]
                self._finished.clear()
            if self.hold is None or not is_renewal:
                return False
            return (yield from self._write(entries, is_renewal=True, **changes))
        if claiming:
            self.hold = hold
        self._record = replace(self._record, lease=hold.lease, version=hold.version).with_entries(*written)
        del self._finished[: len(finished)]
        for each in finished:
            yield from self._settle(each.arrival, each.entry)
        return True

    def _flush(self, *, is_last: bool = False) -> Steps:
        """Get what is finished on record, and settle it."""
        while self._finished:
            if self.hold is None:
                return
            yield from self._write([], **(self._given_back() if is_last else {}))
        if self.hold is not None and not self.hold.lease.is_held:
            self.hold = None

    def _release(self) -> Steps:
        """Give the lease back, so that nobody has to wait until it is over."""
        yield from self._flush()
        while self.hold is not None:
            if (yield from self._write([], **self._given_back())):
                self.hold = None

    def _register(self) -> Steps:
        """Let workers elsewhere know what has arrived here, since they may have to wait for it."""
        unknown = [entry for entry in self._unknown() if entry.message_id not in self._record.entries]
        if not unknown or self._settings.lock == "message":
            return
        lease = self._record.lease or replace(self._claimed(), is_held=False, token=0, worker="")
        arrivals = replace(lease, arrivals=lease.arrivals + 1)
        try:
            yield from self._patiently(Register(self.partition, arrivals, self._record.version, unknown))
        except Conflict:
            return

    def _patiently(self, effect: Effect) -> Steps:
        """Yield an effect on the store, again and again while the store is away, for as long as there is patience."""
        started = self.worker.monotonic()
        while True:
            try:
                return (yield effect)
            except JournalUnavailable as error:
                if self.worker.monotonic() - started >= self._settings.patience_seconds:
                    raise
                yield Tell(f"{error}; trying again")
            yield Wait(self._settings.poll_seconds)

    def _given_back(self) -> dict[str, Any]:
        return {"is_held": False, "finished": self._now()}

    def _now(self) -> str:
        return datetime.fromtimestamp(self.worker.wall(), UTC).isoformat()

    def _held(self) -> Hold:
        if self.hold is None:
            raise LeaseLost(f"{self.partition}: {self.worker.name} has no lease any more")
        return self.hold

    def _next_token(self) -> int:
        return 1 if self._record.lease is None else self._record.lease.token + 1

    def _claimed(self) -> Lease:
        """Return the lease that this worker writes to get it."""
        former = self._record.lease
        own = Lease(
            worker=self.worker.name,
            site=self.worker.site,
            token=self._next_token(),
            beat=0,
            seconds=self._settings.lease_seconds,
            is_held=True,
        )
        if former is None:
            return own
        return replace(own, arrivals=former.arrivals, done=former.done, through=former.through)

    def _entry(self, arrival: Arrival, state: State, token: int = 0, *, attempts: int = 0) -> Entry:
        known = self._record.entries.get(arrival.message_id)
        placed = order.merged(arrival, known)
        return Entry(
            message_id=arrival.message_id,
            state=state,
            attempt=attempts + (0 if known is None else known.attempt),
            token=token,
            worker=self.worker.name,
            site=self.worker.site,
            origin=placed.origin,
            lines=placed.lines,
            number=arrival.number,
        )

    def _final(self, entry: Entry, state: State, reason: str = "", description: str = "") -> Entry:
        return replace(
            entry,
            state=state,
            reason=reason,
            description=description,
            worker=self.worker.name,
            site=self.worker.site,
            finished=self._now(),
        )


def beat(hold: Hold, worker: str) -> Generator[Effect, Any, bool]:
    """Yield what renews a lease while the application works; whether it is still this worker's."""
    while True:
        try:
            yield Commit(hold, {}, [], is_beat=True)
        except Conflict:
            record: Record = yield Read(hold.partition, [])
            lease = record.lease
            if lease is None or (lease.worker, lease.token) != (worker, hold.lease.token):
                hold.is_lost = True
                return False
            # Someone has registered messages: the visit must read them before it begins with another.
            hold.lease, hold.version, hold.is_stale = lease, record.version, True
        else:
            return True
