"""The lease on a session, its row, and the record of a session."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from busway_clients.errors import JournalMalformed
from busway_clients.rows import Properties, Row
from busway_clients.sessions.entries import Entry, Fields, entry_of

SCHEMA = 3
LEASE_KEY = "lease"

MAX_FINAL = 20
"""How many final entries the row of a lease holds before they get rows of their own."""

_MOST = 50
"""They share a transaction of 100 rows with the lease and at most 40 entries that a worker writes together."""
_MOST_CHARACTERS = 30_000
"""A property of a table holds 32,768 characters (of 16 bits)."""


@dataclass(frozen=True)
class Lease:
    """
    The right of one worker to process a session.

    *token* grows by one with each owner; the first is the time of day in microseconds. *beat* grows with each write of
    the owner, which shows others that it is alive. *arrivals* grows when another worker registers messages.
    *through*: how far the application's numbers are finished. *recent*: entries by message id, which
    take precedence over the messages' own rows. With them a message costs the write of one row; a transaction is needed
    only when there are too many.
    """

    worker: str
    site: str
    token: int
    beat: int
    seconds: float
    is_held: bool
    arrivals: int = 0
    through: int | None = None
    finished: str | None = None
    recent: Mapping[str, Entry] = field(default_factory=dict)

    def properties(self) -> Properties:
        """Return the lease as the properties of a row."""
        written: dict[str, str | int] = {
            "Open": 0,
            "Worker": self.worker,
            "Site": self.site,
            "Token": str(self.token),
            "Beat": self.beat,
            "Milliseconds": round(self.seconds * 1000),
            "Held": 1 if self.is_held else 0,
            "Arrivals": self.arrivals,
            "Recent": self._recent_text,
            "Done": "{}",  # a worker of an earlier version reads it
        }
        if self.through is not None:
            written["Through"] = str(self.through)
        elif self.finished is not None and not self.is_held and all(entry.state.is_final for entry in self._entries()):
            # Without numbers, the row can be deleted together with the session's messages.
            written["Finished"] = self.finished
        return written

    def noting(self, entries: Iterable[Entry]) -> "Lease":
        """Return the lease with *entries* added to the recent ones."""
        return replace(self, recent={**self.recent, **{entry.message_id: entry for entry in entries}})

    def split(self, max_final: int, *, keeps_none: bool) -> tuple["Lease", list[Entry]]:
        """
        Return the lease with the recent entries that stay in its row, and the entries that get rows of their own.

        Fewer than *max_final* final entries stay, and no entries at all if *keeps_none*.
        """
        if keeps_none:
            return replace(self, recent={}), self._entries()
        final = [entry for entry in self._entries() if entry.state.is_final]
        if len(final) < max_final and self.fits():
            return self, []
        # Final entries do not change, so their rows are written only once.
        kept = replace(self, recent={name: entry for name, entry in self.recent.items() if not entry.state.is_final})
        return (kept, final) if kept.fits() else self.split(max_final, keeps_none=True)

    def fits(self) -> bool:
        """Whether the recent entries fit into the row."""
        return len(self.recent) <= _MOST and len(self._recent_text) <= _MOST_CHARACTERS

    def _entries(self) -> list[Entry]:
        return list(self.recent.values())

    @cached_property
    def _recent_text(self) -> str:
        """Return the recent entries as JSON, without default values, since every write contains all of them."""
        implied = _implied(self.worker, self.site, self.token)
        said = {
            entry.message_id: {
                name: value for name, value in entry.properties().items() if implied.get(name) != value and name != "Id"
            }
            for entry in self._entries()
        }
        return json.dumps(said, separators=(",", ":"))


@dataclass
class HeldLease:
    """
    A lease of this worker; the work and the renewal write through it, one write at a time.

    *renewed* is the local monotonic time just before the last write that succeeded was sent.
    """

    partition: str
    lease: Lease
    version: str | None
    renewed: float = 0.0
    is_stale: bool = False
    is_lost: bool = False

    def is_fresh(self, now: float) -> bool:
        """Whether no other worker can have taken over yet."""
        return self.lease.is_held and not self.is_lost and now < self.renewed + self.lease.seconds

    def adopt(self, record: "Record", *, is_stale: bool) -> bool:
        """Go on with the lease as it was read, and return True; False if this worker has lost it."""
        lease = record.lease
        if lease is None or (lease.worker, lease.token) != (self.lease.worker, self.lease.token):
            return False
        self.lease, self.version, self.is_stale = lease, record.version, is_stale
        return True

    def must_renew(self, now: float, seconds: float) -> bool:
        """Whether the last write is so old that the lease should be renewed."""
        return self.lease.is_held and now >= self.renewed + seconds


@dataclass(frozen=True)
class Record:
    """The journal's data about a session: its lease, its open entries, and the requested entries."""

    lease: Lease | None
    version: str | None
    entries: Mapping[str, Entry]

    def with_entries(self, *entries: Entry) -> "Record":
        """Return the record as it is after *entries* are written."""
        return replace(self, entries={**self.entries, **{entry.message_id: entry for entry in entries}})


def record_of(rows: Sequence[Row], place: str) -> Record:
    """Parse the rows of a partition; raises JournalMalformed."""
    lease: Lease | None = None
    version: str | None = None
    entries: dict[str, Entry] = {}
    for row in rows:
        where = f"{place}, row {row.key}"
        if row.key == LEASE_KEY:
            lease, version = _lease(row.properties, where), row.version
        else:
            entry = entry_of(row.properties, where)
            if entry.key != row.key:
                raise JournalMalformed(f"{where}: has the entry of row {entry.key}, expected its own")
            entries[entry.message_id] = entry
    return Record(lease, version, {**entries, **(lease.recent if lease else {})})


def _lease(properties: Properties, where: str) -> Lease:
    read = Fields(properties, where)
    lease = Lease(
        worker=read.text("Worker"),
        site=read.text("Site"),
        token=read.count("Token"),
        beat=read.integer("Beat"),
        seconds=read.integer("Milliseconds") / 1000,
        is_held=read.integer("Held") == 1,
        arrivals=read.integer("Arrivals"),
        through=read.big("Through"),
    )
    implied = _implied(lease.worker, lease.site, lease.token)
    return lease.noting(
        entry_of({**implied, **said, "Id": name}, f"{where}: Recent, message {name}")
        for name, said in read.objects("Recent").items()
    )


def _implied(worker: str, site: str, token: int) -> dict[str, str | int]:
    """Return the default values of an entry in a lease's row."""
    own: dict[str, str | int] = {"Worker": worker, "Site": site, "Token": str(token), "Origin": site}
    return {**own, "Open": 1, "Attempt": 0, "Reason": "", "Description": ""}
