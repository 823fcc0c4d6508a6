"""Roles in an Azure table, shared by several processes; needs the extra `tables`."""

from collections.abc import Sequence

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from busway_clients.errors import StoreUnavailable
from busway_clients.extras import extra
from busway_clients.senders.roles import Roles

with extra("tables"):
    from azure.data.tables import TableClient, UpdateMode


_PARTITION = "roles"


class TableRoles:
    """Roles in one entity of an existing table of Azure Storage or Cosmos DB; its ETag is the lock."""

    is_local = False

    def __init__(self, table: TableClient, name: str) -> None:
        """Store the roles that all senders with the same *name* share."""
        self._table = table
        self._name = name
        self._where = f"table {table.table_name}, roles {name}"

    def read(self) -> Roles | None:
        """Return the roles."""
        found = self._read()
        return None if found is None else found[0]

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """Set the order if the version is still *expected*, and return the current roles."""
        found = self._read()
        if found is not None and found[0].version != expected:
            return found[0]
        roles = Roles(tuple(order), expected + 1)
        entity = {
            "PartitionKey": _PARTITION,
            "RowKey": self._name,
            "order": "\n".join(order),
            "version": roles.version,
        }
        try:
            if found is None:
                self._table.create_entity(entity)
            else:
                self._table.update_entity(
                    entity,
                    mode=UpdateMode.REPLACE,
                    etag=found[1],
                    match_condition=MatchConditions.IfNotModified,
                )
        except (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError):
            # Another process was first, or the table is missing, which the read reports.
            return self.read() or roles
        except AzureError as error:
            raise self._unavailable(error) from error
        return roles

    def _read(self) -> tuple[Roles, str] | None:
        try:
            entity = self._table.get_entity(_PARTITION, self._name)
        except ResourceNotFoundError as error:
            if "TableNotFound" in str(error):
                raise self._unavailable(error) from error
            return None
        except AzureError as error:
            raise self._unavailable(error) from error
        order, version = entity.get("order"), entity.get("version")
        if not isinstance(order, str) or not isinstance(version, int):
            expected = "expected order and version; use a table that nothing else writes to"
            raise StoreUnavailable(f"{self._where}: the entity has {', '.join(sorted(entity))}, {expected}")
        return Roles(tuple(order.split("\n")), version), str(entity.metadata["etag"])

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self._where}: {type(error).__name__}")
