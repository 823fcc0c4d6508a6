"""
Files where Spark finds them: a folder, abfss, DBFS, through the Hadoop file systems that Spark brings.

Renaming a folder is atomic on a local disk, HDFS and storage accounts with a hierarchical namespace.
"""

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file: its address, the bytes it had and the time of its last change in milliseconds since 1970."""

    path: str
    size: int
    modified: int


class Storage:
    """What the job does to files beside Spark's own reading and writing."""

    def __init__(self, spark: SparkSession) -> None:
        """Use the configuration of *spark*."""
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark offers Hadoop's file systems by no other way
        self._configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - likewise

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below *folder* in the order of their paths; none where there is no such folder."""
        path, system = self._at(folder)
        if not system.exists(path):
            return []
        found = []
        walk = system.listFiles(path, True)
        while walk.hasNext():
            status = walk.next()
            found.append(
                StoredFile(status.getPath().toString(), int(status.getLen()), int(status.getModificationTime()))
            )
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders right in *folder*."""
        path, system = self._at(folder)
        if not system.exists(path):
            return []
        return sorted(each.getPath().getName() for each in system.listStatus(path) if each.isDirectory())

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder *path*."""
        where, system = self._at(path)
        return bool(system.exists(where))

    def delete(self, path: str) -> None:
        """Remove *path* with all below it; nothing happens where there is none."""
        where, system = self._at(path)
        system.delete(where, True)

    def move(self, source: str, target: str) -> None:
        """Give *source* the name *target*, which takes the place of what is there."""
        self.delete(target)
        where, system = self._at(target)
        system.mkdirs(where.getParent())
        if not system.rename(self._at(source)[0], where):
            raise OSError(f"{source}: could not be renamed to {target}")

    def read(self, path: str) -> str:
        """Return the text of the file *path*."""
        where, system = self._at(path)
        stream = system.open(where)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Make the file *path*, or put it in the place of the old one, all of it or nothing."""
        where, system = self._at(f"{path}.new")
        system.mkdirs(where.getParent())
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(f"{path}.new", path)

    def absolute(self, path: str) -> str:
        """Return *path* with its scheme, as Spark names the files below it."""
        where, system = self._at(path)
        return str(system.makeQualified(where).toString())

    def _at(self, text: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(text)
        system = path.getFileSystem(self._configuration)
        if system.getScheme() == "file":
            system.setWriteChecksum(False)
        return path, system
