"""
Files in a folder, abfss or DBFS, through the Hadoop file systems that Spark brings.

Renaming a folder is atomic on a local disk, HDFS and storage accounts with a hierarchical namespace.
"""

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyspark.sql import SparkSession


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

    def is_local(self, path: str) -> bool:
        """Return whether *path* is on this machine."""
        return bool(self._at(path)[1].getScheme() == "file")

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
