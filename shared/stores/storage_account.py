"""Containers of the storage account that an app setting names; the SDK is imported when one is opened."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.access.client import open_client
from shared.access.setting_form import Fault, SettingForm

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient as SynchronousContainer
    from azure.storage.blob.aio import ContainerClient

    from shared.stores.container import BlobContainer

BLOB_SUFFIX = "__blobServiceUri"
HOST_STORAGE = "AzureWebJobsStorage"
"""The app setting with the storage account of the Functions host."""
# An append takes milliseconds, and the locks of a batch are held meanwhile.
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 10
# Of synchronous clients: those of commands.
_RETRIES = 2


def account_fault(text: str) -> Fault | None:
    """Return the problem of the connection string of a storage account and how to fix it."""
    from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - imports the SDK

    try:
        ContainerClient.from_connection_string(text, "journal")
    except ValueError:
        # The SDK's error text may quote it.
        hint = "expected DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY"
        return "is not a connection string of a storage account", hint
    return None


SETTING_FORM = SettingForm(
    lambda text, _: account_fault(text),
    f"set {{setting}} to a connection string or {{setting}}{BLOB_SUFFIX} to https://ACCOUNT.blob.core.windows.net",
    BLOB_SUFFIX,
)


def host_storage(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return *settings* in which the host's account, where only its name is set, has the address of its blobs."""
    account = settings.get(f"{HOST_STORAGE}__accountName")
    if not account or HOST_STORAGE + BLOB_SUFFIX in settings:
        return settings
    return {**settings, HOST_STORAGE + BLOB_SUFFIX: f"https://{account}.blob.core.windows.net"}


def open_container(
    setting: str, settings: Mapping[str, str], container: str, *, errors_name: str = "blob "
) -> "BlobContainer":
    """Return a container in the account that an app setting names: with its key, or the app's identity."""
    from shared.stores.container import BlobContainer  # noqa: PLC0415 - imports the SDK

    return BlobContainer(container_client(setting, settings, container), errors_name=errors_name)


def container_client(setting: str, settings: Mapping[str, str], container: str) -> "ContainerClient":
    """Return the SDK's client of a container; otherwise as `open_container`."""
    from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - imports the SDK

    return _open(
        ContainerClient,
        setting,
        settings,
        container_name=container,
        # The client does not retry: the pipeline does, because it knows when the locks of the batch expire.
        retry_total=0,
        connection_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
    )


def synchronous_container(setting: str, settings: Mapping[str, str], container: str) -> "SynchronousContainer":
    """Return a synchronous client; otherwise as `open_container`."""
    from azure.storage.blob import ContainerClient  # noqa: PLC0415 - imports the SDK

    return _open(
        ContainerClient,
        setting,
        settings,
        container_name=container,
        retry_total=_RETRIES,
        retry_read=0,
        initial_backoff=1,
        increment_base=1,
        connection_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
    )


def container_url(setting: str, settings: Mapping[str, str], container: str) -> str:
    """Return the address of a container in the account that an app setting names; raises ConfigError."""
    if SETTING_FORM.text(setting, settings):
        return str(synchronous_container(setting, settings, container).url)
    return f"{settings[setting + BLOB_SUFFIX].rstrip('/')}/{container}"


def _open[Client](client: type[Client], setting: str, settings: Mapping[str, str], **options: object) -> Client:
    text = SETTING_FORM.text(setting, settings)
    return open_client(client, text, {"account_url": settings.get(setting + BLOB_SUFFIX, "")}, **options)
