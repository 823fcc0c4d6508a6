"""The one translation of the storage SDK's errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.storage.blob import StorageErrorCode

from shared.errors import TargetRefused, TargetUnavailable

_DENIED = (401, 403)
_KNOWN = frozenset(each.value for each in StorageErrorCode) | {
    *("AuthorizationPermissionMismatch", "AuthorizationProtocolMismatch", "AuthorizationResourceTypeMismatch"),
    *("AuthorizationServiceMismatch", "AuthorizationSourceIPMismatch", "KeyBasedAuthenticationNotPermitted"),
    *("PublicAccessNotPermitted", "NoPendingCopyOperation", "BlobModifiedWhileReading"),
}
"""Codes of Storage: those of the SDK, and others of Microsoft Learn, "Common REST API error codes"."""


@contextmanager
def translating(where: str, *, creates: bool = True) -> Iterator[None]:
    """Raise the error of `translated` in place of that of the SDK."""
    try:
        yield
    except (AzureError, TimeoutError) as error:
        raise translated(where, error, creates=creates) from error


def translated(
    where: str, error: AzureError | TimeoutError, *, creates: bool = True
) -> TargetUnavailable | TargetRefused:
    """
    Return the error for a failed request to the storage account; *where* names what was read or written.

    A missing container is a refusal where nothing *creates* it.
    """
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = error_code(error)
    text = f"{where}: the storage account answers {status}" + (f" ({code})" if code else "")
    if status in _DENIED or isinstance(error, ClientAuthenticationError):
        text = text if status is not None else f"{where}: the app's identity got no token, {type(error).__name__}"
        hint = "expected the app's identity to have the role Storage Blob Data Contributor, or a valid key or signature"
        return TargetRefused(f"{text}; {hint}")
    if status is None:
        return TargetUnavailable(f"{where}: the storage account cannot be reached, {type(error).__name__}")
    if not creates and code == StorageErrorCode.CONTAINER_NOT_FOUND:
        return TargetRefused(f"{where}: the container does not exist")
    return TargetUnavailable(text)


def error_code(error: BaseException) -> str:
    """Return the storage service's code for an error, an empty text without one that is known."""
    # The storage SDK adds it to the errors of azure.core, whose types do not declare it.
    code = getattr(error, "error_code", None)
    name = str(code.value if isinstance(code, Enum) else code or "")
    # The other end may have written anything, also what was sent to it.
    return name if name in _KNOWN else ""
