"""Roles in an Azure table, shared by several processes; needs the extra `tables`."""

from collections.abc import Sequence

from busway_clients.senders.roles import Roles
from busway_clients.table import Table, TableClient, TableEntity


class TableRoles:
    """Roles in one entity of an existing table of Azure Storage or Cosmos DB; its ETag is the lock."""

    is_local = False

    def __init__(self, table: TableClient, name: str) -> None:
        """Store the roles that all senders with the same *name* share."""
        self._table = Table(table, f", roles {name}")
        self._keys = {"PartitionKey": "roles", "RowKey": name}

    def read(self) -> Roles | None:
        """Return the roles."""
        return _roles(self._entity())

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """Set the order if the version is still *expected*, and return the current roles."""
        found = self._entity()
        roles = _roles(found)
        if roles is not None and roles.version != expected:
            return roles
        wanted = Roles(tuple(order), expected + 1)
        entity = {**self._keys, "order": "\n".join(order), "version": wanted.version}
        if self._table.write(entity, found):
            return wanted
        # Another process was first, or the table is missing, which the read reports.
        return self.read() or wanted

    def _entity(self) -> TableEntity | None:
        return self._table.read(self._keys, {"order", "version"})


def _roles(entity: TableEntity | None) -> Roles | None:
    return None if entity is None else Roles(tuple(entity["order"].split("\n")), entity["version"])
