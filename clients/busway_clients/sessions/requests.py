"""What a journal writes for an operator, and when it is opened."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from busway_clients.errors import JournalMismatch, JournalRefused
from busway_clients.rows import Row, Write
from busway_clients.sessions import order
from busway_clients.sessions.entries import Entry, State, message_partition, session_partition
from busway_clients.sessions.leases import LEASE_KEY, SCHEMA, Record, record_of
from busway_clients.sessions.settings import APPLICATION, Settings

SCHEMA_PARTITION = "journal"
SCHEMA_KEY = "schema"
"""The row that identifies a journal: its schema, its application and its settings."""


def partition_of(settings: Settings, session_id: str | None, message_id: str) -> str:
    """Return the partition of a session, or of a message that is locked individually."""
    if settings.lock == "message":
        return message_partition(session_id, message_id)
    if session_id is None:
        raise JournalRefused("session_id is None, expected one, as lock is 'session'")
    return session_partition(session_id)


def reopened(rows: Sequence[Row], message_id: str, place: str) -> Write:
    """Return the row that reopens a faulted message; raises JournalRefused if it is not faulted."""
    record = record_of(rows, place)
    entry = _entry(record, message_id, place, [State.FAULTED])
    # One recorded attempt keeps it from being treated as late. It loses its places: it is sent again after other
    # messages, which must not wait for it.
    again = replace(entry, state=State.PENDING, attempt=1, lines={}, reason="", description="", finished=None)
    if record.lease is not None and message_id in record.lease.recent:
        return Write(LEASE_KEY, record.lease.noting([again]).properties(), record.version)
    return Write(again.key, again.properties(), _version(rows, again))


def given_up(rows: Sequence[Row], message_id: str, place: str, settings: Settings, now: datetime) -> list[Write]:
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


def opening(rows: Sequence[Row], settings: Settings, name: str) -> Write | None:
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
