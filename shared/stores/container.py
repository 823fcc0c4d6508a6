"""
The blobs of one container in a storage account: the one adapter of the storage SDK.

Retries and timeouts are those of the client. Source: Azure Storage REST API, Blob service.
"""

import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ResourceNotModifiedError,
)
from azure.core.pipeline import PipelineResponse
from azure.storage.blob import ContentSettings, StorageErrorCode
from azure.storage.blob.aio import ContainerClient

from shared.errors import TargetUnavailable
from shared.stores.append_blob import AppendBlob, while_read
from shared.stores.blobs import Blob, Listed, Listing, Tail, TooLarge, Unchanged
from shared.stores.documents import Changed
from shared.stores.leased_blob import LeasedBlob, leased_blob
from shared.stores.storage_errors import error_code, translating

BLOCK_LIMIT = 50_000

_RANGE_NOT_SATISFIABLE = 416
# In one request: the SDK asks for a larger part in several, which fail if the blob grows between them
# (azure-sdk-for-python 39817).
_PIECE_BYTES = 16 << 20


class BlobContainer:
    """
    The blobs of a container; a version is an ETag. It implements `Blobs` and `Documents`.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    def __init__(self, client: ContainerClient, *, errors_name: str = "blob ", creates: bool = True) -> None:
        """
        Use an open client, which `close` closes.

        Errors name a blob with *errors_name* in front. A missing container is created at the first write, or, without
        *creates*, reported.
        """
        self._client = client
        self._errors_name = errors_name
        self._creates = creates
        # A shared access signature may follow the question mark.
        self.url = client.url.partition("?")[0].rstrip("/")

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:
        """Write a block blob; the service checks its MD5 on arrival and keeps it."""
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        settings = ContentSettings(content_type=content_type, content_md5=bytearray(digest))
        blob = self._client.get_blob_client(name)

        async def upload(*, overwrite: bool) -> None:
            await blob.upload_blob(content, overwrite=overwrite, content_settings=settings, validate_content="md5")

        with self._translated(name):
            try:
                await self._in_container(lambda: upload(overwrite=False))
            except (ResourceExistsError, ResourceModifiedError):
                found = await blob.get_blob_properties()
                md5 = found.content_settings.content_md5
                if found.size != len(content) or md5 is None or bytes(md5) != digest:
                    await upload(overwrite=True)

    async def replace(self, name: str, content: bytes) -> None:
        """Write a blob, whatever is there."""
        with self._translated(name):
            await self._in_container(lambda: self._client.get_blob_client(name).upload_blob(content, overwrite=True))

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        """Replace *version*, None for a new blob, and return the new version; raises Changed."""
        blob = self._client.get_blob_client(name)
        condition: dict[str, Any] = (
            {"match_condition": MatchConditions.IfMissing}
            if version is None
            else {"match_condition": MatchConditions.IfNotModified, "etag": version}
        )
        changed = f"{self._errors_name}{name}: another instance has replaced it"
        with self._translated(name):
            try:
                answer = await self._in_container(lambda: blob.upload_blob(content, overwrite=True, **condition))
            except (ResourceExistsError, ResourceModifiedError) as error:
                raise Changed(changed) from error
            except ResourceNotFoundError as error:
                if version is None or error_code(error) == StorageErrorCode.CONTAINER_NOT_FOUND:
                    raise
                raise Changed(changed) from error  # deleted
        return str(answer["etag"])

    async def read_all(self, name: str) -> Blob | None:
        """Return a blob of any size, None if missing."""
        with self._translated(name):
            try:
                answer = await self._client.get_blob_client(name).download_blob()
                return Blob(await answer.readall(), str(answer.properties.etag))
            except ResourceNotFoundError as error:
                if not self._creates and error_code(error) == StorageErrorCode.CONTAINER_NOT_FOUND:
                    raise
        return None

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return a blob of at most *limit* bytes."""
        blob = self._client.get_blob_client(name)
        with self._translated(name):
            try:
                found = await blob.get_blob_properties()
                if found.etag == known_version:
                    return Unchanged()
                if found.size > limit:
                    return TooLarge(found.size)
                # The version whose size has been checked, and no other.
                condition = MatchConditions.IfNotModified
                answer = await blob.download_blob(etag=found.etag, match_condition=condition)
                return Blob(await answer.readall(), found.etag)
            except ResourceNotFoundError:
                return None
            except (ResourceModifiedError, ResourceNotModifiedError) as error:
                text = f"{self._errors_name}{name}: it was replaced while it was read"
                raise TargetUnavailable(text) from error
        return None

    async def delete(self, name: str) -> None:
        """Delete a blob with its snapshots, if there is one."""
        with self._translated(name), contextlib.suppress(ResourceNotFoundError):
            await self._client.delete_blob(name, delete_snapshots="include")

    async def delete_version(self, name: str, version: str | None) -> None:
        """Delete a blob if it still has *version*."""
        blob = self._client.get_blob_client(name)
        with self._translated(name), contextlib.suppress(ResourceNotFoundError, ResourceModifiedError):
            await blob.delete_blob(etag=version, match_condition=MatchConditions.IfNotModified)

    async def append(self, name: str, content: bytes) -> bool:
        """Append a block at the end of a blob, wherever that is by now; return False if the blob is full."""
        blob = self._client.get_blob_client(name)

        async def create() -> None:
            with contextlib.suppress(ResourceExistsError, ResourceModifiedError):
                await blob.create_append_blob(match_condition=MatchConditions.IfMissing)

        with self._translated(name):
            try:
                try:
                    await while_read(lambda: blob.append_block(content, length=len(content)))
                except ResourceNotFoundError:
                    await self._in_container(create)
                    await while_read(lambda: blob.append_block(content, length=len(content)))
            except HttpResponseError as error:
                if error_code(error) != StorageErrorCode.BLOCK_COUNT_EXCEEDS_LIMIT:
                    raise
                return False
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return the content from byte *position* on; nothing if there is no blob."""
        with self._translated(name):
            try:
                return await self._pieces(name, position, None)
            except ResourceNotFoundError:
                return Tail(b"", is_full=False)

    async def part(self, name: str, position: int, length: int) -> bytes:
        """Return up to *length* bytes from *position* on; nothing if there is no blob, or it is not that long."""
        with self._translated(name):
            try:
                return (await self._pieces(name, position, length)).content
            except ResourceNotFoundError:
                return b""

    async def _pieces(self, name: str, position: int, length: int | None) -> Tail:
        """Return up to *length* bytes from *position* on, None: all, of a blob that may grow meanwhile."""
        blob = self._client.get_blob_client(name)
        pieces: list[bytes] = []
        found, blocks = 0, 0
        while length is None or found < length:
            wanted = _PIECE_BYTES if length is None else min(_PIECE_BYTES, length - found)
            try:
                answer = await blob.download_blob(offset=position + found, length=wanted)
            except HttpResponseError as error:
                if error.status_code != _RANGE_NOT_SATISFIABLE:
                    raise
                break
            pieces.append(await answer.readall())
            found += len(pieces[-1])
            blocks = answer.properties.append_blob_committed_block_count or 0
            if len(pieces[-1]) < wanted:
                break
        return Tail(b"".join(pieces), blocks >= BLOCK_LIMIT)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of the blobs that start with *prefix*; none if there is no container."""
        with self._translated(prefix):
            try:
                return [str(name) async for name in self._client.list_blob_names(name_starts_with=prefix)]
            except ResourceNotFoundError:
                pass
        return []

    async def folders(self, prefix: str) -> list[str]:
        """Return the beginnings of names with *prefix*, up to the next slash; none if there is no container."""
        with self._translated(prefix):
            try:
                found = self._client.walk_blobs(name_starts_with=prefix, delimiter="/")
                return [str(each.name) async for each in found if str(each.name).endswith("/")]
            except ResourceNotFoundError:
                pass
        return []

    async def listed(self, prefix: str) -> Listing:
        """Return the blobs that start with *prefix*, by name; none if there is no container and one may be created."""
        found: list[Listed] = []
        dates: list[datetime] = []

        def keep_date(answer: PipelineResponse[Any, Any]) -> None:
            dates.append(parsedate_to_datetime(answer.http_response.headers["Date"]))

        with self._translated(prefix):
            try:
                listing = self._client.list_blobs(name_starts_with=prefix, raw_response_hook=keep_date)
                found = [
                    Listed(str(each.name), each.last_modified.astimezone(UTC), each.size) async for each in listing
                ]
            except ResourceNotFoundError:
                if not self._creates:
                    raise
        return Listing(found, dates[-1].astimezone(UTC) if dates else None)

    async def create_append_blob(self, name: str, content_type: str) -> AppendBlob | None:
        """Create an append blob; return None if the name is taken."""
        blob = self._client.get_blob_client(name)
        settings = ContentSettings(content_type=content_type)
        with self._translated(name):
            try:
                await self._in_container(
                    lambda: blob.create_append_blob(settings, match_condition=MatchConditions.IfMissing)
                )
            except (ResourceExistsError, ResourceModifiedError):
                return None
        return AppendBlob(blob, f"{self._errors_name}{name}")

    def leased(self, name: str) -> AbstractAsyncContextManager[LeasedBlob]:
        """Open an append blob that no other process can write to meanwhile, see `leased_blob`."""
        return leased_blob(self._client.get_blob_client(name), f"{self._errors_name}{name}", self._in_container)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _in_container[T](self, write: Callable[[], Awaitable[T]]) -> T:
        """Write; if the container is missing, create it first."""
        try:
            return await write()
        except ResourceNotFoundError as error:
            if not self._creates or error_code(error) != StorageErrorCode.CONTAINER_NOT_FOUND:
                raise
        with contextlib.suppress(ResourceExistsError):
            await self._client.create_container()
        return await write()

    def _translated(self, name: str) -> AbstractContextManager[None]:
        return translating(f"{self._errors_name}{name}", creates=self._creates)
