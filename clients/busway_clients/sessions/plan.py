"""Decides what a worker does next with a session, from the journal, the messages and what it remembers, without I/O."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from busway_clients.sessions import order
from busway_clients.sessions.entries import Entry, State
from busway_clients.sessions.leases import Lease, Record
from busway_clients.sessions.order import Arrival
from busway_clients.sessions.settings import Settings

_MOST_PASSED = 8
"""They share a transaction of 100 rows with the current messages; the rest is written by the next transaction."""


_CAPACITY = 20_000


@dataclass
class MessageMemory:
    """
    What a worker remembers of a message; times are local and monotonic.

    *seen*: when it was first received. *blocked_since*: since when it waits for an earlier one. *may_have_run*: whether
    an attempt before the current one may have run. *uncounted*: the worker and the number of the attempt that is
    recorded as started but does not count. *unrecorded*: the token under which the application processed it while the
    store was unavailable.
    """

    seen: float
    blocked_since: float | None = None
    may_have_run: bool = False
    uncounted: tuple[str, int] | None = None
    unrecorded: int | None = None


class WorkerCache:
    """The memory of a worker, of which the oldest is dropped when there is too much; safe to share between threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def message(self, partition: str, message_id: str, now: float) -> MessageMemory:
        """Return what is remembered of a message, which is seen *now* if nothing is."""
        with self._lock:
            memory: MessageMemory = self._recalled((partition, message_id), lambda: MessageMemory(now))
            return memory

    def forget(self, partition: str, message_id: str) -> None:
        """Forget a message that is settled."""
        with self._lock:
            self._kept.pop((partition, message_id), None)

    def unchanged_seconds(self, partition: str, token: int, beat: int, now: float) -> float:
        """Return for how long this worker has seen another worker's lease unchanged."""
        with self._lock:
            *noted, since = self._recalled((partition,), lambda: (token, beat, now))
            if noted != [token, beat]:
                self._kept[partition,] = (token, beat, since := now)
            return now - float(since)

    def _recalled(self, key: tuple[str, ...], create: Callable[[], Any]) -> Any:  # noqa: ANN401 - of a message or a lease
        if key not in self._kept:
            self._kept[key] = create()
            if len(self._kept) > _CAPACITY:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class Ending(Enum):
    """Why the work ended; after all except EMPTY, messages may be left."""

    EMPTY = "empty"
    BUSY = "busy"
    LOCK_LOST = "lock lost"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Worker:
    """A worker; *name* must be unique for each run of work on a session."""

    name: str
    site: str
    settings: Settings
    cache: WorkerCache
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    is_stopping: Callable[[], bool] = lambda: False


