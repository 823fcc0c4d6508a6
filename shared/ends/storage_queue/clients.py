"""Clients for the queues of a storage account, from the app's settings; each function imports the SDK that it needs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shared.access.client import open_client
from shared.access.setting_form import Fault, SettingForm

if TYPE_CHECKING:
    from azure.storage.queue import QueueServiceClient as SynchronousService
    from azure.storage.queue.aio import QueueServiceClient

QUEUE_SUFFIX = "__queueServiceUri"
"""After the name of a setting: the address of the queue service, for managed identity, as in the Functions host."""
POISON_SUFFIX = "-poison"
"""The Functions host moves messages that it has delivered too often into the queue with this end of its name."""


def account_string_fault(text: str) -> Fault | None:
    """Return the problem of the connection string of a storage account and how to fix it; quotes nothing of it."""
    from azure.storage.queue.aio import QueueServiceClient

    try:
        QueueServiceClient.from_connection_string(text)
    except ValueError:
        # The SDK's error text may quote it.
        hint = "expected DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY"
        return "is not a connection string of a storage account", hint
    return None


def _address_fault(text: str) -> Fault | None:
    """Return the problem of an address for the app's identity: the SDK sends tokens over TLS only."""
    try:
        url = urlsplit(text)
        is_usable = url.scheme == "https" and bool(url.hostname) and not url.query
    except ValueError:
        is_usable = False
    return None if is_usable else ("is not an https address", "expected https://ACCOUNT.queue.core.windows.net")


SETTING_FORM = SettingForm(
    lambda text, _: account_string_fault(text),
    f"set {{setting}} to a connection string or {{setting}}{QUEUE_SUFFIX} to https://ACCOUNT.queue.core.windows.net",
    QUEUE_SUFFIX,
    _address_fault,
)


def queue_service(setting: str, settings: Mapping[str, str]) -> "QueueServiceClient":
    """
    Return a client for the queues of the account that an app setting names; raises ConfigError.

    The client does not retry: the pipeline does.
    """
    from azure.storage.queue.aio import QueueServiceClient

    # As the clients for blobs: a request takes milliseconds.
    return _open(QueueServiceClient, setting, settings, retry_total=0, connection_timeout=5, read_timeout=10)


def synchronous_service(setting: str, settings: Mapping[str, str]) -> "SynchronousService":
    """Return a synchronous client, which retries; otherwise as `queue_service`."""
    from azure.storage.queue import QueueServiceClient

    return _open(QueueServiceClient, setting, settings)


def _open[Client](client: type[Client], setting: str, settings: Mapping[str, str], **options: Any) -> Client:
    text = SETTING_FORM.text(setting, settings)
    return open_client(client, text, {"account_url": settings.get(setting + QUEUE_SUFFIX, "")}, **options)
