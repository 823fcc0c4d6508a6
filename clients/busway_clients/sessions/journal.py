"""A journal in a store: the reads and writes of consumers, and the operations of an operator."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from busway_clients.sessions import requests, schema
from busway_clients.sessions.effects import Commit, Read, Register
from busway_clients.sessions.entries import entry_key
from busway_clients.sessions.errors import Conflict
from busway_clients.sessions.leases import LEASE_KEY, MAX_FINAL, Record, record_of
from busway_clients.sessions.rows import AsyncRowStore, Row, RowStore, Write
from busway_clients.sessions.settings import Settings
from busway_clients.steps import Call, Steps, run


class Journaling:
    """
    The logic of both journals.

    *max_final* is how many finished entries the row of a lease holds before they get rows of their own.
    """

    def __init__(self, store: RowStore | AsyncRowStore, settings: Settings, *, max_final: int = MAX_FINAL) -> None:
        self._store = store
        self._settings = settings
        self._max_final = max_final

    def open(self) -> Steps[None]:
        """Create the journal, or check that it has the same settings; raises JournalMismatch."""
        yield Call(self._store.open)
        while write := schema.opening(
            (yield from self._read(schema.PARTITION, [schema.KEY])), self._settings, self._store.name
        ):
            with contextlib.suppress(Conflict):
                yield from self._write(schema.PARTITION, [write])

    def read(self, read: Read) -> Steps[Record]:
        """Return the record of a partition; raises JournalMalformed."""
        rows = yield from self._read(read.partition, requests.keys_of(read))
        return record_of(rows, self._place(read.partition))

    def commit(self, commit: Commit, monotonic: Callable[[], float]) -> Steps[None]:
        """Write a lease with its entries; raises Conflict."""
        started = monotonic()
        lease, entries = requests.next_lease(commit, self._max_final)
        held = commit.held_lease
        versions = yield from self._write(held.partition, requests.commit_writes(commit, lease, entries))
        held.note_write(lease, versions[0], started)

    def register(self, register: Register) -> Steps[None]:
        """Write the entries of messages that wait for another worker; raises Conflict."""
        yield from self._write(register.partition, requests.register_writes(register))

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Steps[Record]:
        """Return the record of a session, or of one message that is locked by itself."""
        first = message_ids[0] if message_ids else ""
        return self.read(Read(requests.partition_of(self._settings, session_id, first), message_ids))

    def reopen(self, session_id: str | None, message_id: str) -> Steps[None]:
        """Allow a faulted message to be processed again."""
        partition, rows = yield from self._read_message(session_id, message_id)
        yield from self._write(partition, [requests.reopened(rows, message_id, self._place(partition))])

    def give_up(self, session_id: str | None, message_id: str) -> Steps[None]:
        """Fault an open message."""
        partition, rows = yield from self._read_message(session_id, message_id)
        writes = requests.given_up(rows, message_id, self._place(partition), self._settings, datetime.now(UTC))
        yield from self._write(partition, writes)

    def forget(self, before: datetime) -> Steps[int]:
        """Delete the rows of what was finished before a time, and return their number."""
        count: int = yield Call(lambda: self._store.forget(before))
        return count

    def _read_message(self, session_id: str | None, message_id: str) -> Steps[tuple[str, list[Row]]]:
        partition = requests.partition_of(self._settings, session_id, message_id)
        return partition, (yield from self._read(partition, [LEASE_KEY, entry_key(message_id)]))

    def _read(self, partition: str, keys: Sequence[str]) -> Steps[list[Row]]:
        rows: list[Row] = yield Call(lambda: self._store.read(partition, keys))
        return rows

    def _write(self, partition: str, writes: Sequence[Write]) -> Steps[list[str]]:
        versions: list[str] = yield Call(lambda: self._store.write(partition, writes))
        return versions

    def _place(self, partition: str) -> str:
        return f"{self._store.name}, {partition}"


class Journal:
    """A journal in a store, for an operator: read what it records of a message, and decide about single messages."""

    def __init__(self, store: RowStore, settings: Settings) -> None:
        self._journaling = Journaling(store, settings)

    def open(self) -> None:
        """Create the journal, or check that it has the same settings; raises JournalMismatch."""
        run(self._journaling.open())

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return the record of a session, or of one message that is locked by itself."""
        return run(self._journaling.record(session_id, message_ids))

    def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Allow a faulted message to be processed again, after a person has fixed it and sent it again with its id.

        Raises JournalRefused if it is not faulted, and Conflict if another writes at the same moment.
        """
        run(self._journaling.reopen(session_id, message_id))

    def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault an open message that will not arrive any more, so that later ones continue.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it arrives nevertheless it is
        dead-lettered (GivenUp). Raises JournalRefused if it is not open, or an earlier number is open, and Conflict if
        another writes at the same moment.
        """
        run(self._journaling.give_up(session_id, message_id))

    def forget(self, before: datetime) -> int:
        """
        Delete the rows of what was finished before a time, and return their number.

        A copy that arrives later is processed again: keep entries for longer than messages live, and than the clocks of
        workers may differ, since the tokens of a session without rows start again from the time of day.
        """
        return run(self._journaling.forget(before))
