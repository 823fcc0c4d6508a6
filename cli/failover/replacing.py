"""
Files that are replaced whole: who reads one sees the old or the new content, and two writers take turns.

What is replaced is the file that a symbolic link leads to; the link stays.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.failover.register import FailoverRefused


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of *path* waiting; raises FailoverRefused where its folder is not there."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise FailoverRefused(f"{path}: its folder cannot be opened, {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace(path: Path, content: bytes) -> None:
    """Put *content* in place of what *path* holds, as much its owner's, and on the disk before anybody sees it."""
    path = path.resolve()
    try:
        before = path.stat()
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                _belong(file.fileno(), before)
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FailoverRefused(f"{path}: cannot be replaced, {error.strerror or error}") from error


def _belong(file: int, before: os.stat_result) -> None:
    """Give *file* the owner, group and permissions of *before*; raises PermissionError where readers would lose it."""
    made = os.fstat(file)
    try:
        # Some file systems know no owners, and refuse to be told of one.
        if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
            os.fchown(file, before.st_uid, before.st_gid)
    except PermissionError as error:
        if not before.st_mode & stat.S_IROTH:
            told = f"it belongs to user {before.st_uid}, group {before.st_gid}, expected to be run as that user or root"
            raise PermissionError(error.errno, told) from error
    os.fchmod(file, stat.S_IMODE(before.st_mode))


def content_of(path: Path) -> bytes:
    """Return what *path* holds; raises FailoverRefused."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FailoverRefused(f"{path}: cannot be read, {error.strerror or error}") from error
