"""The same as `busway_clients.sessions`, awaited."""

from busway_clients.sessions.aio.bookmarks import Bookmarks
from busway_clients.sessions.aio.consumer import JournaledConsumer
from busway_clients.sessions.aio.journal import Journal
from busway_clients.sessions.aio.sqlite import SqliteStore

__all__ = ["Bookmarks", "Journal", "JournaledConsumer", "SqliteStore"]
