"""Files that are replaced whole: who reads one sees the old or the new content, and two writers take turns."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.failover.register import FailoverRefused


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of *path* waiting; raises FailoverRefused where its folder is not there."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise FailoverRefused(f"{path}: its folder cannot be opened, {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace(path: Path, content: bytes) -> None:
    """Put *content* in place of what *path* holds, with its permissions, and on the disk before anybody sees it."""
    try:
        mode = path.stat().st_mode & 0o777
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
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


def content_of(path: Path) -> bytes:
    """Return what *path* holds; raises FailoverRefused."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FailoverRefused(f"{path}: cannot be read, {error.strerror or error}") from error
