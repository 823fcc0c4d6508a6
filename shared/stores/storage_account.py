"""Containers of the storage account that an app setting names; the SDK is imported when one is opened."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from shared.stores.container import BlobContainer

BLOB_SUFFIX = "__blobServiceUri"
# An append takes milliseconds, and the locks of a batch are held meanwhile.
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 10


def account_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return the problem of the app setting that names a storage account, or None."""
    text = settings.get(setting)
    if text:
        from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - imports the SDK

        try:
            ContainerClient.from_connection_string(text, "journal")
        except ValueError:
            # The SDK's error text may quote it.
            hint = "expected DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY"
            return Problem(setting, "the app setting is not a connection string of a storage account", hint)
        return None
    if settings.get(setting + BLOB_SUFFIX):
        return None
    hint = f"set {setting} to a connection string or {setting}{BLOB_SUFFIX} to https://ACCOUNT.blob.core.windows.net"
    return Problem(setting, "the app setting is missing", hint)


def open_container(
    setting: str, settings: Mapping[str, str], container: str, *, errors_name: str = "blob "
) -> "BlobContainer":
    """Return a container in the account that an app setting names, opened as `service_bus_client`; see there."""
    problem = account_problem(setting, settings)
    if problem is not None:
        raise ConfigError([problem])
    from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - imports the SDK

    from shared.stores.container import BlobContainer  # noqa: PLC0415 - imports the SDK

    # The client does not retry: the pipeline does, because it knows when the locks of the batch expire.
    text = settings.get(setting)
    if text:
        client = ContainerClient.from_connection_string(
            text, container, retry_total=0, connection_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS
        )
    else:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - imports the SDK

        client = ContainerClient(
            settings[setting + BLOB_SUFFIX],
            container,
            DefaultAzureCredential(),
            retry_total=0,
            connection_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
        )
    return BlobContainer(client, errors_name=errors_name)
