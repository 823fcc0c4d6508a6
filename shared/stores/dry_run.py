"""
Stores for the editors of a dry run (`TaskFacts.dry_run`): they are read, and never written.

Writes are kept in memory, so that a message finds what earlier messages would have written.
"""

import hashlib

from shared.stores.blobs import Blob, Blobs, Tail, TooLarge, Unchanged
from shared.stores.documents import Changed, Documents


class DryRunDocuments:
    """Documents of a store, with the writes of the dry run on top."""

    def __init__(self, documents: Documents) -> None:
        """Read what has not been written here from *documents*."""
        self._documents = documents
        self._written: dict[str, Blob] = {}
        self._count = 0

    async def read_all(self, name: str) -> Blob | None:
        """Return what would be there."""
        return self._written.get(name) or await self._documents.read_all(name)

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        """Keep it here if it replaces what would be there."""
        before = await self.read_all(name)
        if version != (None if before is None else before.version):
            raise Changed(f"document {name}: another instance has replaced it")
        self._count += 1
        self._written[name] = Blob(content, f"dry run {self._count}")
        return self._written[name].version


class DryRunBlobs:
    """Blobs of a store, with the writes of the dry run on top."""

    def __init__(self, blobs: Blobs) -> None:
        """Read what has not been written or deleted here from *blobs*."""
        self.url = blobs.url
        self._blobs = blobs
        self._written: dict[str, bytes | None] = {}

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:  # noqa: ARG002 - nobody asks for it
        """Keep it here."""
        self._written[name] = content

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return what would be there."""
        if name not in self._written:
            return await self._blobs.read(name, limit=limit, known_version=known_version)
        content = self._written[name]
        if content is None:
            return None
        if len(content) > limit:
            return TooLarge(len(content))
        version = f"dry run {hashlib.sha256(content).hexdigest()}"
        return Unchanged() if version == known_version else Blob(content, version)

    async def delete(self, name: str) -> None:
        """Hide it from later reads."""
        self._written[name] = None

    async def append(self, name: str, content: bytes) -> bool:  # noqa: ARG002 - required by the protocol
        """Forget it: editors append when a message has been sent, and in a dry run none is."""
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return what has been appended."""
        return await self._blobs.tail(name, position)

    async def names(self, prefix: str) -> list[str]:
        """Return the names that would be there."""
        there = {*await self._blobs.names(prefix), *(name for name in self._written if name.startswith(prefix))}
        return sorted(name for name in there if self._written.get(name, b"") is not None)
