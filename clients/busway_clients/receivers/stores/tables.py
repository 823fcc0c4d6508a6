"""A store in a table of Azure Storage or Cosmos DB for Table, for receivers anywhere; needs the extra `tables`."""

from datetime import timedelta

from busway_clients.errors import extra
from busway_clients.receivers.stores.store import LEASE, WINDOW, StoredClaims

with extra("tables"):
    from azure.data.tables import TableClient

from busway_clients._sync.tables import TableStore


class TablesStore(StoredClaims):
    """
    Remembers processed messages for *window*, in an existing table.

    Call `purge` from time to time, since nothing expires in a table.
    """

    def __init__(self, table: TableClient, name: str, window: timedelta = WINDOW, *, lease: timedelta = LEASE) -> None:
        """Receivers with the same *name*, such as that of their queue, share what is remembered."""
        super().__init__(TableStore(table), name, window, lease)
