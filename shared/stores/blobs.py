"""
Bodies, tables and lists that grow, kept by name.

An app setting says where, as for `shared.stores.documents`: a storage account, or `file:PATH`, a SQLite file for one
machine.
"""

import asyncio
import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ResourceNotModifiedError,
)
from azure.storage.blob import ContentSettings, StorageErrorCode
from azure.storage.blob.aio import ContainerClient

from shared.errors import TargetUnavailable
from shared.stores.sqlite_file import PREFIX, SqliteFile
from shared.stores.storage_account import container_client, in_container, translated

BLOCK_LIMIT = 50_000

_AT_ONCE = 8
_TABLES = [
    "blobs (name TEXT PRIMARY KEY, content BLOB)",
    "appended (name TEXT, start INTEGER, stop INTEGER, content BLOB, PRIMARY KEY (name, start))",
]
_RANGE_NOT_SATISFIABLE = 416


class Blob(NamedTuple):
    """What is kept under a name, and the version that it is."""

    content: bytes
    version: str


class Unchanged(NamedTuple):
    """That what is kept under a name is still the version that is known."""


class TooLarge(NamedTuple):
    """That what is kept under a name is larger than may be read."""

    size: int


class Tail(NamedTuple):
    """What has been appended since, and whether no more can be."""

    content: bytes
    is_full: bool


class Blobs(Protocol):
    """
    Where blobs are kept.

    Raises: TargetUnavailable or TargetRefused where it cannot be asked; what was to be written may be there then.
    """

    url: str
    """Address of the container, without a secret."""

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:
        """Keep *content* under *name*, all of it or nothing; what is there already with the same content stays."""
        ...

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return what is kept under *name*, None for nothing."""
        ...

    async def delete(self, name: str) -> None:
        """Keep nothing under *name*."""
        ...

    async def append(self, name: str, content: bytes) -> bool:
        """Add to what is appended under *name*; False where no more can be. Called again, it may be there twice."""
        ...

    async def tail(self, name: str, position: int) -> Tail:
        """Return what has been appended under *name* behind so many bytes."""
        ...

    async def names(self, prefix: str) -> list[str]:
        """Return the names that begin so, in order."""
        ...


def open_blobs(setting: str, settings: Mapping[str, str], container: str) -> Blobs:
    """Return where the blobs are kept that an app setting names; raises ConfigError."""
    text = settings.get(setting, "")
    if text.startswith(PREFIX):
        return FileBlobs(Path(text.removeprefix(PREFIX)), container)
    return AzureBlobs(container_client(setting, settings, container))


class AzureBlobs:
    """The blobs of a container, which is made if it is not there; a version is an ETag."""

    def __init__(self, container: ContainerClient) -> None:
        """Connect at the first question."""
        self._container = container
        # A shared access signature stands behind the question mark.
        self.url = container.url.partition("?")[0].rstrip("/")

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:
        """Write a block blob, whose MD5 the service checks on its arrival and keeps."""
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        settings = ContentSettings(content_type=content_type, content_md5=bytearray(digest))
        blob = self._container.get_blob_client(name)

        async def uploaded(*, overwrite: bool) -> None:
            await blob.upload_blob(content, overwrite=overwrite, content_settings=settings, validate_content="md5")

        async with _translated(name):
            try:
                await in_container(self._container, lambda: uploaded(overwrite=False))
            except (ResourceExistsError, ResourceModifiedError):
                found = await blob.get_blob_properties()
                md5 = found.content_settings.content_md5
                if found.size != len(content) or md5 is None or bytes(md5) != digest:
                    await uploaded(overwrite=True)

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return the blob's content."""
        blob = self._container.get_blob_client(name)
        async with _translated(name):
            try:
                found = await blob.get_blob_properties()
                if found.etag == known_version:
                    return Unchanged()
                if found.size > limit:
                    return TooLarge(found.size)
                # Of the version that is small enough, and no other one.
                condition = MatchConditions.IfNotModified
                answer = await blob.download_blob(etag=found.etag, match_condition=condition)
                return Blob(await answer.readall(), found.etag)
            except ResourceNotFoundError:
                return None
            except (ResourceModifiedError, ResourceNotModifiedError) as error:
                raise TargetUnavailable(f"blob {name}: it was replaced while it was read") from error
        return None

    async def delete(self, name: str) -> None:
        """Delete the blob with its snapshots."""
        async with _translated(name):
            with contextlib.suppress(ResourceNotFoundError):
                await self._container.delete_blob(name, delete_snapshots="include")

    async def append(self, name: str, content: bytes) -> bool:
        """Append a block, wherever the blob ends by then."""
        blob = self._container.get_blob_client(name)

        async def created() -> None:
            with contextlib.suppress(ResourceExistsError, ResourceModifiedError):
                await blob.create_append_blob(match_condition=MatchConditions.IfMissing)

        async with _translated(name):
            try:
                try:
                    await blob.append_block(content, length=len(content))
                except ResourceNotFoundError:
                    await in_container(self._container, created)
                    await blob.append_block(content, length=len(content))
            except HttpResponseError as error:
                if getattr(error, "error_code", None) != StorageErrorCode.BLOCK_COUNT_EXCEEDS_LIMIT:
                    raise
                return False
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return what there is behind *position*, nothing of a blob that is not there."""
        async with _translated(name):
            try:
                answer = await self._container.get_blob_client(name).download_blob(offset=position)
                content = await answer.readall()
                return Tail(content, (answer.properties.append_blob_committed_block_count or 0) >= BLOCK_LIMIT)
            except ResourceNotFoundError:
                pass
            except HttpResponseError as error:
                if error.status_code != _RANGE_NOT_SATISFIABLE:
                    raise
        return Tail(b"", is_full=False)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of blobs; of a container that is not there, none."""
        async with _translated(prefix):
            try:
                return [str(name) async for name in self._container.list_blob_names(name_starts_with=prefix)]
            except ResourceNotFoundError:
                pass
        return []

    async def close(self) -> None:
        """Close the connection."""
        await self._container.close()


