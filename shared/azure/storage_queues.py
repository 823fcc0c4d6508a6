"""Clients for the queues of a storage account, from the app's settings; each function imports the SDK that it needs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shared.azure.identity import async_credential
from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from azure.storage.queue.aio import QueueServiceClient

QUEUE_SUFFIX = "__queueServiceUri"
"""After the name of a setting: the address of the queue service, for managed identity, as in the Functions host."""
POISON_SUFFIX = "-poison"
"""The Functions host moves messages that it has delivered too often into the queue with this end of its name."""

# As the clients for blobs: a request takes milliseconds.
_LIMITS: dict[str, Any] = {"connection_timeout": 5, "read_timeout": 10}


def account_string_fault(text: str) -> tuple[str, str] | None:
    """Return the problem of the connection string of a storage account and how to fix it; quotes nothing of it."""
    from azure.storage.queue.aio import QueueServiceClient  # noqa: PLC0415 - imports the SDK

    try:
        QueueServiceClient.from_connection_string(text)
    except ValueError:
        # The SDK's error text may quote it.
        hint = "expected DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY"
        return "is not a connection string of a storage account", hint
    return None


def _address_fault(text: str) -> tuple[str, str] | None:
    """Return the problem of an address for the app's identity: the SDK sends tokens over TLS only."""
    try:
        url = urlsplit(text)
        is_usable = url.scheme == "https" and bool(url.hostname) and not url.query
    except ValueError:
        is_usable = False
    return None if is_usable else ("is not an https address", "expected https://ACCOUNT.queue.core.windows.net")


def queue_setting_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return the problem of the app setting that names a storage account for its queues, or None."""
    text = settings.get(setting)
    if text:
        fault = account_string_fault(text)
        return None if fault is None else Problem(setting, f"the app setting {fault[0]}", fault[1])
    if address := settings.get(setting + QUEUE_SUFFIX):
        fault = _address_fault(address)
        return None if fault is None else Problem(setting + QUEUE_SUFFIX, f"the app setting {fault[0]}", fault[1])
    hint = f"set {setting} to a connection string or {setting}{QUEUE_SUFFIX} to https://ACCOUNT.queue.core.windows.net"
    return Problem(setting, "the app setting is missing", hint)


def queue_service(setting: str, settings: Mapping[str, str]) -> "QueueServiceClient":
    """
    Return a client for the queues of the account that an app setting names; raises ConfigError.

    A connection string is used as it is, an address with the app's identity (DefaultAzureCredential). The client does
    not retry: the pipeline does.
    """
    problem = queue_setting_problem(setting, settings)
    if problem is not None:
        raise ConfigError([problem])
    text = settings.get(setting)
    if text:
        return queue_service_by(text)
    from azure.storage.queue.aio import QueueServiceClient  # noqa: PLC0415 - imports the SDK

    return QueueServiceClient(settings[setting + QUEUE_SUFFIX], async_credential(), retry_total=0, **_LIMITS)


def queue_service_by(connection_string: str) -> "QueueServiceClient":
    """Return a client for the queues of the account of a connection string; as `queue_service`."""
    from azure.storage.queue.aio import QueueServiceClient  # noqa: PLC0415 - imports the SDK

    return QueueServiceClient.from_connection_string(connection_string, retry_total=0, **_LIMITS)
