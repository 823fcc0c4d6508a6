"""Rows as entities of a table, and what the answers of a table mean."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.request import getproxies

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from busway_clients.errors import Conflict, StoreRefused, StoreUnavailable, extra
from busway_clients.rows import ANY, Row, Write

with extra("tables"):
    from azure.data.tables import TableEntity, TableErrorCode


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
IF_UNCHANGED: dict[str, Any] = {"match_condition": MatchConditions.IfNotModified}
_CONFLICTS = (409, 412)
_THROTTLED = (408, 429)
_GONE = 404
_SERVER = 500


def options(client: type) -> dict[str, Any]:
    """Return the options of a table client of this class."""
    if not inspect.iscoroutinefunction(getattr(client, "create_table", None)):
        return _OPTIONS
    # aiohttp would look for proxies and .netrc in two threads at each request, which costs more than the request.
    return {**_OPTIONS, "use_env_settings": bool(getproxies())}


def operation(partition: str, write: Write) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return *write* as an operation of a transaction."""
    entity = {"PartitionKey": partition, "RowKey": write.key, **write.properties}
    if write.expected is None:
        return ("create", entity, {})
    if write.expected == ANY:
        return ("upsert", entity, {"mode": "replace"})
    return ("update", entity, {"mode": "replace", "etag": write.expected, **IF_UNCHANGED})


def queries(partition: str, keys: Sequence[str], *, with_open: bool) -> Iterator[str]:
    """Yield the filters that together find *keys* and, *with_open*, the open rows of a partition."""
    for first in range(0, max(len(keys), 1), _KEYS_PER_QUERY):
        asked = [f"RowKey eq {literal(key)}" for key in keys[first : first + _KEYS_PER_QUERY]]
        if first == 0 and with_open:
            asked.append("Open eq 1")
        yield f"PartitionKey eq {literal(partition)} and ({' or '.join(asked)})"


def literal(text: str) -> str:
    """Return *text* as a literal of a filter."""
    return "'" + text.replace("'", "''") + "'"


def row(entity: TableEntity) -> Row:
    """Return an entity as a row."""
    properties = {name: value for name, value in entity.items() if name not in ("PartitionKey", "RowKey", "Timestamp")}
    return Row(str(entity["RowKey"]), properties, str(entity.metadata["etag"]))


@contextmanager
def translated(name: str, partition: str | None = None) -> Iterator[None]:
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
