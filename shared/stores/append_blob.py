"""
An append blob that one writer extends at a known position.

When the answer to an append is lost, the block may or may not have been written; `AppendFailed` says which of the three
cases it is. Source: Azure Storage, "Append Block" (position condition, 50,000 blocks).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import cast

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.storage.blob import StorageErrorCode
from azure.storage.blob.aio import BlobClient

from shared.errors import TargetRefused, TargetUnavailable
from shared.stores.storage_errors import error_code, translated, translating

_NOT_FOUND = 404
# 408 and 412: the block may have been written, now or by an earlier attempt whose answer was lost.
_UNCERTAIN = (408, 412)
_SERVER_ERRORS = 500
# The blob is read, listed or asked for its properties at this moment, which the service wants in another mode. It is no
# outage: a refresh of a listing in the portal does it (azure-sdk-for-net 25246, azure-sdk-for-python 26126).
_READ_MEANWHILE = "BlobModifiedWhileReading"
_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class Failure(Enum):
    """What is known of a block whose append failed."""

    BLOB_ENDED = "nothing was written: the blob was deleted or is full"
    NOT_WRITTEN = "nothing was written"
    MOVED = "the end of the blob is not at the expected position, the block may already have been written"
    UNCERTAIN = "the block may have been written"


class AppendFailed(Exception):
    """An append failed, with certainty or not; `error` is what to raise to the caller."""

    def __init__(self, failure: Failure, error: TargetUnavailable | TargetRefused) -> None:
        """Describe the failure."""
        super().__init__(failure.value)
        self.failure = failure
        self.error = error


class AppendBlob:
    """One append blob."""

    def __init__(self, client: BlobClient, where: str) -> None:
        """Call the blob *where* in errors."""
        self._client = client
        self._where = where

    async def append(self, block: bytes, position: int) -> int:
        """Append *block* if the blob ends at *position*; return the number of blocks. Raises AppendFailed."""
        try:
            # After an attempt that has written in spite of its answer, the next one finds another position.
            answer = await while_read(
                lambda: self._client.append_block(block, length=len(block), appendpos_condition=position)
            )
        except (AzureError, TimeoutError) as error:
            raise AppendFailed(_failure(error), translated(self._where, error)) from error
        return cast("int", answer["blob_committed_block_count"])

    async def size(self) -> int | None:
        """Return the size of the blob, None if it was deleted; raises TargetUnavailable, TargetRefused."""
        with translating(self._where), suppress(ResourceNotFoundError):
            return (await self._client.get_blob_properties()).size
        return None

    async def read(self, position: int, length: int) -> bytes:
        """Return a part of the blob; raises TargetUnavailable, TargetRefused."""
        with translating(self._where):
            return await (await self._client.download_blob(offset=position, length=length)).readall()


async def while_read[T](append: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *append*, tried again at once for some seconds while others read the blob."""
    pauses = iter(_PAUSES)
    while True:
        try:
            return await append()
        except HttpResponseError as error:
            # Nobody says that nothing was written.
            pause = next(pauses, None) if error_code(error) == _READ_MEANWHILE else None
            if pause is None:
                raise
            await asyncio.sleep(pause)


def _failure(error: AzureError | TimeoutError) -> Failure:
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        status = error.status_code
        if status == _NOT_FOUND or error_code(error) == StorageErrorCode.BLOCK_COUNT_EXCEEDS_LIMIT:
            return Failure.BLOB_ENDED
        if status in _UNCERTAIN:
            return Failure.MOVED
        if error_code(error) == _READ_MEANWHILE:
            return Failure.UNCERTAIN
        return Failure.NOT_WRITTEN if status < _SERVER_ERRORS else Failure.UNCERTAIN
    if isinstance(error, ServiceRequestError | ClientAuthenticationError):
        return Failure.NOT_WRITTEN  # the request was not sent
    return Failure.UNCERTAIN
