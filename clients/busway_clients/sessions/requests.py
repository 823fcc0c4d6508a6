"""What effects on the store are as rows, for the shells."""

from collections.abc import Sequence

from busway_clients.sessions.effects import Commit, Read, Register
from busway_clients.sessions.entries import (
    LEASE_KEY,
    Lease,
    State,
    entry_key,
    message_partition,
    record_of,
    session_partition,
)
from busway_clients.sessions.errors import Conflict, JournalRefused
from busway_clients.sessions.rows import Row, Write
from busway_clients.sessions.settings import Settings


def keys_of(read: Read) -> list[str]:
    """Return the keys to read."""
    return [LEASE_KEY, *map(entry_key, read.message_ids)]


def next_lease(commit: Commit) -> Lease:
    """Return the lease that *commit* writes; raises Conflict for a hold that is stale."""
    if commit.hold.is_stale and not commit.is_beat:
        raise Conflict(f"{commit.hold.partition}: messages were registered since it was read")
    return commit.hold.lease.next_beat(**commit.changes)


def commit_writes(commit: Commit, lease: Lease) -> list[Write]:
    """Return the rows of *commit*, the lease first; what it holds against the row is its version."""
    entries = [Write(entry.key, entry.properties()) for entry in commit.entries]
    return [Write(LEASE_KEY, lease.properties(), commit.hold.version), *entries]


def register_writes(register: Register) -> list[Write]:
    """Return the rows of *register*; entries must not be there yet."""
    entries = [Write(entry.key, entry.properties(), None) for entry in register.entries]
    return [Write(LEASE_KEY, register.lease.properties(), register.version), *entries]


def partition_of(settings: Settings, session_id: str | None, message_id: str) -> str:
    """Return the partition of a session, or of a message that is locked by itself."""
    if settings.lock == "message":
        return message_partition(session_id, message_id)
    if session_id is None:
        raise JournalRefused("session_id is None, expected one, as lock is 'session'")
    return session_partition(session_id)


def reopened(rows: Sequence[Row], message_id: str, place: str) -> Write:
    """Return the row of a faulted message that may be processed again; raises JournalRefused where it is another."""
    entry = record_of(rows, place).entries.get(message_id)
    if entry is None or entry.state is not State.FAULTED:
        state = "not on record" if entry is None else entry.state.value
        raise JournalRefused(f"{place}: message {message_id} is {state}, expected faulted")
    row = next(row for row in rows if row.key == entry.key)
    properties = {name: value for name, value in row.properties.items() if name != "Finished"}
    again: dict[str, str | int] = {"State": State.PENDING.value, "Open": 1, "Reason": "", "Description": ""}
    # One attempt on record keeps it from being taken for a message that comes too late.
    return Write(row.key, {**properties, **again, "Attempt": 1}, row.version)
