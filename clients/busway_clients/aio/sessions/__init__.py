"""The names of `busway_clients.sessions` for asyncio; `TableStore` is in `busway_clients.aio.tables`."""

from busway_clients.aio.rows import SqliteStore as SqliteStore
from busway_clients.aio.sessions.consumer import JournaledConsumer as JournaledConsumer
from busway_clients.aio.sessions.journal import Bookmarks as Bookmarks
from busway_clients.aio.sessions.journal import Journal as Journal
