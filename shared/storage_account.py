"""What a storage account answers, in the words of Busway; and a container that is made where it is not there."""

import contextlib
from collections.abc import Awaitable, Callable

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.storage.blob import StorageErrorCode
from azure.storage.blob.aio import ContainerClient

from shared.errors import TargetRefused, TargetUnavailable

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
