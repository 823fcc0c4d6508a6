"""Files that are whole, on disk, or in the hands of one process at a time."""

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from shared.errors import ConfigError, Problem
from shared.printable import printable
from shared.private_file import open_private

_LONGEST_OWNER = 200


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[TextIOWrapper]:
    """Yield a new private file, which takes the place of *path* at the end of the block, on disk; raises OSError."""
    beside = path.with_name(path.name + ".part")
    try:
        with open_private(beside) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


class SyncedLines:
    """Appends lines that are on disk before the next step is taken; the first ends one that was left incomplete."""

    def __init__(self, file: TextIO) -> None:
        """Append to *file*, which is positioned at its end and is closed by the caller."""
        self._descriptor = file.fileno()
        self._before = "\n" if file.tell() else ""

    def append(self, line: str) -> None:
        """Write *line* and a line feed to disk; raises OSError, after which a part of the line may be there."""
        content, self._before = (f"{self._before}{line}\n").encode(), "\n"
        while content:
            content = content[os.write(self._descriptor, content) :]
        os.fsync(self._descriptor)
        self._before = ""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """
    Hold the lock on *path* inside the block; ConfigError if another process has it, or if it cannot be written.

    The operating system ends the lock with the process, however that ends: none is ever stale. It holds between
    processes of one machine; on a network share it depends on the share.
    """
    beside = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open_private(beside, "a")
    except OSError as error:
        raise ConfigError([Problem(str(path), f"cannot be written: {error.strerror}")]) from error
    with file:
        if not _has_locked(file):
            owner = printable(beside.read_text(encoding="utf-8", errors="replace").strip()[:_LONGEST_OWNER])
            used = f"is in use by {owner or 'another process'}"
            raise ConfigError([Problem(str(path), used, "wait until it ends, or stop it")])
        # The file stays: deleting it would let a third process lock a new file beside one that waits for this one.
        file.truncate(0)
        file.write(f"process {os.getpid()}, started {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n")
        file.flush()
        yield


@contextlib.contextmanager
def free_folder(folder: Path) -> Iterator[Path]:
    """Yield *folder*, or FOLDER-2 and so on while other runs use it."""
    for number in itertools.count(1):
        mine = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        # Logs, keys and messages of the run are inside.
        mine.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (mine / ".lock").open("w") as lock:
            if _has_locked(lock):
                yield mine
                return


def _has_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
