"""
The journal in append blobs of a storage account.

1. Each stream of an instance has a blob for each hour; what is appended to it is one gzip member.
2. An append names the position that it expects. If the answer is lost, or the position is another one, the end of the
   blob is read to see whether the member is there, so that nothing is written twice.
3. A writer that finds anything else at the end continues in another blob, as after a full one.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from shared.clock import Clock, SystemClock
from shared.errors import TargetUnavailable
from shared.journal.sink import Stream
from shared.stores.append_blob import AppendBlob, AppendFailed, Failure
from shared.stores.container import BlobContainer

BLOCK_LIMIT = 50_000

_INSTANCE = re.compile(r"[^a-z0-9]")
_INSTANCE_LENGTH = 32
# Two processes of one instance may start in the same millisecond; more attempts would not help.
_NAMES_TRIED = 10


@dataclass(slots=True)
class _Blob:
    """A blob being written: its hour, its known size and number of blocks, and a member that may be in it."""

    blob: AppendBlob
    hour: str
    size: int = 0
    blocks: int = 0
    uncertain: bytes | None = None


class BlobSink:
    """Appends to the blobs of one container, one append of a stream at a time."""

    def __init__(
        self,
        open_container: Callable[[], BlobContainer],
        instance: str,
        clock: Clock | None = None,
        *,
        block_limit: int = BLOCK_LIMIT,
    ) -> None:
        """Write as *instance*; the container is opened at the first append, and created if it is missing."""
        self._clock = clock or SystemClock()
        self._name = _INSTANCE.sub("", instance.lower())[:_INSTANCE_LENGTH] or "instance"
        self.instance = f"{self._name}-{_milliseconds(self._clock.now())}"
        self._open_container = open_container
        self._container: BlobContainer | None = None
        self._blobs: dict[Stream, _Blob] = {}
        self._turns: dict[Stream, asyncio.Lock] = {}
        self._block_limit = block_limit

    async def append(self, stream: Stream, member: bytes) -> None:
        """
        Append *member* to the blob of the current hour.

        Raises: TargetUnavailable or TargetRefused if it may not have been written; a call with the same bytes then
                checks first.
        """
        async with self._turns.setdefault(stream, asyncio.Lock()):
            await self._append(stream, member)

    async def close(self) -> None:
        """Close the connection."""
        if self._container is not None:
            await self._container.close()

    async def read_mark(self, name: str) -> bytes | None:
        """Return what `write_mark` wrote last, None if nothing was written; raises as `append`."""
        found = await self._opened().read_all(_mark(name))
        return None if found is None else found.content

    async def write_mark(self, name: str, content: bytes) -> None:
        """Keep a small document by name, beside the journal; raises as `append`."""
        await self._opened().replace(_mark(name), content)

    def _opened(self) -> BlobContainer:
        if self._container is None:
            self._container = self._open_container()
        return self._container

    async def _append(self, stream: Stream, member: bytes) -> None:
        blob = self._blobs.get(stream)
        if blob is not None and blob.uncertain is not None:
            is_same = blob.uncertain == member
            if await self._has_landed(stream, blob) and is_same:
                return
        while True:
            blob = await self._current(stream)
            try:
                await _write(blob, member)
            except AppendFailed as failed:
                if failed.failure is Failure.BLOB_ENDED:
                    del self._blobs[stream]
                    continue
                if failed.failure is Failure.NOT_WRITTEN:
                    blob.uncertain = None
                    raise failed.error from failed
                if await self._has_landed(stream, blob):
                    return
                if failed.failure is not Failure.MOVED or stream in self._blobs:
                    raise failed.error from failed
            else:
                return

    async def _has_landed(self, stream: Stream, blob: _Blob) -> bool:
        """Find out whether the uncertain member is in *blob*; forget a blob that has anything else at its end."""
        member = blob.uncertain or b""
        size = await blob.blob.size()
        if size == blob.size:
            blob.uncertain = None
            return False
        if size == blob.size + len(member) and await blob.blob.read(blob.size, len(member)) == member:
            blob.size, blob.blocks, blob.uncertain = size, blob.blocks + 1, None
            return True
        del self._blobs[stream]
        return False

    async def _current(self, stream: Stream) -> _Blob:
        """Return the blob to append to: a new one in a new hour or when the last is full."""
        now = self._clock.now()
        hour = now.strftime("date=%Y-%m-%d/hour=%H")
        blob = self._blobs.get(stream)
        if blob is None or blob.hour != hour or blob.blocks >= self._block_limit:
            path = f"task={stream.task}/{hour}/role={stream.role}/{self._name}"
            blob = self._blobs[stream] = _Blob(await self._create(path, now), hour)
        return blob

    async def _create(self, path: str, now: datetime) -> AppendBlob:
        epoch = _milliseconds(now)
        for later in range(_NAMES_TRIED):
            name = f"{path}-{epoch + later}.jsonl.gz"
            created = await self._opened().create_append_blob(name, "application/gzip")
            if created is not None:
                return created
        raise TargetUnavailable(f"journal {path}: the {_NAMES_TRIED} names from {epoch} on are taken")


async def _write(blob: _Blob, member: bytes) -> None:
    blob.uncertain = member
    blob.blocks = await blob.blob.append(member, blob.size)
    blob.size += len(member)
    blob.uncertain = None


def _mark(name: str) -> str:
    return f"marks/{name}.json"


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
