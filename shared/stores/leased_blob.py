"""
An append blob that one process at a time appends to: that has a lease on it, which ends a minute after the process.

Source: Azure Storage, "Lease Blob": a lease of 60 s, renewed here; a write with a lease that has ended is refused.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError, ResourceModifiedError
from azure.storage.blob.aio import BlobClient, BlobLeaseClient

from shared.errors import TargetRefused
from shared.stores.append_blob import while_read
from shared.stores.storage_errors import translating

LEASE_SECONDS = 60
"""How long a blob stays closed to others after its process was killed."""
_RENEW_SECONDS = 15.0
_TAKEN = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


class BlobInUse(TargetRefused):
    """Another process has the lease, or has taken it over."""


class LeasedBlob:
    """The open blob."""

    def __init__(self, client: BlobClient, lease: BlobLeaseClient, where: str) -> None:
        """Call the blob *where* in errors."""
        self._client = client
        self._lease = lease
        self._where = where

    async def read(self) -> bytes:
        """Return the whole content; raises TargetUnavailable, TargetRefused."""
        with translating(self._where):
            return bytes(await (await self._client.download_blob()).readall())

    async def append(self, block: bytes) -> None:
        """
        Append *block*; after TargetUnavailable it may have been written.

        Raises: BlobInUse if the lease is lost, TargetUnavailable, TargetRefused.
        """
        with translating(self._where):
            try:
                # A block that was written in spite of its answer is there twice: a ledger's line may be.
                await while_read(lambda: self._client.append_block(block, length=len(block), lease=self._lease))
            except HttpResponseError as error:
                if error.status_code != HTTPStatus.PRECONDITION_FAILED:
                    raise
                text = "another process has taken it over, because this one did not answer for a minute"
                raise BlobInUse(f"{self._where}: {text}") from error


@asynccontextmanager
async def leased_blob(
    client: BlobClient, where: str, in_container: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
) -> AsyncIterator[LeasedBlob]:
    """
    Give a blob that nobody else can write to meanwhile; it is created if missing, within *in_container*.

    Raises: BlobInUse, TargetUnavailable, TargetRefused.
    """

    async def create() -> None:
        with contextlib.suppress(ResourceExistsError, ResourceModifiedError):
            await client.create_append_blob(match_condition=MatchConditions.IfMissing)

    with translating(where):
        try:
            await in_container(create)
            lease = await client.acquire_lease(LEASE_SECONDS)
        except HttpResponseError as error:
            if error.status_code not in _TAKEN:
                raise
            text = "another process uses it; try again when it has ended, or a minute later"
            raise BlobInUse(f"{where}: {text}") from error
    renewing = asyncio.create_task(_renew(lease))
    try:
        yield LeasedBlob(client, lease, where)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        with contextlib.suppress(AzureError, TimeoutError):
            await lease.release()  # otherwise it ends by itself


async def _renew(lease: BlobLeaseClient) -> None:
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        # Without a renewal the next append is refused.
        with contextlib.suppress(AzureError, TimeoutError):
            await lease.renew()
