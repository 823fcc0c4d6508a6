"""
The checkpoints of a consumer group, in the blobs of the Functions host: the app goes on where the host has stopped.

Source: BlobCheckpointStoreInternal of the Event Hubs extension, Azure/azure-sdk-for-net: the metadata of an empty blob,
in which the offset wins over the number; earlier versions wrote the content of a blob without the folder.
"""

import json
from typing import NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from shared.stores.documents import Changed
from shared.stores.storage_errors import translating

CONTAINER = "azure-webjobs-eventhub"


class HostCheckpoint(NamedTuple):
    """Where a partition goes on: after the event with this offset, or this number if its blob has no offset."""

    position: str | int
    number: int | None
    """The number of that event, if its blob has it."""
    version: str | None
    """The ETag of its blob, None if only the earlier form has it."""


class HostCheckpoints:
    """
    The checkpoints of one consumer group of one hub.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    def __init__(self, client: ContainerClient, namespace: str, hub: str, consumer_group: str) -> None:
        """Use the container of *client*, which `close` closes."""
        self._client = client
        # The earlier form kept the case of the names.
        self._earlier = f"{namespace}/{hub}/{consumer_group}/"
        self._folder = f"{self._earlier.lower()}checkpoint/"

    async def read(self, partition: str) -> HostCheckpoint | None:
        """Return the checkpoint of a partition, None before the first."""
        name = self._folder + partition
        with translating(f"checkpoint {name}"):
            try:
                found = await self._client.get_blob_client(name).get_blob_properties()
            except ResourceNotFoundError:
                return await self._read_earlier(partition)
        metadata = {key.lower(): value for key, value in (found.metadata or {}).items()}
        # Versions 6.1 to 6.4 of the extension wrote an empty or invented offset of a geo-replicated hub.
        offset, number = metadata.get("offset", ""), metadata.get("sequencenumber", "")
        if not offset.removeprefix("-").replace(":", "").isdecimal():
            return HostCheckpoint(int(number), int(number), str(found.etag)) if number.isdecimal() else None
        return HostCheckpoint(offset, int(number) if number.isdecimal() else None, str(found.etag))

    async def write(self, partition: str, offset: str, number: int, version: str | None) -> str:
        """Replace *version*, None for a new one, and return the new one; raises Changed."""
        name = self._folder + partition
        blob = self._client.get_blob_client(name)
        metadata = {"offset": offset, "sequencenumber": str(number)}
        with translating(f"checkpoint {name}"):
            try:
                if version is not None:
                    answer = await blob.set_blob_metadata(
                        metadata, etag=version, match_condition=MatchConditions.IfNotModified
                    )
                    return str(answer["etag"])
                try:
                    answer = await blob.upload_blob(b"", metadata=metadata)
                except ResourceNotFoundError:
                    await self._client.create_container()
                    answer = await blob.upload_blob(b"", metadata=metadata)
            except (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError) as error:
                raise Changed(f"checkpoint {name}: something else has changed it") from error
        return str(answer["etag"])

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def _read_earlier(self, partition: str) -> HostCheckpoint | None:
        try:
            stream = await self._client.get_blob_client(self._earlier + partition).download_blob()
            content = json.loads(await stream.readall())
        except (ResourceNotFoundError, ValueError):
            return None
        offset = content.get("Offset") if isinstance(content, dict) else None
        return HostCheckpoint(str(offset), None, None) if offset else None
