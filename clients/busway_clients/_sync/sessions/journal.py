# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A journal in a store: the reads and writes of consumers, and the operations of an operator."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from busway_clients._sync.sessions.store import RowStore
from busway_clients.sessions import order
from busway_clients.sessions.entries import Entry, State, entry_key, message_partition, session_partition
from busway_clients.sessions.errors import Conflict, JournalMismatch, JournalRefused
from busway_clients.sessions.leases import LEASE_KEY, MAX_FINAL, SCHEMA, HeldLease, Lease, Record, record_of
from busway_clients.sessions.rows import Row, Write
from busway_clients.sessions.settings import APPLICATION, Settings

SCHEMA_PARTITION = "journal"
SCHEMA_KEY = "schema"
"""The row that identifies a journal: its schema, its application and its settings."""


class Journal:
    """
    A journal in a store; an operator reads what it records of a message, and decides about single messages.

    *max_final* is how many finished entries the row of a lease holds before they get rows of their own.
    """

    def __init__(self, store: RowStore, settings: Settings, *, max_final: int = MAX_FINAL) -> None:
        self._store = store
        self._settings = settings
        self._max_final = max_final

    def open(self) -> None:
        """Create the journal, or check that it has the same settings; raises JournalMismatch."""
        self._store.open()
        while write := _opening(self._store.read(SCHEMA_PARTITION, [SCHEMA_KEY]), self._settings, self._store.name):
            with contextlib.suppress(Conflict):
                self._store.write(SCHEMA_PARTITION, [write])

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return the record of a session, or of one message that is locked by itself."""
        first = message_ids[0] if message_ids else ""
        return self.read(_partition_of(self._settings, session_id, first), message_ids)

    def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Allow a faulted message to be processed again, after a person has fixed it and sent it again with its id.

        Raises JournalRefused if it is not faulted, and Conflict if another writes at the same moment.
        """
        partition, rows = self._read_message(session_id, message_id)
        self._store.write(partition, [_reopened(rows, message_id, self._place(partition))])

    def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault an open message that will not arrive any more, so that later ones continue.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it arrives nevertheless it is
        dead-lettered (GivenUp). Raises JournalRefused if it is not open, or an earlier number is open, and Conflict if
        another writes at the same moment.
        """
        partition, rows = self._read_message(session_id, message_id)
        writes = _given_up(rows, message_id, self._place(partition), self._settings, datetime.now(UTC))
        self._store.write(partition, writes)

    def forget(self, before: datetime) -> int:
        """
        Delete the rows of what was finished before a time, and return their number.

        A copy that arrives later is processed again: keep entries for longer than messages live, and than the clocks of
        workers may differ, since the tokens of a session without rows start again from the time of day.
        """
        return self._store.forget(before)

    def read(self, partition: str, message_ids: Sequence[str]) -> Record:
        """Return the record of a partition; raises JournalMalformed."""
        rows = self._store.read(partition, [LEASE_KEY, *map(entry_key, message_ids)])
        return record_of(rows, self._place(partition))

    def commit(
        self,
        held: HeldLease,
        changes: Mapping[str, Any],
        entries: Sequence[Entry],
        *,
        is_renewal: bool = False,
        empties: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Write the lease of *held* with *changes*, and *entries*, together; raises Conflict.

        A stale lease raises Conflict without being written, except by a renewal. A commit that *empties* gives all
        recent entries of the lease rows of their own.
        """
        if held.is_stale and not is_renewal:
            raise Conflict(f"{held.partition}: messages were registered since it was read")
        started = monotonic()
        next_lease = replace(held.lease, beat=held.lease.beat + 1, **changes).noting(entries)
        lease, moved = next_lease.split(self._max_final, keeps_none=empties)
        rows = [Write(entry.key, entry.properties()) for entry in moved]
        versions = self._store.write(held.partition, [Write(LEASE_KEY, lease.properties(), held.version), *rows])
        held.lease, held.version, held.renewed = lease, versions[0], started

    def register(self, partition: str, lease: Lease, version: str | None, entries: Sequence[Entry]) -> None:
        """Write *entries* that wait for another worker, and its *lease*, which has *version*; raises Conflict."""
        rows = [Write(entry.key, entry.properties(), None) for entry in entries]
        self._store.write(partition, [Write(LEASE_KEY, lease.properties(), version), *rows])

    def _read_message(self, session_id: str | None, message_id: str) -> tuple[str, Sequence[Row]]:
        partition = _partition_of(self._settings, session_id, message_id)
        return partition, self._store.read(partition, [LEASE_KEY, entry_key(message_id)])

    def _place(self, partition: str) -> str:
        return f"{self._store.name}, {partition}"


