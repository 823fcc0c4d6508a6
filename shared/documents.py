"""
Small documents kept by name, each with a version that whoever writes it must have read.

An app setting says where: a storage account (a connection string, or NAME__blobServiceUri for the app's identity), or
`file:PATH`, a SQLite file, for one machine.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import StorageErrorCode
from azure.storage.blob.aio import ContainerClient

from shared.errors import BuswayError, Problem, TargetRefused, TargetUnavailable
from shared.resources import container_client, container_problem

_FILE = "file:"
_REFUSED = (401, 403)


class Document(NamedTuple):
    """What is kept under a name, and the version that it is."""

    content: bytes
    version: str


class Changed(TargetUnavailable):
    """Somebody else has written the document meanwhile: read it again."""


class Documents(Protocol):
    """
    Where documents are kept.

    Raises: TargetUnavailable or TargetRefused where it cannot be asked; what was to be written may be there then.
    """

    async def read(self, name: str) -> Document | None:
        """Return what is kept under *name*, None for nothing."""
        ...

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Replace *version*, or write the first where it is None, and return the new one; raises Changed."""
        ...


def documents_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return what is wrong with the app setting that says where documents are kept, None where it can be used."""
    text = settings.get(setting, "")
    if not text.startswith(_FILE):
        return container_problem(setting, settings)
    if not Path(text.removeprefix(_FILE)).parent.is_dir():
        return Problem(setting, "the app setting names a file in a folder that is not there", f"{_FILE}PATH of a file")
    return None


def open_documents(setting: str, settings: Mapping[str, str], container: str) -> Documents:
    """Return where the documents are that an app setting names; raises ConfigError."""
    text = settings.get(setting, "")
    if text.startswith(_FILE):
        return FileDocuments(Path(text.removeprefix(_FILE)), container)
    return BlobDocuments(container_client(setting, settings, container))


class BlobDocuments:
    """Documents that are the blobs of a container, which is made if it is not there; a version is an ETag."""

    def __init__(self, container: ContainerClient) -> None:
        """Connect at the first question."""
        self._container = container

    async def read(self, name: str) -> Document | None:
        """Return the blob's content."""
        try:
            answer = await self._container.get_blob_client(name).download_blob()
            return Document(await answer.readall(), answer.properties.etag)
        except ResourceNotFoundError:
            return None
        except (AzureError, TimeoutError) as error:
            raise _translated(name, error) from error

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Write the blob if it is still the version that was read."""
        try:
            try:
                return await self._write(name, content, version)
            except ResourceNotFoundError as error:
                if getattr(error, "error_code", None) != StorageErrorCode.CONTAINER_NOT_FOUND:
                    raise
            with contextlib.suppress(ResourceExistsError):
                await self._container.create_container()
            return await self._write(name, content, version)
        except (ResourceExistsError, ResourceModifiedError) as error:
            raise Changed(f"document {name}: another instance has written it meanwhile") from error
        except (AzureError, TimeoutError) as error:
            raise _translated(name, error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._container.close()

    async def _write(self, name: str, content: bytes, version: str | None) -> str:
        blob = self._container.get_blob_client(name)
        if version is None:
            answer = await blob.upload_blob(content, overwrite=False)
        else:
            condition = MatchConditions.IfNotModified
            answer = await blob.upload_blob(content, overwrite=True, etag=version, match_condition=condition)
        return str(answer["etag"])


class FileDocuments:
    """Documents in a SQLite file, whose writes are on the disk when they return; a version is a number."""

    def __init__(self, path: Path, folder: str) -> None:
        """Keep them below *folder* there; the file is made at the first write."""
        self._path = path
        self._folder = folder

    async def read(self, name: str) -> Document | None:
        """Return the row's content."""
        return await asyncio.to_thread(self._read_if_there, name)

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Write the row if it is still the version that was read."""
        return await asyncio.to_thread(self._translating, lambda opened: self._write(opened, name, content, version))

    def _read_if_there(self, name: str) -> Document | None:
        return self._translating(lambda opened: self._read(opened, name)) if self._path.exists() else None

    def _translating[T](self, work: "_Work[T]") -> T:
        try:
            with closing(sqlite3.connect(self._path, autocommit=True)) as opened:
                # Begun as a reader, a transaction that comes to write fails at once where another one writes.
                opened.execute("BEGIN IMMEDIATE")
                opened.execute(
                    "CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, version INTEGER, content BLOB)"
                )
                answer = work(opened)
                opened.execute("COMMIT")
                return answer
        except sqlite3.OperationalError as error:
            raise TargetUnavailable(f"{self._path.name}: {error.sqlite_errorname}") from error
        except sqlite3.DatabaseError as error:
            raise TargetRefused(f"{self._path.name}: is no file of documents, {error.sqlite_errorname}") from error

    def _read(self, opened: sqlite3.Connection, name: str) -> Document | None:
        row = opened.execute("SELECT content, version FROM documents WHERE name = ?", [self._key(name)]).fetchone()
        return None if row is None else Document(row[0], str(row[1]))

    def _write(self, opened: sqlite3.Connection, name: str, content: bytes, version: str | None) -> str:
        if version is None:
            number = 1
            done = opened.execute("INSERT OR IGNORE INTO documents VALUES (?, 1, ?)", [self._key(name), content])
        else:
            number = int(version) + 1
            done = opened.execute(
                "UPDATE documents SET version = ?, content = ? WHERE name = ? AND version = ?",
                [number, content, self._key(name), int(version)],
            )
        if done.rowcount != 1:
            raise Changed(f"document {name}: another process has written it meanwhile")
        return str(number)

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"


class _Work[T](Protocol):
    def __call__(self, opened: sqlite3.Connection, /) -> T: ...


def _translated(name: str, error: AzureError | TimeoutError) -> BuswayError:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    told = f"document {name}: " + (f"the storage account answers {status}, {code}" if status else type(error).__name__)
    if status in _REFUSED or isinstance(error, ClientAuthenticationError):
        return TargetRefused(f"{told}, expected the app's identity to have the role Storage Blob Data Contributor")
    return TargetUnavailable(told)
