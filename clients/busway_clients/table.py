"""The entities of a table of Azure Storage or Cosmos DB for Table; needs the extra `tables`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from busway_clients.errors import StoreUnavailable, extra

with extra("tables"):
    from azure.data.tables import TableClient, TableEntity, UpdateMode

__all__ = ["Table", "TableClient", "TableEntity"]

_FIRST = (ResourceExistsError, ResourceModifiedError)


class Table:
    """
    An existing table, whose ETags are the locks: an entity is changed only if it is as it was read.

    Every method raises StoreUnavailable.
    """

    def __init__(self, client: TableClient, use: str = "") -> None:
        """Use the table of *client*; *use* completes its name in errors."""
        self._client = client
        self.name = f"table {client.table_name}{use}"

    def read(self, keys: Mapping[str, Any], properties: set[str]) -> TableEntity | None:
        """Return an entity, None if it does not exist; it must have these *properties*."""
        try:
            with self._translated():
                entity = self._client.get_entity(keys["PartitionKey"], keys["RowKey"])
        except ResourceNotFoundError:
            return None
        if not properties <= entity.keys():
            expected = f"expected {', '.join(sorted(properties))}; use a table that nothing else writes to"
            raise StoreUnavailable(f"{self.name}: an entity has another schema, {expected}")
        return entity

    def write(self, entity: Mapping[str, Any], former: TableEntity | None) -> bool:
        """Create an entity, or replace the *former*; return False if another was first."""
        if former is None:
            return self._is_done(lambda: self._client.create_entity(entity))
        replacing = {"mode": UpdateMode.REPLACE, **_as_read(former)}
        return self._is_done(lambda: self._client.update_entity(entity, **replacing))

    def delete(self, entity: TableEntity) -> bool:
        """Delete an entity; return False if another was first."""
        return self._is_done(lambda: self._client.delete_entity(entity, **_as_read(entity)))

    def find(self, query: str, values: dict[str, Any]) -> Iterator[TableEntity]:
        """Yield the keys of the entities that a *query* with these *values* finds."""
        with self._translated():
            yield from self._client.query_entities(query, parameters=values, select=["PartitionKey", "RowKey"])

    def _is_done(self, act: Callable[[], object]) -> bool:
        try:
            with self._translated():
                act()
        except (*_FIRST, ResourceNotFoundError):
            return False
        return True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _FIRST:
            raise
        except AzureError as error:
            is_missing = "TableNotFound" in str(error)
            if isinstance(error, ResourceNotFoundError) and not is_missing:
                raise
            seen = "does not exist" if is_missing else type(error).__name__
            raise StoreUnavailable(f"{self.name}: {seen}") from error


def _as_read(entity: TableEntity) -> dict[str, Any]:
    return {"etag": entity.metadata["etag"], "match_condition": MatchConditions.IfNotModified}
