# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""Rows in a table: Azure Storage, Cosmos DB for Table, or Azurite. Needs `busway-clients[tables]`."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Self
from urllib.request import getproxies

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)

from busway_clients.errors import Conflict, StoreRefused, StoreUnavailable, extra
from busway_clients.rows import ANY, Row, Write

with extra("tables"):
    from azure.data.tables import TableClient, TableEntity, TableErrorCode

_KEYS = ["PartitionKey", "RowKey"]
_NO_ROW = "PartitionKey eq '' and RowKey eq ''"
# A filter may hold 15 comparisons: partition, Open and these.
_KEYS_PER_QUERY = 13
_OPTIONS: dict[str, Any] = {
    "retry_total": 3,
    "retry_backoff_factor": 0.2,
    "retry_backoff_max": 2,
    "connection_timeout": 5,
    "read_timeout": 10,
}
"""Short, since callers retry, and a consumer must notice when its lease runs out."""
_IF_UNCHANGED: dict[str, Any] = {"match_condition": MatchConditions.IfNotModified}
_CONFLICTS = (409, 412)
_THROTTLED = (408, 429)
_GONE = 404
_SERVER = 500


class TableStore:
    """A store of rows in one table; safe to use concurrently."""

    def __init__(self, client: TableClient) -> None:
        """Use *client* as it is, with its own retries and time-outs."""
        self._client = client

    @classmethod
    def from_connection_string(cls, connection_string: str, table: str) -> Self:
        """Use the account of *connection_string*."""
        return cls(TableClient.from_connection_string(connection_string, table_name=table, **_options()))

    @classmethod
    def from_endpoint(
        cls, endpoint: str, table: str, credential: TokenCredential | AzureNamedKeyCredential | AzureSasCredential
    ) -> Self:
        """Use the account at *endpoint* (`https://NAME.table.core.windows.net`), with an identity, a key or a SAS."""
        return cls(TableClient(endpoint, table_name=table, credential=credential, **_options()))

    @property
    def name(self) -> str:
        """The table's address."""
        return f"{self._client.url.partition('?')[0]}/{self._client.table_name}"

    def open(self) -> None:
        """Create the table if it does not exist."""
        with _translated(self.name):
            try:
                # First whether it is there: the right to make tables is more than a store needs.
                for _ in self._client.query_entities(_NO_ROW, results_per_page=1):
                    return
            except ResourceNotFoundError:
                with suppress(ResourceExistsError):
                    self._client.create_table()

    def read(self, partition: str, keys: Sequence[str], *, with_open: bool = True) -> Sequence[Row]:
        """Return the existing rows of *keys*, and *with_open* all whose property Open is 1."""
        asked = _queries(partition, keys, with_open=with_open)
        with _translated(self.name, partition):
            return [_row(entity) for query in asked for entity in self._client.query_entities(query)]

    def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """Write all (at most 100) or none, and return their new versions; raises Conflict."""
        operations = [_operation(partition, write) for write in writes]
        with _translated(self.name, partition):
            # A request by itself takes a third of the processor time that a transaction of one does.
            if len(operations) == 1:
                [(kind, entity, options)] = operations
                answers = [getattr(self._client, f"{kind}_entity")(entity, **options)]
            else:
                answers = self._client.submit_transaction(operations)
        return [str(answer["etag"]) for answer in answers]

    def forget(self, before: datetime, partitions: str = "") -> int:
        """Delete rows of these partitions that have a property Finished earlier than *before*; return their number."""
        query = f"Finished lt {_literal(before.astimezone(UTC).isoformat())}"
        if partitions:
            last = partitions[:-1] + chr(ord(partitions[-1]) + 1)
            query += f" and PartitionKey ge {_literal(partitions)} and PartitionKey lt {_literal(last)}"
        count = 0
        with _translated(self.name):
            for entity in self._client.query_entities(query, select=_KEYS):
                try:
                    self._client.delete_entity(entity, etag=entity.metadata["etag"], **_IF_UNCHANGED)
                except (ResourceModifiedError, ResourceNotFoundError):
                    # Someone has begun with it again, or has been faster.
                    continue
                count += 1
        return count

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


def _options() -> dict[str, Any]:
    """Return the options of a table client."""
    if not inspect.iscoroutinefunction(TableClient.create_table):
        return _OPTIONS
    # aiohttp would look for proxies and .netrc in two threads at each request, which costs more than the request.
    return {**_OPTIONS, "use_env_settings": bool(getproxies())}


def _operation(partition: str, write: Write) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return *write* as an operation of a transaction."""
    entity = {"PartitionKey": partition, "RowKey": write.key, **write.properties}
    if write.expected is None:
        return ("create", entity, {})
    if write.expected == ANY:
        return ("upsert", entity, {"mode": "replace"})
    return ("update", entity, {"mode": "replace", "etag": write.expected, **_IF_UNCHANGED})


def _queries(partition: str, keys: Sequence[str], *, with_open: bool) -> Iterator[str]:
    """Yield the filters that together find *keys* and, *with_open*, the open rows of a partition."""
    for first in range(0, max(len(keys), 1), _KEYS_PER_QUERY):
        asked = [f"RowKey eq {_literal(key)}" for key in keys[first : first + _KEYS_PER_QUERY]]
        if first == 0 and with_open:
            asked.append("Open eq 1")
        yield f"PartitionKey eq {_literal(partition)} and ({' or '.join(asked)})"


def _literal(text: str) -> str:
    """Return *text* as a literal of a filter."""
    return "'" + text.replace("'", "''") + "'"


def _row(entity: TableEntity) -> Row:
    """Return an entity as a row."""
    properties = {name: value for name, value in entity.items() if name not in ("PartitionKey", "RowKey", "Timestamp")}
    return Row(str(entity["RowKey"]), properties, str(entity.metadata["etag"]))


@contextmanager
def _translated(name: str, partition: str | None = None) -> Iterator[None]:
    """Raise what this package raises instead of what the SDK does."""
    place = name if partition is None else f"{name}, partition {partition}"
    try:
        yield
    except (ServiceRequestError, ServiceResponseError) as error:
        raise StoreUnavailable(f"{place}: the store did not answer ({type(error).__name__})") from error
    except ClientAuthenticationError as error:
        raise StoreRefused(f"{place}: the store refuses these credentials, expected table rights") from error
    except HttpResponseError as error:
        status = error.status_code or 0
        if status in _CONFLICTS or getattr(error, "error_code", None) == TableErrorCode.RESOURCE_NOT_FOUND:
            raise Conflict(f"{place}: a row is not as it was expected") from error
        if status in _THROTTLED or status >= _SERVER:
            raise StoreUnavailable(f"{place}: the store answers {status}") from error
        text = f"{place}: the store answers {status} ({getattr(error, 'error_code', None)})"
        expected = "the table to be there" if status == _GONE else "a request that it takes"
        raise StoreRefused(f"{text}, expected {expected}") from error
    except AzureError as error:
        raise StoreUnavailable(f"{place}: {type(error).__name__}") from error