def _partition_of(settings: Settings, session_id: str | None, message_id: str) -> str:
    """Return the partition of a session, or of a message that is locked individually."""
    if settings.lock == "message":
        return message_partition(session_id, message_id)
    if session_id is None:
        raise JournalRefused("session_id is None, expected one, as lock is 'session'")
    return session_partition(session_id)


def _reopened(rows: Sequence[Row], message_id: str, place: str) -> Write:
    """Return the row that reopens a faulted message; raises JournalRefused if it is not faulted."""
    record = record_of(rows, place)
    entry = _entry(record, message_id, place, [State.FAULTED])
    # One recorded attempt keeps it from being treated as late. It loses its places: it is sent again after other
    # messages, which must not wait for it.
    again = replace(entry, state=State.PENDING, attempt=1, lines={}, reason="", description="", finished=None)
    if record.lease is not None and message_id in record.lease.recent:
        return Write(LEASE_KEY, record.lease.noting([again]).properties(), record.version)
    return Write(again.key, again.properties(), _version(rows, again))


def _given_up(rows: Sequence[Row], message_id: str, place: str, settings: Settings, now: datetime) -> list[Write]:
    """Return the rows that fault an open message; raises JournalRefused if it is not open."""
    record = record_of(rows, place)
    entry = _entry(record, message_id, place, [State.PENDING, State.WORKING])
    lease = record.lease
    reached = order.through(lease, settings)
    if entry.number is not None and entry.number > reached + 1:
        raise JournalRefused(f"{place}: message {message_id} has number {entry.number}, expected {reached + 1} first")
    text = "An operator gave it up while others waited for it."
    finished = now.astimezone(UTC).isoformat()
    final = replace(entry, state=State.FAULTED, reason="GivenUp", description=text, finished=finished)
    is_recent = lease is not None and message_id in lease.recent
    writes = [] if is_recent else [Write(final.key, final.properties(), _version(rows, final))]
    if lease is not None:
        # Also write the lease's row, so that its owner reads again.
        changed = replace(lease, finished=finished, **order.progress(lease, [final]))
        changed = changed.noting([final]) if is_recent else changed
        writes.append(Write(LEASE_KEY, changed.properties(), record.version))
    return writes


def _entry(record: Record, message_id: str, place: str, expected: Sequence[State]) -> Entry:
    entry = record.entries.get(message_id)
    if entry is None or entry.state not in expected:
        state = "not on record" if entry is None else entry.state.value
        wanted = " or ".join(each.value for each in expected)
        raise JournalRefused(f"{place}: message {message_id} is {state}, expected {wanted}")
    return entry


def _version(rows: Sequence[Row], entry: Entry) -> str:
    return next(row.version for row in rows if row.key == entry.key)


def _opening(rows: Sequence[Row], settings: Settings, name: str) -> Write | None:
    """
    Return what must be written to open a journal, None if it exists and is complete.

    Raises JournalMismatch if the journal differs from *settings*.
    """
    found = next((row for row in rows if row.key == SCHEMA_KEY), None)
    own = settings.agreed()
    if found is None:
        return Write(SCHEMA_KEY, {"Open": 0, "Schema": SCHEMA, **own}, expected=None)
    there = found.properties
    if there.get("Schema") != SCHEMA:
        raise JournalMismatch(
            f"{name}: the journal has schema {there.get('Schema')}, expected {SCHEMA}; finish it with the version that"
            " created it, or use another table"
        )
    # An operator may omit the application to inspect a journal; two applications must not share one.
    unsaid = [APPLICATION] if "" in (own[APPLICATION], there.get(APPLICATION)) else []
    problems = [
        f"{key} is {there.get(key)!r} there and {value!r} here"
        for key, value in own.items()
        if key not in unsaid and there.get(key) != value
    ]
    if problems:
        raise JournalMismatch(f"{name}: {'; '.join(problems)}; expected the same at all sites of a journal")
    if unsaid and own[APPLICATION]:
        return Write(SCHEMA_KEY, {**there, APPLICATION: own[APPLICATION]}, expected=found.version)
    return None
