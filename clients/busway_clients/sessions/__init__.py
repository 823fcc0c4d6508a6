"""
Messages and sessions processed once across regions, and the marks from which a consumer resumes elsewhere.

`TableStore` is in `busway_clients.sessions.tables` (and `.aio.tables`), as it needs `busway-clients[tables]`.
"""

from busway_clients._sync.rows import SqliteStore
from busway_clients._sync.sessions.bookmarks import Bookmarks
from busway_clients._sync.sessions.consumer import JournaledConsumer
from busway_clients._sync.sessions.journal import Journal
from busway_clients.errors import Conflict
from busway_clients.sessions.delivery import Delivery
from busway_clients.sessions.entries import Entry, State
from busway_clients.sessions.errors import (
    JournalError,
    JournalMalformed,
    JournalMismatch,
    JournalRefused,
    LeaseLost,
    Unprocessable,
)
from busway_clients.sessions.leases import Lease, Record
from busway_clients.sessions.marks import Mark, Seen, joined, seen_event, seen_message
from busway_clients.sessions.settings import Settings, Source
from busway_clients.sessions.translation import Place, Translation

__all__ = [
    "Bookmarks",
    "Conflict",
    "Delivery",
    "Entry",
    "Journal",
    "JournalError",
    "JournalMalformed",
    "JournalMismatch",
    "JournalRefused",
    "JournaledConsumer",
    "Lease",
    "LeaseLost",
    "Mark",
    "Place",
    "Record",
    "Seen",
    "Settings",
    "Source",
    "SqliteStore",
    "State",
    "Translation",
    "Unprocessable",
    "joined",
    "seen_event",
    "seen_message",
]
