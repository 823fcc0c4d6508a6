"""The names of `busway_clients.sessions` for asyncio; `TableStore` is in `busway_clients.aio.sessions.tables`."""

from busway_clients.aio.rows import SqliteStore
from busway_clients.aio.sessions.bookmarks import Bookmarks
from busway_clients.aio.sessions.consumer import JournaledConsumer
from busway_clients.aio.sessions.journal import Journal

__all__ = ["Bookmarks", "Journal", "JournaledConsumer", "SqliteStore"]
