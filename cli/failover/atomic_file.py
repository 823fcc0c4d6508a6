"""
Atomic replacement of files: readers see the old or the new content, and writers take turns.

A symbolic link stays, and the file that it points to is replaced.
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
def lock(path: Path) -> Iterator[None]:
    """Make other writers of *path* wait; raises FailoverRefused if its folder cannot be opened."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise FailoverRefused(f"{path}: its folder cannot be opened, {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of *path*, with the same owner and permissions, flushed to the disk before it is visible."""
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
    """Give *file* the owner, group and permissions of *before*; raises PermissionError if readers would lose access."""
    made = os.fstat(file)
    try:
        # Only if they differ: some file systems have no owners and reject any.
        if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
            os.fchown(file, before.st_uid, before.st_gid)
    except PermissionError as error:
        if not before.st_mode & stat.S_IROTH:
            text = f"it belongs to user {before.st_uid}, group {before.st_gid}; run as that user or root"
            raise PermissionError(error.errno, text) from error
    os.fchmod(file, stat.S_IMODE(before.st_mode))


def read_file(path: Path) -> bytes:
    """Return the content of *path*; raises FailoverRefused."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FailoverRefused(f"{path}: cannot be read, {error.strerror or error}") from error
