# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""What is kept in a store: the journal of consumers, with the operations of an operator, and marks to resume from."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from busway_clients._sync.rows import RowStore
from busway_clients.errors import Conflict, JournalMismatch, JournalRefused
from busway_clients.rows import Row, Write
from busway_clients.sessions import order
from busway_clients.sessions.entries import Entry, State, entry_key, message_partition, session_partition
from busway_clients.sessions.leases import LEASE_KEY, MAX_FINAL, SCHEMA, HeldLease, Lease, Record, record_of
from busway_clients.sessions.marks import MARK_KEY, Mark, mark_of, mark_partition, mark_row
from busway_clients.sessions.settings import APPLICATION, Settings

_SCHEMA_PARTITION = "journal"
_SCHEMA_KEY = "schema"
"""The row that identifies a journal: its schema, its application and its settings."""


class Journal:
    """
    A journal in a store; an operator reads what it records of a message, and decides about single messages.

    *max_final* is how many finished entries the row of a lease holds before they get rows of their own.
    """

    def __init__(self, store: RowStore, settings: Settings, *, max_final: int = MAX_FINAL) -> None:
        self._store = store
        self.settings = settings
        self._max_final = max_final

    def open(self) -> None:
        """Create the journal, or check that it has the same settings; raises JournalMismatch."""
        self._store.open()
        while write := self._opening(self._store.read(_SCHEMA_PARTITION, [_SCHEMA_KEY])):
            with contextlib.suppress(Conflict):
                self._store.write(_SCHEMA_PARTITION, [write])

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return the record of a session, or of one message that is locked by itself."""
        first = message_ids[0] if message_ids else ""
        return self.read(self._partition(session_id, first), message_ids)

    def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Allow a faulted message to be processed again, after a person has fixed it and sent it again with its id.

        Raises JournalRefused if it is not faulted, and Conflict if another writes at the same moment.
        """
        partition = self._partition(session_id, message_id)
        record, version = self._read_message(partition, message_id, {State.FAULTED})
        # One recorded attempt keeps it from being treated as late. It loses its places: it is sent again after other
        # messages, which must not wait for it.
        final = record.entries[message_id]
        again = replace(final, state=State.PENDING, attempt=1, lines={}, reason="", description="", finished=None)
        write = Write(again.key, again.properties(), version)
        if version is None and record.lease is not None:
            write = Write(LEASE_KEY, record.lease.noting([again]).properties(), record.version)
        self._store.write(partition, [write])

    def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault an open message that will not arrive any more, so that later ones continue.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it arrives nevertheless it is
        dead-lettered (GivenUp). Raises JournalRefused if it is not open, or an earlier number is open, and Conflict if
        another writes at the same moment.
        """
        partition = self._partition(session_id, message_id)
        record, version = self._read_message(partition, message_id, {State.PENDING, State.WORKING})
        entry, lease = record.entries[message_id], record.lease
        following = order.through(lease, self.settings) + 1
        if entry.number is not None and entry.number > following:
            text = f"message {message_id} has number {entry.number}, expected {following} first"
            raise JournalRefused(f"{self._place(partition)}: {text}")
        finished = datetime.now(UTC).isoformat()
        text = "An operator gave it up while others waited for it."
        final = replace(entry, state=State.FAULTED, reason="GivenUp", description=text, finished=finished)
        writes = [] if version is None else [Write(final.key, final.properties(), version)]
        if lease is not None:
            # Also write the lease's row, so that its owner reads again.
            changed = replace(lease, finished=finished, **order.progress(lease, [final]))
            changed = changed.noting([final] if version is None else [])
            writes.append(Write(LEASE_KEY, changed.properties(), record.version))
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Write the lease of *held* with *changes*, and *entries*, together; raises Conflict.

        A stale lease raises Conflict without being written, except by a renewal.
        """
        if held.is_stale and not is_renewal:
            raise Conflict(f"{held.partition}: messages were registered since it was read")
        started = monotonic()
        next_lease = replace(held.lease, beat=held.lease.beat + 1, **changes).noting(entries)
        # Nobody may write the row of a released lease again, so it keeps no entries. With lock="message" no other
        # worker registers messages, so the lease's row is the only one.
        keeps_none = self.settings.lock == "session" and not next_lease.is_held
        lease, moved = next_lease.split(self._max_final, keeps_none=keeps_none)
        rows = [Write(entry.key, entry.properties()) for entry in moved]
        versions = self._store.write(held.partition, [Write(LEASE_KEY, lease.properties(), held.version), *rows])
        held.lease, held.version, held.renewed = lease, versions[0], started

    def register(self, partition: str, lease: Lease, version: str | None, entries: Sequence[Entry]) -> None:
        """Write *entries* that wait for another worker, and its *lease*, which has *version*; raises Conflict."""
        rows = [Write(entry.key, entry.properties(), None) for entry in entries]
        self._store.write(partition, [Write(LEASE_KEY, lease.properties(), version), *rows])

    def _read_message(self, partition: str, message_id: str, expected: set[State]) -> tuple[Record, str | None]:
        """Return the record of a message in an *expected* state, and the version of its row, None in the lease's."""
        rows = self._store.read(partition, [LEASE_KEY, entry_key(message_id)])
        record = record_of(rows, self._place(partition))
        entry = record.entries.get(message_id)
        if entry is None or entry.state not in expected:
            state = "not on record" if entry is None else entry.state.value
            wanted = " or ".join(each.value for each in State if each in expected)
            raise JournalRefused(f"{self._place(partition)}: message {message_id} is {state}, expected {wanted}")
        if record.lease is not None and message_id in record.lease.recent:
            return record, None
        return record, next(row.version for row in rows if row.key == entry.key)

    def _opening(self, rows: Sequence[Row]) -> Write | None:
        """Return what opens the journal, None if it exists and is complete; raises JournalMismatch if it differs."""
        found = next((row for row in rows if row.key == _SCHEMA_KEY), None)
        own = self.settings.agreed()
        if found is None:
            return Write(_SCHEMA_KEY, {"Open": 0, "Schema": SCHEMA, **own}, expected=None)
        there = found.properties
        if there.get("Schema") != SCHEMA:
            raise JournalMismatch(
                f"{self._store.name}: the journal has schema {there.get('Schema')}, expected {SCHEMA}; finish it with"
                " the version that created it, or use another table"
            )
        # An operator may omit the application to inspect a journal; two applications must not share one.
        unsaid = [APPLICATION] if "" in (own[APPLICATION], there.get(APPLICATION)) else []
        problems = [
            f"{key} is {there.get(key)!r} there and {value!r} here"
            for key, value in own.items()
            if key not in unsaid and there.get(key) != value
        ]
        if problems:
            raise JournalMismatch(
                f"{self._store.name}: {'; '.join(problems)}; expected the same at all sites of a journal"
            )
        if unsaid and own[APPLICATION]:
            return Write(_SCHEMA_KEY, {**there, APPLICATION: own[APPLICATION]}, expected=found.version)
        return None

    def _partition(self, session_id: str | None, message_id: str) -> str:
        if self.settings.lock == "message":
            return message_partition(session_id, message_id)
        if session_id is None:
            raise JournalRefused("session_id is None, expected one, as lock is 'session'")
        return session_partition(session_id)

    def _place(self, partition: str) -> str:
        return f"{self._store.name}, {partition}"


class Bookmarks:
    """The marks of a *consumer* (a name that its instances share), in an open store."""

    def __init__(self, store: RowStore, consumer: str) -> None:
        self._store = store
        self._consumer = consumer

    def load(self, scope: str) -> Mark:
        """Return the mark of a session, or of a hub's partition; an empty one if it has none yet."""
        partition = mark_partition(self._consumer, scope)
        rows = self._store.read(partition, [MARK_KEY], with_open=False)
        return mark_of(rows, f"{self._store.name}, {partition}")

    def save(self, scope: str, mark: Mark) -> Mark:
        """Store *mark* and return the stored version; raises Conflict if another instance has changed it meanwhile."""
        [version] = self._store.write(mark_partition(self._consumer, scope), [mark_row(mark)])
        return Mark(mark.positions, version)
