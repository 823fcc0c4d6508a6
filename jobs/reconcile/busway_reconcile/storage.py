"""
Files in a folder, abfss or DBFS, through the Hadoop file systems that Spark brings; folders of this machine without.

Renaming a folder is atomic on a local disk, HDFS and storage accounts with a hierarchical namespace.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from busway_reconcile.session import Session

_LOCAL = "file:"


class StoredFile(NamedTuple):
    """A file: its address, its size in bytes, and its last change in milliseconds since 1970."""

    path: str
    size: int
    modified: int


class Storage:
    """File operations that Spark does not offer itself."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the configuration of *spark*."""
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other access to Hadoop's file systems
        self._configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - same reason
        # A name costs a call to Java for each of its dots.
        self._path = jvm.org.apache.hadoop.fs.Path
        self._streams = jvm.org.apache.commons.io.IOUtils
        self._bounded = jvm.org.apache.commons.io.input.BoundedInputStream
        self._digests = jvm.org.apache.commons.codec.digest.DigestUtils
        self._systems: dict[str, Any] = {}

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below *folder* in the order of their paths; an empty list if the folder is missing."""
        path, system = self._at(folder)
        if not system.exists(path):
            return []
        found, folders = [], [path]
        while folders:
            # listFiles() also asks for permissions, for which Hadoop starts a process for each local file.
            for status in system.listStatus(folders.pop()):
                if status.isDirectory():
                    folders.append(status.getPath())
                else:
                    where = status.getPath().toString()
                    found.append(StoredFile(where, int(status.getLen()), int(status.getModificationTime())))
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in *folder*."""
        path, system = self._at(folder)
        if not system.exists(path):
            return []
        return sorted(each.getPath().getName() for each in system.listStatus(path) if each.isDirectory())

    def exists(self, path: str) -> bool:
        """Return whether a file or folder *path* exists."""
        where, system = self._at(path)
        return bool(system.exists(where))

    def delete(self, path: str) -> None:
        """Remove *path* with all below it, if it exists."""
        where, system = self._at(path)
        system.delete(where, True)

    def move(self, source: str, target: str) -> None:
        """Rename *source* to *target*, replacing what is there."""
        self.delete(target)
        where, system = self._at(target)
        system.mkdirs(where.getParent())
        if not system.rename(self._at(source)[0], where):
            raise OSError(f"{source}: cannot be renamed to {target}")

    def read(self, path: str) -> str:
        """Return the text of the file *path*."""
        where, system = self._at(path)
        stream = system.open(where)
        try:
            return str(self._streams.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def digest(self, path: str, size: int) -> str:
        """Return the SHA-256 of the first *size* bytes of the file *path*."""
        where, system = self._at(path)
        stream = system.open(where)
        try:
            return str(self._digests.sha256Hex(self._bounded(stream, size)))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write the file *path*, or replace it, completely or not at all."""
        where, system = self._at(f"{path}.new")
        system.mkdirs(where.getParent())
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(f"{path}.new", path)

    def absolute(self, path: str) -> str:
        """Return *path* with its scheme, as Spark shows it."""
        where, system = self._at(path)
        return str(system.makeQualified(where).toString())

    def _at(self, text: str) -> tuple[Any, Any]:
        path = self._path(text)
        parts = urlsplit(text)
        place = f"{parts.scheme}://{parts.netloc}"
        if place not in self._systems:
            system = path.getFileSystem(self._configuration)
            if system.getScheme() == "file":
                system.setWriteChecksum(False)
            self._systems[place] = system
        return path, self._systems[place]


class LocalStorage(Storage):
    """The same for folders of this machine, without Spark and Java."""

    def __init__(self) -> None:
        """Need nothing."""

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below *folder* in the order of their paths; an empty list if the folder is missing."""
        path = _local(folder)
        if not path.exists():
            return []
        found = []
        # A folder that cannot be listed is an error: its journals would be missing from the evidence.
        for parent, _, names in os.walk(path, onerror=_raise, followlinks=True):
            for name in names:
                if name.startswith(".") and name.endswith(".crc"):
                    continue  # a checksum of Hadoop's, which its own listing hides
                file = Path(parent, name)
                state = file.stat()
                found.append(StoredFile(f"{_LOCAL}{file}", state.st_size, state.st_mtime_ns // 1_000_000))
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in *folder*."""
        path = _local(folder)
        return sorted(path.name for path in path.iterdir() if path.is_dir()) if path.exists() else []

    def exists(self, path: str) -> bool:
        """Return whether a file or folder *path* exists."""
        return _local(path).exists()

    def delete(self, path: str) -> None:
        """Remove *path* with all below it, if it exists."""
        where = _local(path)
        if where.is_dir() and not where.is_symlink():
            shutil.rmtree(where)
        else:
            where.unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        """Rename *source* to *target*, replacing what is there."""
        self.delete(target)
        where = _local(target)
        where.parent.mkdir(parents=True, exist_ok=True)
        _local(source).rename(where)

    def read(self, path: str) -> str:
        """Return the text of the file *path*."""
        return _local(path).read_bytes().decode()

    def digest(self, path: str, size: int) -> str:
        """Return the SHA-256 of the first *size* bytes of the file *path*."""
        found, left = hashlib.sha256(), size
        with _local(path).open("rb") as file:
            while left and (piece := file.read(min(left, 1 << 20))):
                found.update(piece)
                left -= len(piece)
        return found.hexdigest()

    def write(self, path: str, text: str) -> None:
        """Write the file *path*, or replace it, completely or not at all."""
        where = _local(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        new = where.with_name(f"{where.name}.new")
        new.write_text(text, encoding="utf-8", newline="")
        new.replace(where)

    def absolute(self, path: str) -> str:
        """Return *path* with its scheme, as Spark shows it."""
        return f"{_LOCAL}{_local(path)}"


def storage_of(session: Session, *addresses: str) -> Storage:
    """Return the storage of *addresses*: that of this machine if they are folders of it, so that nothing waits."""
    if session.has_local_disk and all(urlsplit(address).scheme in ("", "file") for address in addresses):
        return LocalStorage()
    return Storage(session.spark)


def _raise(error: OSError) -> None:
    raise error


def _local(address: str) -> Path:
    path = address.removeprefix(_LOCAL)
    # An address may have two more slashes, which belong to no host.
    return Path(os.path.abspath(f"/{path.lstrip('/')}" if path.startswith("/") else path))  # noqa: PTH100 - keeps links
