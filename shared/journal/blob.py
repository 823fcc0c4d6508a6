"""
The journal in append blobs of a storage account.

1. Each stream of an instance has a blob for each hour; what is appended to it is one gzip member.
2. An append names the position that it expects. When the answer is lost, or says that the position is another one, the
   end of the blob is read: the member is there, or it is not, and nothing is written twice.
3. Who finds something else there than what he has written goes on in another blob, and so does a full one.

Source: Azure Storage, "Append Block" (position condition, 50,000 blocks).
"""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.storage.blob import ContentSettings, StorageErrorCode
from azure.storage.blob.aio import BlobClient, ContainerClient

from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.sink import Stream

BLOCK_LIMIT = 50_000

_INSTANCE = re.compile(r"[^a-z0-9]")
_INSTANCE_LENGTH = 32
_REFUSED = (401, 403)
_NOT_FOUND = 404
# 408 and 412: what was sent may have been written, now or by an attempt whose answer was lost.
_UNKNOWN = (408, 412)
_SERVER_ERRORS = 500
# Two processes of one instance that begin in one millisecond; more is no coincidence.
_NAMES_TRIED = 10


@dataclass(slots=True)
class _Blob:
    """A blob that is written, as far as is known: its hour, what is in it, and what may be in it besides."""

    client: BlobClient
    hour: str
    size: int = 0
    blocks: int = 0
    doubtful: bytes | None = None


class BlobSink:
    """Appends to the blobs of one container, one append of a stream at a time."""

    def __init__(
        self,
        open_container: Callable[[], ContainerClient],
        instance: str,
        clock: Clock | None = None,
        *,
        block_limit: int = BLOCK_LIMIT,
    ) -> None:
        """Write as *instance*; the container is opened at the first append, and made if it is not there."""
        self._clock = clock or SystemClock()
        self._name = _INSTANCE.sub("", instance.lower())[:_INSTANCE_LENGTH] or "instance"
        self.instance = f"{self._name}-{_milliseconds(self._clock.now())}"
        self._open_container = open_container
        self._container: ContainerClient | None = None
        self._blobs: dict[Stream, _Blob] = {}
        self._turns: dict[Stream, asyncio.Lock] = {}
        self._block_limit = block_limit

    async def append(self, stream: Stream, member: bytes) -> None:
        """
        Append *member* to the blob of the current hour.

        Raises: TargetUnavailable or TargetRefused where it is not known to be there; a call with the same bytes then
                finds out first.
        """
        async with self._turns.setdefault(stream, asyncio.Lock()):
            try:
                await self._append(stream, member)
            except (AzureError, TimeoutError) as error:
                raise _translated(error) from error

    async def close(self) -> None:
        """Close the connection."""
        if self._container is not None:
            await self._container.close()

    async def read_mark(self, name: str) -> bytes | None:
        """Return what `write_mark` wrote last, None for nothing; raises as `append`."""
        try:
            return await (await self._opened().get_blob_client(_mark(name)).download_blob()).readall()
        except ResourceNotFoundError:
            return None
        except (AzureError, TimeoutError) as error:
            raise _translated(error) from error

    async def write_mark(self, name: str, content: bytes) -> None:
        """Keep a small text by its name, beside the journal; raises as `append`."""
        try:
            await self._opened().get_blob_client(_mark(name)).upload_blob(content, overwrite=True)
        except (AzureError, TimeoutError) as error:
            raise _translated(error) from error

    def _opened(self) -> ContainerClient:
        if self._container is None:
            self._container = self._open_container()
        return self._container

    async def _append(self, stream: Stream, member: bytes) -> None:
        blob = self._blobs.get(stream)
        if blob is not None and blob.doubtful is not None:
            is_same = blob.doubtful == member
            if await self._has_landed(stream, blob) and is_same:
                return
        while True:
            blob = await self._current(stream)
            try:
                await _write(blob, member)
            except AzureError as error:
                status = error.status_code if isinstance(error, HttpResponseError) else None
                if (
                    status == _NOT_FOUND
                    or getattr(error, "error_code", None) == StorageErrorCode.BLOCK_COUNT_EXCEEDS_LIMIT
                ):
                    del self._blobs[stream]  # deleted by somebody, or full
                    continue
                if _says_no(error):
                    blob.doubtful = None
                    raise
                if await self._has_landed(stream, blob):
                    return
                if status not in _UNKNOWN or stream in self._blobs:
                    raise
            else:
                return

    async def _has_landed(self, stream: Stream, blob: _Blob) -> bool:
        """Find out whether what is doubtful of *blob* is in it; a blob with anything else in it is left alone then."""
        member = blob.doubtful or b""
        try:
            size = (await blob.client.get_blob_properties()).size
        except ResourceNotFoundError:
            size = None
        if size == blob.size:
            blob.doubtful = None
            return False
        if size == blob.size + len(member):
            found = await (await blob.client.download_blob(offset=blob.size, length=len(member))).readall()
            if found == member:
                blob.size, blob.blocks, blob.doubtful = size, blob.blocks + 1, None
                return True
        del self._blobs[stream]
        return False

    async def _current(self, stream: Stream) -> _Blob:
        """Return the blob to append to: that of the hour, a new one in a new hour or when it is full."""
        now = self._clock.now()
        hour = now.strftime("date=%Y-%m-%d/hour=%H")
        blob = self._blobs.get(stream)
        if blob is None or blob.hour != hour or blob.blocks >= self._block_limit:
            blob = _Blob(await self._created(f"task={stream.task}/{hour}/role={stream.role}/{self._name}", now), hour)
            self._blobs[stream] = blob
        return blob

    async def _created(self, path: str, now: datetime) -> BlobClient:
        container = self._opened()
        epoch = _milliseconds(now)
        for later in range(_NAMES_TRIED):
            client = container.get_blob_client(f"{path}-{epoch + later}.jsonl.gz")
            try:
                await self._create(container, client)
            except (ResourceExistsError, ResourceModifiedError):
                continue
            return client
        raise TargetUnavailable(f"journal {path}: {_NAMES_TRIED} names from {epoch} on are taken")

    async def _create(self, container: ContainerClient, client: BlobClient) -> None:
        settings = ContentSettings(content_type="application/gzip")
        try:
            await client.create_append_blob(settings, match_condition=MatchConditions.IfMissing)
        except ResourceNotFoundError:
            with contextlib.suppress(ResourceExistsError):
                await container.create_container()
            await client.create_append_blob(settings, match_condition=MatchConditions.IfMissing)


async def _write(blob: _Blob, member: bytes) -> None:
    blob.doubtful = member
    answer = await blob.client.append_block(member, length=len(member), appendpos_condition=blob.size)
    blob.size += len(member)
    blob.blocks = cast("int", answer["blob_committed_block_count"])
    blob.doubtful = None


def _says_no(error: AzureError) -> bool:
    """Tell whether nothing has been written for certain: the request was not sent, or was answered so."""
    if isinstance(error, HttpResponseError):
        status = error.status_code
        return status is not None and status < _SERVER_ERRORS and status not in _UNKNOWN
    return isinstance(error, ServiceRequestError | ClientAuthenticationError)


def _translated(error: AzureError | TimeoutError) -> TargetUnavailable | TargetRefused:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    told = f"journal: the storage account answers {status}, {code}" if status else f"journal: {type(error).__name__}"
    if status in _REFUSED or isinstance(error, ClientAuthenticationError):
        return TargetRefused(f"{told}, expected the app's identity to have the role Storage Blob Data Contributor")
    return TargetUnavailable(f"{told}, expected the records to be kept")


def _mark(name: str) -> str:
    return f"marks/{name}.json"


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
