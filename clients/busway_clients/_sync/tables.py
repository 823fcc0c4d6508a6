# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""Rows in a table: Azure Storage, Cosmos DB for Table, or Azurite. Needs `busway-clients[tables]`."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from busway_clients.errors import extra
from busway_clients.rows import Row, Write
from busway_clients.table_rows import IF_UNCHANGED, literal, operation, options, queries, row, translated

with extra("tables"):
    from azure.data.tables import TableClient

_KEYS = ["PartitionKey", "RowKey"]
_NO_ROW = "PartitionKey eq '' and RowKey eq ''"


class TableStore:
    """A store of rows in one table; safe to use concurrently."""

    def __init__(self, client: TableClient) -> None:
        """Use *client* as it is, with its own retries and time-outs."""
        self._client = client

    @classmethod
    def from_connection_string(cls, connection_string: str, table: str) -> Self:
        """Use the account of *connection_string*."""
        return cls(TableClient.from_connection_string(connection_string, table_name=table, **options(TableClient)))

    @classmethod
    def from_endpoint(
        cls, endpoint: str, table: str, credential: TokenCredential | AzureNamedKeyCredential | AzureSasCredential
    ) -> Self:
        """Use the account at *endpoint* (`https://NAME.table.core.windows.net`), with an identity, a key or a SAS."""
        return cls(TableClient(endpoint, table_name=table, credential=credential, **options(TableClient)))

    @property
    def name(self) -> str:
        """The table's address."""
        return f"{self._client.url.partition('?')[0]}/{self._client.table_name}"

    def open(self) -> None:
        """Create the table if it does not exist."""
        with translated(self.name):
            try:
                # First whether it is there: the right to make tables is more than a store needs.
                for _ in self._client.query_entities(_NO_ROW, results_per_page=1):
                    return
            except ResourceNotFoundError:
                with suppress(ResourceExistsError):
                    self._client.create_table()

    def read(self, partition: str, keys: Sequence[str], *, with_open: bool = True) -> Sequence[Row]:
        """Return the existing rows of *keys*, and *with_open* all whose property Open is 1."""
        asked = queries(partition, keys, with_open=with_open)
        with translated(self.name, partition):
            return [row(entity) for query in asked for entity in self._client.query_entities(query)]

    def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """Write all (at most 100) or none, and return their new versions; raises Conflict."""
        operations = [operation(partition, write) for write in writes]
        with translated(self.name, partition):
            # A request by itself takes a third of the processor time that a transaction of one does.
            if len(operations) == 1:
                [(kind, entity, options)] = operations
                answers = [getattr(self._client, f"{kind}_entity")(entity, **options)]
            else:
                answers = self._client.submit_transaction(operations)
        return [str(answer["etag"]) for answer in answers]

    def forget(self, before: datetime, partitions: str = "") -> int:
        """Delete rows of these partitions that have a property Finished earlier than *before*; return their number."""
        query = f"Finished lt {literal(before.astimezone(UTC).isoformat())}"
        if partitions:
            last = partitions[:-1] + chr(ord(partitions[-1]) + 1)
            query += f" and PartitionKey ge {literal(partitions)} and PartitionKey lt {literal(last)}"
        count = 0
        with translated(self.name):
            for entity in self._client.query_entities(query, select=_KEYS):
                try:
                    self._client.delete_entity(entity, etag=entity.metadata["etag"], **IF_UNCHANGED)
                except (ResourceModifiedError, ResourceNotFoundError):
                    # Someone has begun with it again, or has been faster.
                    continue
                count += 1
        return count

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()
