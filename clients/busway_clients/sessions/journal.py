"""A journal in a store: what consumers read and write, and what a person may ask or do."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

from busway_clients.sessions import requests, schema
from busway_clients.sessions.effects import Commit, Read, Register
from busway_clients.sessions.entries import entry_key
from busway_clients.sessions.errors import Conflict
from busway_clients.sessions.leases import LEASE_KEY, Record, record_of
from busway_clients.sessions.rows import RowStore
from busway_clients.sessions.settings import Settings


class Journal:
    """A journal in a store: what a consumer reads and writes, and what a person may ask or do."""

    def __init__(self, store: RowStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings

    def open(self) -> None:
        """Begin the journal, or check that it is one of these *settings*; raises JournalMismatch."""
        self.store.open()
        while write := schema.opening(self.store.read(schema.PARTITION, [schema.KEY]), self.settings, self.store.name):
            with contextlib.suppress(Conflict):
                self.store.write(schema.PARTITION, [write])

    def read(self, read: Read) -> Record:
        """Return what is on record; raises JournalMalformed."""
        return record_of(
            self.store.read(read.partition, requests.keys_of(read)), f"{self.store.name}, {read.partition}"
        )

    def commit(self, commit: Commit, started: float) -> None:
        """Write what *commit* says; raises Conflict."""
        lease, entries = requests.next_lease(commit)
        versions = self.store.write(commit.hold.partition, requests.commit_writes(commit, lease, entries))
        commit.hold.written(lease, versions[0], started)

    def register(self, register: Register) -> None:
        """Write what *register* says; raises Conflict."""
        self.store.write(register.partition, requests.register_writes(register))

    def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return what is on record of a session, or of one message that is locked by itself."""
        first = message_ids[0] if message_ids else ""
        return self.read(Read(requests.partition_of(self.settings, session_id, first), message_ids))

    def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Let a faulted message be processed again, once a person has mended it and sent it again under its id.

        Raises JournalRefused where it is not faulted, and Conflict where someone writes at the same moment.
        """
        partition = requests.partition_of(self.settings, session_id, message_id)
        rows = self.store.read(partition, [LEASE_KEY, entry_key(message_id)])
        self.store.write(partition, [requests.reopened(rows, message_id, f"{self.store.name}, {partition}")])

    def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault a message that is open on record and will not come any more, so that later ones go on.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it comes after all it is
        dead-lettered (GivenUp). Raises JournalRefused where it is not open, or an earlier number is, and Conflict
        where someone writes at the same moment.
        """
        partition = requests.partition_of(self.settings, session_id, message_id)
        rows = self.store.read(partition, [LEASE_KEY, entry_key(message_id)])
        place = f"{self.store.name}, {partition}"
        self.store.write(partition, requests.given_up(rows, message_id, place, self.settings, datetime.now(UTC)))

    def forget(self, before: datetime) -> int:
        """
        Delete what was finished before then; return how many rows there were.

        A copy that comes later than that is processed again, so keep entries for longer than messages live, and than
        the clocks of workers may be apart: the tokens of a session that was forgotten begin from the time of day.
        """
        return self.store.forget(before)
