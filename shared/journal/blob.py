"""
The journal in append blobs of a storage account.

1. Each stream of an instance has a blob for each hour; what is appended to it is gzip members.
2. What comes while an append is under way is appended together, in one request: batches side by side share round trips.
3. An append names the position that it expects. If the answer is lost, or the position is another one, the end of the
   blob is read to see whether the member is there, so that nothing is written twice.
4. A writer that finds anything else at the end continues in another blob, as after a full one.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.sink import Stream
from shared.stores.append_blob import AppendBlob, AppendFailed, Failure
from shared.stores.container import BlobContainer

BLOCK_LIMIT = 50_000
# An append block may have 4 MiB (Azure Storage, "Append Block"; more since version 2022-11-02).
BLOCK_BYTES = 4 << 20
# More callers than this do not append side by side.
_LANDED_KEPT = 1000

_INSTANCE = re.compile(r"[^a-z0-9]")
_INSTANCE_LENGTH = 32
# Two processes of one instance may start in the same millisecond; more attempts would not help.
_NAMES_TRIED = 10


@dataclass(slots=True)
class _Blob:
    """A blob being written: its hour, its known size and number of blocks, and members that may be at its end."""

    blob: AppendBlob
    hour: str
    size: int = 0
    blocks: int = 0
    uncertain: Sequence[bytes] | None = None


class _Waiting:
    """A member that its caller waits for, and the error once it could not be written."""

    def __init__(self, member: bytes) -> None:
        self.member = member
        self.error: TargetUnavailable | TargetRefused | None = None


class _Writing:
    """The members of one stream that wait, and those that were found at the end of the blob after an error."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting: list[_Waiting] = []
        self.landed: deque[bytes] = deque(maxlen=_LANDED_KEPT)

    def take(self) -> list[_Waiting]:
        """Return what goes in the next request."""
        size = count = 0
        for each in self.waiting:
            size += len(each.member)
            if count and size > BLOCK_BYTES:
                break
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def has_landed(self, member: bytes) -> bool:
        """Return whether *member* is in the blob already, once for each time that it was found there."""
        if member not in self.landed:
            return False
        self.landed.remove(member)
        return True


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
        self._writing: dict[Stream, _Writing] = {}
        self._block_limit = block_limit

    async def append(self, stream: Stream, member: bytes) -> None:
        """
        Append *member* to the blob of the current hour.

        Raises: TargetUnavailable or TargetRefused if it may not have been written; a call with the same bytes then
                checks first.
        """
        writing = self._writing.setdefault(stream, _Writing())
        own = _Waiting(member)
        writing.waiting.append(own)
        try:
            async with writing.turn:
                if own in writing.waiting:
                    await self._append_group(stream, writing.take())
        finally:
            if own in writing.waiting:
                writing.waiting.remove(own)
        if own.error is not None:
            raise own.error

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

    def container(self) -> BlobContainer:
        """Return the container, to read what all instances have written."""
        return self._opened()

    def _opened(self) -> BlobContainer:
        if self._container is None:
            self._container = self._open_container()
        return self._container

    async def _append_group(self, stream: Stream, group: Sequence[_Waiting]) -> None:
        """Append what several callers wait for; each of them gets the error."""
        for each in group:  # in case that this caller is cancelled
            each.error = TargetUnavailable(f"journal {stream.task}: the append was interrupted")
        error = None
        try:
            await self._append(stream, [each.member for each in group])
        except (TargetUnavailable, TargetRefused) as failed:
            error = failed
        for each in group:
            each.error = error

    async def _append(self, stream: Stream, members: Sequence[bytes]) -> None:
        writing = self._writing[stream]
        blob = self._blobs.get(stream)
        if blob is not None and blob.uncertain is not None:
            uncertain = blob.uncertain
            if await self._has_landed(stream, blob):
                writing.landed.extend(uncertain)
        members = [member for member in members if not writing.has_landed(member)]
        while members:
            blob = await self._current(stream)
            try:
                await _write(blob, members)
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
        member = b"".join(blob.uncertain or ())
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


async def _write(blob: _Blob, members: Sequence[bytes]) -> None:
    blob.uncertain = members
    block = b"".join(members)
    blob.blocks = await blob.blob.append(block, blob.size)
    blob.size += len(block)
    blob.uncertain = None


def _mark(name: str) -> str:
    return f"marks/{name}.json"


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
