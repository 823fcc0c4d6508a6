"""The marks of consumers, in the same stores as journals."""

from busway_clients.aio.rows import RowStore
from busway_clients.sessions.marks import MARK_KEY, Mark, mark_of, mark_partition, mark_row


class Bookmarks:
    """The marks of a *consumer* (a name that its instances share), in an open store."""

    def __init__(self, store: RowStore, consumer: str) -> None:
        self._store = store
        self._consumer = consumer

    async def load(self, scope: str) -> Mark:
        """Return the mark of a session, or of a hub's partition; an empty one if it has none yet."""
        partition = mark_partition(self._consumer, scope)
        rows = await self._store.read(partition, [MARK_KEY], with_open=False)
        return mark_of(rows, f"{self._store.name}, {partition}")

    async def save(self, scope: str, mark: Mark) -> Mark:
        """Store *mark* and return the stored version; raises Conflict if another instance has changed it meanwhile."""
        [version] = await self._store.write(mark_partition(self._consumer, scope), [mark_row(mark)])
        return Mark(mark.positions, version)