class FileBlobs:
    """Blobs in a SQLite file; a version is a digest."""

    def __init__(self, path: Path, folder: str) -> None:
        """Keep them below *folder* there; the file is made at the first write."""
        self._file = SqliteFile(path, _TABLES, "blobs")
        self._folder = folder
        self.url = f"{PREFIX}{path.name}/{folder}"

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:  # noqa: ARG002 - nobody asks a file for it
        """Write the row."""
        await self._file.do(
            lambda opened: opened.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", [self._key(name), content])
        )

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return the row's content."""
        query = "SELECT content FROM blobs WHERE name = ?"
        row = (
            await self._file.do(lambda opened: opened.execute(query, [self._key(name)]).fetchone())
            if self._file.is_there
            else None
        )
        if row is None:
            return None
        if len(row[0]) > limit:
            return TooLarge(len(row[0]))
        version = hashlib.sha256(row[0]).hexdigest()
        return Unchanged() if version == known_version else Blob(row[0], version)

    async def delete(self, name: str) -> None:
        """Delete the rows."""

        def deleted(opened: sqlite3.Connection) -> None:
            opened.execute("DELETE FROM blobs WHERE name = ?", [self._key(name)])
            opened.execute("DELETE FROM appended WHERE name = ?", [self._key(name)])

        await self._file.do(deleted)

    async def append(self, name: str, content: bytes) -> bool:
        """Add a row."""
        await self._file.do(
            lambda opened: opened.execute(
                "INSERT INTO appended SELECT ?, coalesce(max(stop), 0), coalesce(max(stop), 0) + ?, ?"
                " FROM appended WHERE name = ?",
                [self._key(name), len(content), content, self._key(name)],
            )
        )
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return the rows behind *position*, which is where one of them begins."""
        query = "SELECT content FROM appended WHERE name = ? AND start >= ? ORDER BY start"
        if not self._file.is_there:
            return Tail(b"", is_full=False)
        rows = await self._file.do(lambda opened: opened.execute(query, [self._key(name), position]).fetchall())
        return Tail(b"".join(row[0] for row in rows), is_full=False)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of rows."""
        query = (
            "SELECT name FROM blobs WHERE substr(name, 1, ?1) = ?2"
            " UNION SELECT name FROM appended WHERE substr(name, 1, ?1) = ?2 ORDER BY name"
        )
        key = self._key(prefix)
        if not self._file.is_there:
            return []
        rows = await self._file.do(lambda opened: opened.execute(query, [len(key), key]).fetchall())
        return [row[0][len(self._key("")) :] for row in rows]

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"


async def some_at_once[T](works: Iterable[Awaitable[T]]) -> list[T]:
    """Return what the *works* return, some of which are done at a time; the first fault is raised, and ends it."""
    left = enumerate(works)
    answers: dict[int, T] = {}
    faults: list[Exception] = []

    async def worker() -> None:
        for index, work in left:
            try:
                answers[index] = await work
            except Exception as error:  # noqa: BLE001 - raised below
                faults.append(error)
            if faults:
                break

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))
    if faults:
        raise faults[0]
    return [answers[index] for index in range(len(answers))]


@asynccontextmanager
async def answered_within(seconds: float, place: str) -> AsyncIterator[None]:
    """Let a store take so long and no longer; raises TargetUnavailable."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TargetUnavailable(f"{place}: the store has not answered within {seconds:.0f} s") from error


@asynccontextmanager
async def _translated(name: str) -> AsyncIterator[None]:
    try:
        yield
    except AzureError as error:
        raise translated(f"blob {name}", error) from error
