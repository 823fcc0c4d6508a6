"""The app's Azure identity, whose SDK takes a quarter of a second to import: only where it is needed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.identity import DefaultAzureCredential
    from azure.identity.aio import DefaultAzureCredential as AsyncCredential


def credential() -> "DefaultAzureCredential":
    """Return a credential of the identity for synchronous clients."""
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


def async_credential() -> "AsyncCredential":
    """Return a credential of the identity for asynchronous clients."""
    from azure.identity.aio import DefaultAzureCredential as AsyncCredential

    return AsyncCredential()


def lacks_a_right(error: BaseException | None) -> bool:
    """
    Return whether the service ended a link for want of a right, such as when a token has expired.

    The condition is that of any link that it ends (Azure/azure-sdk-for-python 23487).
    """
    return "claim(s) are required" in f"{error} {getattr(error, 'description', None)}"
