"""
Small documents kept by name, each with a version that whoever writes it must have read.

An app setting says where: a storage account (a connection string, or NAME__blobServiceUri for the app's identity), or
`file:PATH`, a SQLite file, for one machine.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from shared.errors import Problem, TargetUnavailable
from shared.stores.sqlite_file import PREFIX, SqliteFile
from shared.stores.storage_account import container_client, container_problem, in_container, translated

_TABLES = ["documents (name TEXT PRIMARY KEY, version INTEGER, content BLOB)"]


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
    if not text.startswith(PREFIX):
        return container_problem(setting, settings)
    if not Path(text.removeprefix(PREFIX)).parent.is_dir():
        return Problem(setting, "the app setting names a file in a folder that is not there", f"{PREFIX}PATH of a file")
    return None


def open_documents(setting: str, settings: Mapping[str, str], container: str) -> Documents:
    """Return where the documents are that an app setting names; raises ConfigError."""
    text = settings.get(setting, "")
    if text.startswith(PREFIX):
        return FileDocuments(Path(text.removeprefix(PREFIX)), container)
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
            raise translated(f"document {name}", error) from error

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Write the blob if it is still the version that was read."""
        try:
            return await in_container(self._container, lambda: self._write(name, content, version))
        except (ResourceExistsError, ResourceModifiedError) as error:
            raise Changed(f"document {name}: another instance has written it meanwhile") from error
        except (AzureError, TimeoutError) as error:
            raise translated(f"document {name}", error) from error

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
    """Documents in a SQLite file; a version is a number."""

    def __init__(self, path: Path, folder: str) -> None:
        """Keep them below *folder* there; the file is made at the first write."""
        self._file = SqliteFile(path, _TABLES, "documents")
        self._folder = folder

    async def read(self, name: str) -> Document | None:
        """Return the row's content."""
        return await self._file.do(lambda opened: self._read(opened, name)) if self._file.is_there else None

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Write the row if it is still the version that was read."""
        return await self._file.do(lambda opened: self._write(opened, name, content, version))

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