@dataclass
class Plan:
    """
    What *worker* knows about *partition*, and the next steps.

    *waiting*: messages without a final state, in order of arrival. *finished*: messages whose final state is decided
    but not recorded; their entries are written first, then they are settled.
    """

    partition: str
    worker: Worker
    record: Record = field(default_factory=lambda: Record(None, None, {}))
    waiting: list[Arrival] = field(default_factory=list)
    finished: list[tuple[Arrival, Entry]] = field(default_factory=list)

    def memory(self, message_id: str) -> MessageMemory:
        """Return what the worker remembers of a message."""
        return self.worker.cache.message(self.partition, message_id, self.worker.monotonic())

    def blocked_by(self, *, is_held: bool) -> str | None:
        """Return the reason why the first message cannot be processed now, None if it can."""
        lease, first, now = self.record.lease, self.waiting[0], self.worker.monotonic()
        if not is_held and lease is not None and lease.is_held:
            # No two clocks are compared: a lease has expired when this worker has seen it unchanged for its duration.
            if self.worker.cache.unchanged_seconds(self.partition, lease.token, lease.beat, now) < lease.seconds:
                return f"{lease.worker} at {lease.site} has the lease"
        elif not is_held and self.worker.settings.head_start_seconds > 0:
            # The broker's clock may differ from the local one.
            age = 0.0 if first.enqueued is None else self.worker.wall() - first.enqueued
            if max(now - self.memory(first.message_id).seen, age) < self.worker.settings.head_start_seconds:
                return "the primary region may process it first"
        return None if self.next_group() else self._earlier(self.expected_record(), first, ())

    def decide(self, arrival: Arrival, entry: Entry) -> None:
        """Record the final state of a message."""
        self.waiting.remove(arrival)
        self.finished.append((arrival, entry))

    def revert_started(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return *entries*, which are recorded as started, as entries of messages that are not being processed."""
        back = []
        for entry in entries:
            # What a lost worker may have done is not undone by a later attempt that failed.
            may_have_run = self.memory(entry.message_id).may_have_run
            open_entry = replace(entry, state=State.WORKING if may_have_run else State.PENDING)
            never_ran = replace(open_entry, worker="", attempt=entry.attempt - 1)
            back.append(never_ran if self._is_uncounted(entry) else open_entry)
        return back

    def expected_record(self) -> Record:
        """Return the record as it will be when all waiting and finished messages are recorded."""
        return self.record.with_entries(*self.missing_entries(), *(entry for _, entry in self.finished))

    def missing_entries(self) -> list[Entry]:
        """Return entries for waiting messages that have none, or whose entry lacks the places seen here."""
        entries: dict[str, Entry] = {}
        for arrival in self.waiting:
            known = self.record.entries.get(arrival.message_id)
            if known is None:
                entries.setdefault(arrival.message_id, self._entry(arrival, State.PENDING))
            elif not arrival.lines.items() <= known.lines.items() and not known.state.is_final:
                entries.setdefault(arrival.message_id, replace(known, lines={**known.lines, **arrival.lines}))
        return list(entries.values())

    def next_group(self) -> list[Arrival]:
        """Return the messages to start: the first that is not blocked, and those that are recorded with it."""
        known = self.expected_record()
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
            # A message that was tried before runs alone: if it kills the worker, no other message is blamed.
            if entry.attempt or len(picked) == self.worker.settings.record_every:
                break
        return picked

    def _earlier(self, known: Record, arrival: Arrival, ids: "set[str] | tuple[()]") -> str | None:
        blocking = (
            order.blocking_reason(arrival, known, self.worker.settings, ids)
            if self.worker.settings.lock == "session"
            else None
        )
        if blocking is None:
            return None
        now = self.worker.monotonic()
        memory = self.memory(arrival.message_id)
        if memory.blocked_since is None:
            memory.blocked_since = now
        waited = now - memory.blocked_since
        limit = self.worker.settings.wait_for_earlier_seconds
        if limit is not None and waited >= limit:
            return None
        return f"message {arrival.message_id} waits for {blocking}"

    def entries_to_skip(self, group: Sequence[Arrival]) -> list[Entry]:
        """Return the entries for which *group* waited until the timeout, marked as passed."""
        if self.worker.settings.wait_for_earlier_seconds is None or self.worker.settings.lock == "message":
            return []
        known = self.expected_record()
        ids = {arrival.message_id for arrival in group}
        passed = {
            entry.message_id: replace(entry, is_passed=True)
            for arrival in group
            for entry in order.earlier_open_entries(arrival, known, ids)
        }
        return list(passed.values())[:_MOST_PASSED]

    def started_entry(self, arrival: Arrival, token: int) -> Entry:
        """Return the entry of a message that the application gets next."""
        known = self.record.entries.get(arrival.message_id)
        is_uncounted = known is not None and self._is_uncounted(known)
        if not is_uncounted:
            # Decided again each time: since a claim that failed, another worker may have had the message.
            self.memory(arrival.message_id).may_have_run = known is not None and known.state is State.WORKING
        entry = self._entry(arrival, State.WORKING, token, attempts=0 if is_uncounted else 1)
        self.uncount(entry)
        return entry

    def mark_delivered(self, entry: Entry) -> None:
        """Note that the application gets a message that is recorded as started."""
        self.memory(entry.message_id).uncounted = None

    def uncount(self, entry: Entry) -> None:
        """Note that an attempt does not count: it was not given to the application, or did not fail through it."""
        self.memory(entry.message_id).uncounted = (self.worker.name, entry.attempt)

    def _is_uncounted(self, entry: Entry) -> bool:
        """Return whether *entry* records an attempt of which this process knows that it does not count."""
        noted = self.memory(entry.message_id).uncounted
        return entry.state is State.WORKING and noted == (entry.worker, entry.attempt)

    def final_without_run(self, arrival: Arrival, token: int) -> Entry | None:
        """Return the final entry of a message that must not be tried (again), None if it must be tried."""
        entry = self.record.entries.get(arrival.message_id)
        if entry is not None and entry.state is State.WORKING:
            own = replace(entry, token=token)
            if self.memory(arrival.message_id).unrecorded == entry.token:
                return self.final(own, State.COMPLETED)
            # Every allowed attempt ended with the loss of its worker.
            if entry.attempt >= self.worker.settings.max_attempts and not self._is_uncounted(entry):
                text = f"{entry.attempt} workers received it, and all of them were lost."
                return self.final(own, State.FAULTED, "WorkersLost", text)
        if self.worker.settings.lock == "session" and self.worker.settings.late == "dead-letter":
            known = self.record.with_entries(*(entry for _, entry in self.finished))
            if order.is_late(arrival, known, self.worker.settings):
                text = "A later message of its session was finished before it arrived."
                return self.final(self._entry(arrival, State.PENDING, token), State.FAULTED, "OutOfOrder", text)
        return None

    def _now(self) -> str:
        return datetime.fromtimestamp(self.worker.wall(), UTC).isoformat()

    def release_changes(self) -> dict[str, Any]:
        """Return the changes that release a lease."""
        return {"is_held": False, "finished": self._now()}

    def next_token(self) -> int:
        """Return the fencing token of the next owner."""
        if self.record.lease is None:
            # The session's rows may have been deleted: only the time of day is above all its earlier tokens.
            return max(1, round(self.worker.wall() * 1_000_000))
        return self.record.lease.token + 1

    def new_lease(self) -> Lease:
        """Return the lease that this worker writes to claim the session."""
        former = self.record.lease
        own = Lease(
            worker=self.worker.name,
            site=self.worker.site,
            token=self.next_token(),
            beat=0,
            seconds=self.worker.settings.lease_seconds,
            is_held=True,
        )
        if former is None:
            return own
        return replace(own, arrivals=former.arrivals, through=former.through, recent=former.recent)

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
        """Return *entry* with a final state."""
        return replace(
            entry,
            state=state,
            reason=reason,
            description=description,
            worker=self.worker.name,
            site=self.worker.site,
            finished=self._now(),
        )
