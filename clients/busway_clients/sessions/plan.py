"""What a worker would do next with a session, from what is on record and what has arrived; nothing here does it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from busway_clients.sessions import order
from busway_clients.sessions.entries import Entry, State
from busway_clients.sessions.leases import Lease, Record
from busway_clients.sessions.received import Arrival, age
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.worker_cache import Try, WorkerCache

_MOST_PASSED = 8
"""With the messages at hand they have to fit into one transaction of 100 rows; what is left is for the next."""


@dataclass(frozen=True)
class Worker:
    """Who visits; *name* must be no other's and differ from visit to visit."""

    name: str
    site: str
    settings: Settings
    cache: WorkerCache
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    is_stopping: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Finished:
    """A message whose fate is decided; its entry waits to be written, then it is settled."""

    arrival: Arrival
    entry: Entry


@dataclass
class Plan:
    """
    What *worker* knows of *partition*, and what follows.

    *waiting* are messages whose fate is open, in the order in which they arrived; *finished* those whose fate is
    decided and not yet on record; *given* the attempts that the application has had in this visit.
    """

    partition: str
    worker: Worker
    record: Record = field(default_factory=lambda: Record(None, None, {}))
    waiting: list[Arrival] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    given: set[tuple[str, int]] = field(default_factory=set)
    may_have_run: dict[str, bool] = field(default_factory=dict)

    @property
    def _settings(self) -> Settings:
        return self.worker.settings

    @property
    def _cache(self) -> WorkerCache:
        return self.worker.cache

    def obstacle(self, *, is_held: bool) -> str | None:
        """Return what keeps this worker from the first message, in words."""
        if not is_held:
            obstacle = self._lease_of_someone_else() or self._head_start()
            if obstacle is not None:
                return obstacle
        return None if self.next_group() else self._earlier(self.known(), self.waiting[0], ())

    def decide(self, arrival: Arrival, entry: Entry) -> None:
        """Record the final state of a message."""
        self.waiting.remove(arrival)
        self.finished.append(Finished(arrival, entry))

    def decide_again(self) -> None:
        """Forget what was decided, as someone else may have come first."""
        self.waiting[:0] = [each.arrival for each in self.finished]
        self.finished.clear()

    def taken_back(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return *entries*, which are on record as begun, as those of messages that are not being worked on."""
        back = []
        for entry in entries:
            if (entry.message_id, entry.attempt) in self.given:
                self.may_have_run[entry.message_id] = False
                back.append(replace(entry, state=State.PENDING))
            else:
                state = State.WORKING if self.may_have_run[entry.message_id] else State.PENDING
                back.append(replace(entry, state=state, worker="", attempt=entry.attempt - 1))
        return back

    def _lease_of_someone_else(self) -> str | None:
        lease = self.record.lease
        if lease is None or not lease.is_held:
            return None
        # Nobody's clock is compared with another's: a lease is over when it has been seen unchanged for its own time.
        now = self.worker.monotonic()
        quiet = self._cache.unchanged_seconds(self.partition, lease.token, lease.beat, now)
        if quiet >= lease.seconds:
            return None
        return f"{lease.worker} at {lease.site} has the lease"

    def _head_start(self) -> str | None:
        lease = self.record.lease
        first = self.waiting[0]
        if self._settings.head_start_seconds == 0 or (lease is not None and lease.is_held):
            return None
        now = self.worker.monotonic()
        seen = now - self._cache.seen.first((self.partition, first.message_id), now)
        if max(seen, age(first, self.worker.wall())) >= self._settings.head_start_seconds:
            return None
        return "it is left to the primary region"

    def known(self) -> Record:
        """Return the record as it is once everything that waits is registered."""
        return self.record.with_entries(*self.unknown(), *(each.entry for each in self.finished))

    def unknown(self) -> list[Entry]:
        """Return entries for those that wait and have none, or whose entry lacks the places seen here."""
        entries: dict[str, Entry] = {}
        for arrival in self.waiting:
            known = self.record.entries.get(arrival.message_id)
            if known is None:
                entries.setdefault(arrival.message_id, self._entry(arrival, State.PENDING))
            elif not arrival.lines.items() <= known.lines.items() and not known.state.is_final:
                entries.setdefault(arrival.message_id, replace(known, lines={**known.lines, **arrival.lines}))
        return list(entries.values())

    def next_group(self) -> list[Arrival]:
        """Return which messages to begin: the first that may be, and as many after it as go on record together."""
        known = self.known()
        picked: list[Arrival] = []
        ids: set[str] = set()
        for arrival in self.waiting:
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
        waited = now - self._cache.blocked.first((self.partition, arrival.message_id), now)
        limit = self._settings.wait_for_earlier_seconds
        if limit is not None and waited >= limit:
            return None
        return f"message {arrival.message_id} waits for {blocking}"

    def passed_over(self, group: Sequence[Arrival]) -> list[Entry]:
        """Return the entries that *group* has waited for in vain, noted so: no other has to wait for them again."""
        if self._settings.wait_for_earlier_seconds is None or self._settings.lock == "message":
            return []
        known = self.known()
        ids = {arrival.message_id for arrival in group}
        passed = {
            entry.message_id: replace(entry, is_passed=True)
            for arrival in group
            for entry in order.awaited(arrival, known, ids)
        }
        return list(passed.values())[:_MOST_PASSED]

    def begun(self, arrival: Arrival, token: int) -> Entry:
        """Return the entry of a message that is given to the application next."""
        known = self.record.entries.get(arrival.message_id)
        ungiven = None if known is None else self._ungiven(known)
        is_first = known is None or known.state is not State.WORKING
        self.may_have_run.setdefault(arrival.message_id, ungiven.may_have_run if ungiven else not is_first)
        entry = self._entry(arrival, State.WORKING, token, attempts=0 if ungiven else 1)
        self._note_ungiven(entry)
        return entry

    def give(self, entry: Entry) -> None:
        """Note that the application gets a message that is on record as begun."""
        self.given.add((entry.message_id, entry.attempt))
        self._cache.ungiven.forget((self.partition, entry.message_id))

    def ungive(self, entry: Entry) -> None:
        """Note that the application had a message for nothing, so that the attempt does not count."""
        self.given.discard((entry.message_id, entry.attempt))
        self._note_ungiven(entry)

    def _note_ungiven(self, entry: Entry) -> None:
        noted = Try(self.worker.name, entry.attempt, self.may_have_run[entry.message_id])
        self._cache.ungiven[self.partition, entry.message_id] = noted

    def _ungiven(self, entry: Entry) -> Try | None:
        """Return the attempt that is recorded and that this process did not make, since the store was unavailable."""
        noted = self._cache.ungiven[self.partition, entry.message_id]
        is_that = noted is not None and noted[:2] == (entry.worker, entry.attempt)
        return noted if is_that and entry.state is State.WORKING else None

    def _has_cost_enough(self, entry: Entry) -> bool:
        """Whether as many workers were lost with it as there may be attempts."""
        is_begun = entry.state is State.WORKING and not self._ungiven(entry)
        return is_begun and entry.attempt >= self._settings.max_attempts

    def decided_already(self, arrival: Arrival, token: int) -> Entry | None:
        """Return the final entry of a message that needs no (further) try."""
        entry = self.record.entries.get(arrival.message_id)
        if entry is not None and entry.state is State.WORKING:
            remembered = self._cache.unrecorded[self.partition, arrival.message_id]
            if remembered is not None and remembered == entry.token:
                return self.final(replace(entry, token=token), State.COMPLETED)
        if entry is not None and self._has_cost_enough(entry):
            text = f"{entry.attempt} workers received it, and all of them were lost."
            return self.final(replace(entry, token=token), State.FAULTED, "WorkersLost", text)
        if self._settings.lock == "session" and self._settings.late == "dead-letter":
            known = self.record.with_entries(*(each.entry for each in self.finished))
            if order.is_late(arrival, known, self._settings):
                text = "A later message of its session was finished before it arrived."
                return self.final(self._entry(arrival, State.PENDING, token), State.FAULTED, "OutOfOrder", text)
        return None

    def given_back(self) -> dict[str, Any]:
        """Return what changes in a lease that is given back."""
        return {"is_held": False, "finished": self._now()}

    def _now(self) -> str:
        return datetime.fromtimestamp(self.worker.wall(), UTC).isoformat()

    def next_token(self) -> int:
        """Return the fencing token of the next owner."""
        if self.record.lease is None:
            # The session may have been forgotten: only the time of day is above all tokens that it has had.
            return max(1, round(self.worker.wall() * 1_000_000))
        return self.record.lease.token + 1

    def claimed(self) -> Lease:
        """Return the lease that this worker writes to get it."""
        former = self.record.lease
        own = Lease(
            worker=self.worker.name,
            site=self.worker.site,
            token=self.next_token(),
            beat=0,
            seconds=self._settings.lease_seconds,
            is_held=True,
        )
        if former is None:
            return own
        return replace(own, arrivals=former.arrivals, done=former.done, through=former.through, recent=former.recent)

    def _entry(self, arrival: Arrival, state: State, token: int = 0, *, attempts: int = 0) -> Entry:
        known = self.record.entries.get(arrival.message_id)
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

    def final(self, entry: Entry, state: State, reason: str = "", description: str = "") -> Entry:
        """Return *entry* as that of a message whose fate is decided."""
        return replace(
            entry,
            state=state,
            reason=reason,
            description=description,
            worker=self.worker.name,
            site=self.worker.site,
            finished=self._now(),
        )
