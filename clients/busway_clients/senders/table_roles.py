"""Roles in an Azure table, shared by several processes; needs the extra `tables`."""

from busway_clients.errors import extra
from busway_clients.senders.roles import StoredRoles

with extra("tables"):
    from azure.data.tables import TableClient

from busway_clients._sync.tables import TableStore


class TableRoles(StoredRoles):
    """Roles in one entity of an existing table of Azure Storage or Cosmos DB."""

    def __init__(self, table: TableClient, name: str) -> None:
        """Store the roles that all senders with the same *name* share."""
        super().__init__(TableStore(table), name)
