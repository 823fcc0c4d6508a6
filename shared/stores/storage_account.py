"""Containers of a storage account: opened from app settings, created when missing, errors translated."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential
from azure.storage.blob import StorageErrorCode
from azure.storage.blob.aio import ContainerClient

from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable

BLOB_SUFFIX = "__blobServiceUri"
# An append is an affair of milliseconds, and the locks of a batch run meanwhile.
_BLOB_CONNECT_SECONDS = 5
_BLOB_ANSWER_SECONDS = 10
_REFUSED = (401, 403)


def translated(what: str, error: AzureError | TimeoutError) -> TargetUnavailable | TargetRefused:
    """Return the error for what could not be done with *what*."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    told = f"{what}: " + (f"the storage account answers {status}, {code}" if status else type(error).__name__)
    if status in _REFUSED or isinstance(error, ClientAuthenticationError):
        return TargetRefused(f"{told}, expected the app's identity to have the role Storage Blob Data Contributor")
    return TargetUnavailable(told)


async def in_container[T](container: ContainerClient, write: Callable[[], Awaitable[T]]) -> T:
    """Write, and where there is no container make it first."""
    try:
        return await write()
    except ResourceNotFoundError as error:
        if getattr(error, "error_code", None) != StorageErrorCode.CONTAINER_NOT_FOUND:
            raise
    with contextlib.suppress(ResourceExistsError):
        await container.create_container()
    return await write()


def container_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return what is wrong with the app setting that names a storage account, None where it can be used."""
    text = settings.get(setting)
    if text:
        try:
            ContainerClient.from_connection_string(text, "journal")
        except ValueError:
            # What the SDK says of it may quote it.
            hint = "it looks like DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY"
            return Problem(setting, "the app setting is no connection string of a storage account", hint)
        return None
    if settings.get(setting + BLOB_SUFFIX):
        return None
    hint = f"set {setting} to a connection string or {setting}{BLOB_SUFFIX} to https://ACCOUNT.blob.core.windows.net"
    return Problem(setting, "the app setting is missing", hint)


def container_client(setting: str, settings: Mapping[str, str], container: str) -> ContainerClient:
    """Return a client of a container in the account that an app setting names; as `service_bus_client`."""
    problem = container_problem(setting, settings)
    if problem is not None:
        raise ConfigError([problem])
    text = settings.get(setting)
    if text:
        return ContainerClient.from_connection_string(
            text,
            container,
            retry_total=0,
            connection_timeout=_BLOB_CONNECT_SECONDS,
            read_timeout=_BLOB_ANSWER_SECONDS,
        )
    return ContainerClient(
        settings[setting + BLOB_SUFFIX],
        container,
        DefaultAzureCredential(),
        retry_total=0,
        connection_timeout=_BLOB_CONNECT_SECONDS,
        read_timeout=_BLOB_ANSWER_SECONDS,
    )
