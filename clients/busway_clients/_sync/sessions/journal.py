# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A journal in a store: the reads and writes of consumers, and the operations of an operator."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from busway_clients._sync.rows import RowStore
from busway_clients.errors import Conflict
from busway_clients.rows import Row, Write
from busway_clients.sessions.entries import Entry, entry_key
from busway_clients.sessions.leases import LEASE_KEY, MAX_FINAL, HeldLease, Lease, Record, record_of
from busway_clients.sessions.requests import SCHEMA_KEY, SCHEMA_PARTITION, given_up, opening, partition_of, reopened
from busway_clients.sessions.settings import Settings


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
        while write := opening(self._store.read(SCHEMA_PARTITION, [SCHEMA_KEY]), self._settings, self._store.name):
            with contextlib.suppress(Conflict):
                self._store.write(SCHEMA_PARTITION, [write])

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return the record of a session, or of one message that is locked by itself."""
        first = message_ids[0] if message_ids else ""
        return self.read(partition_of(self._settings, session_id, first), message_ids)

    def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Allow a faulted message to be processed again, after a person has fixed it and sent it again with its id.

        Raises JournalRefused if it is not faulted, and Conflict if another writes at the same moment.
        """
        partition, rows = self._read_message(session_id, message_id)
        self._store.write(partition, [reopened(rows, message_id, self._place(partition))])

    def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault an open message that will not arrive any more, so that later ones continue.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it arrives nevertheless it is
        dead-lettered (GivenUp). Raises JournalRefused if it is not open, or an earlier number is open, and Conflict if
        another writes at the same moment.
        """
        partition, rows = self._read_message(session_id, message_id)
        writes = given_up(rows, message_id, self._place(partition), self._settings, datetime.now(UTC))
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
        partition = partition_of(self._settings, session_id, message_id)
        return partition, self._store.read(partition, [LEASE_KEY, entry_key(message_id)])

    def _place(self, partition: str) -> str:
        return f"{self._store.name}, {partition}"
