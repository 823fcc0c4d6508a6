# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The names of `busway_clients.sessions` for asyncio; `TableStore` is in `busway_clients._sync.tables`."""

from busway_clients._sync.rows import SqliteStore as SqliteStore
from busway_clients._sync.sessions.consumer import JournaledConsumer as JournaledConsumer
from busway_clients._sync.sessions.journal import Bookmarks as Bookmarks
from busway_clients._sync.sessions.journal import Journal as Journal
