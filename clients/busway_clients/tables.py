"""What is kept in a table of Azure Storage or Cosmos DB for Table; needs `busway-clients[tables]`."""

from datetime import timedelta

from busway_clients._sync.tables import TableStore
from busway_clients.errors import extra
from busway_clients.receivers.claims import LEASE, WINDOW, StoredClaims
from busway_clients.senders.roles import StoredRoles

with extra("tables"):
    from azure.data.tables import TableClient

__all__ = ["TableRoles", "TableStore", "TablesStore"]


class TablesStore(StoredClaims):
    """
    Remembers processed messages for *window*, in an existing table, for receivers anywhere.

    Call `purge` from time to time, since nothing expires in a table.
    """

    def __init__(self, table: TableClient, name: str, window: timedelta = WINDOW, *, lease: timedelta = LEASE) -> None:
        """Receivers with the same *name*, such as that of their queue, share what is remembered."""
        super().__init__(TableStore(table), name, window, lease)


class TableRoles(StoredRoles):
    """Roles in one entity of an existing table, which processes share."""

    def __init__(self, table: TableClient, name: str) -> None:
        """Store the roles that all senders with the same *name* share."""
        super().__init__(TableStore(table), name)
