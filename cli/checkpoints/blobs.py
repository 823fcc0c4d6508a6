"""
The checkpoints that the Functions host keeps in its storage account.

Source: BlobCheckpointStoreInternal of the Event Hubs extension, Azure/azure-sdk-for-net. A checkpoint is the metadata
of an empty blob, and so is the ownership of a partition, which a running host writes again and again. Earlier versions
of the extension kept the checkpoint as the content of a blob without the folder; it is read if there is no other.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import ContainerClient

from shared.errors import TargetRefused
from shared.stores.host_checkpoints import CONTAINER
from shared.stores.storage_account import HOST_STORAGE, host_storage, synchronous_container
from shared.stores.storage_errors import translated

_CHECKPOINT, _OWNERSHIP = "checkpoint/", "ownership/"
# A host writes its ownership every 10 to 30 s, and takes one over that is older than two minutes.
_OWNED = timedelta(minutes=2)


class Checkpoint(NamedTuple):
    """The checkpoint of a partition: the last event that was processed, if its number is known, and when."""

    partition: str
    number: int | None
    modified: datetime
    blob: str
    version: str


class CheckpointStore:
    """
    The checkpoints of one consumer group of one hub.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    def __init__(self, client: ContainerClient, namespace: str, hub: str, consumer_group: str) -> None:
        """Use the container of *client*, which the caller closes."""
        self._client = client
        self._prefix = f"{namespace}/{hub}/{consumer_group}/".lower()

    def read(self) -> list[Checkpoint]:
        """Return all checkpoints, the newer form before the older one."""
        with _translated(self._prefix):
            try:
                # The earlier form kept the case of the names, and names of blobs have one (azure-sdk-for-net 17392).
                found = [
                    self._checkpoint(blob)
                    for blob in self._client.list_blobs(include=["metadata"])
                    if str(blob.name).lower().startswith(self._prefix)
                ]
            except ResourceNotFoundError:
                return []
        return sorted((each for each in found if each is not None), key=lambda each: len(each.blob), reverse=True)

    def owned(self) -> list[str]:
        """Return the partitions that a running host has."""
        dates: list[datetime] = []

        def keep_date(answer: Any) -> None:  # noqa: ANN401 - a response of the SDK
            dates.append(parsedate_to_datetime(answer.http_response.headers["Date"]))

        prefix = self._prefix + _OWNERSHIP
        with _translated(prefix):
            try:
                found = list(self._client.list_blobs(prefix, include=["metadata"], raw_response_hook=keep_date))
            except ResourceNotFoundError:
                return []
        now = dates[-1] if dates else datetime.now(UTC)
        return [
            str(each.name).removeprefix(prefix)
            for each in found
            if (each.metadata or {}).get("ownerid") and now - each.last_modified < _OWNED
        ]

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint that nobody has written meanwhile."""
        with _translated(checkpoint.blob):
            try:
                self._client.get_blob_client(checkpoint.blob).delete_blob(
                    etag=checkpoint.version, match_condition=MatchConditions.IfNotModified
                )
            except ResourceNotFoundError:
                return
            except ResourceModifiedError as error:
                text = "the app has written it meanwhile; stop the app, then reset again"
                raise TargetRefused(f"{checkpoint.blob}: {text}") from error

    def _checkpoint(self, blob: Any) -> Checkpoint | None:  # noqa: ANN401 - the SDK's properties of a blob
        path = str(blob.name)[len(self._prefix) :]
        if path.startswith(_OWNERSHIP):
            return None
        if path.startswith(_CHECKPOINT):
            partition, number = path.removeprefix(_CHECKPOINT), _number((blob.metadata or {}).get("sequencenumber"))
        elif "/" in path:
            return None
        else:
            partition, number = path, self._earlier_number(str(blob.name))
        return Checkpoint(partition, number, blob.last_modified, str(blob.name), str(blob.etag))

    def _earlier_number(self, name: str) -> int | None:
        try:
            content = json.loads(self._client.get_blob_client(name).download_blob().readall())
        except ValueError:
            return None
        return _number(content.get("SequenceNumber")) if isinstance(content, dict) else None


@contextmanager
def opened_store(
    settings: Mapping[str, str], namespace: str, hub: str, consumer_group: str
) -> Iterator[CheckpointStore]:
    """Open the storage account of the app; raises ConfigError."""
    with synchronous_container(HOST_STORAGE, host_storage(settings), CONTAINER) as client:
        yield CheckpointStore(client, namespace, hub, consumer_group)


def _number(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number >= 0 else None


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except AzureError as error:
        raise translated(f"checkpoints {name}", error) from error
