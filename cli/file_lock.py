"""
A lock beside a file that only one process at a time may work with.

The operating system holds it, and ends it with the process, however that ends: no lock is ever stale. It holds between
processes of one machine; on a network share it depends on the share.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from shared.errors import ConfigError, Problem
from shared.printable import printable
from shared.private_file import open_private

_LONGEST_OWNER = 200


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on *path* inside the block; ConfigError if another process has it, or if it cannot be written."""
    beside = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open_private(beside, "a")
    except OSError as error:
        raise ConfigError([Problem(str(path), f"cannot be written: {error.strerror}")]) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = printable(beside.read_text(encoding="utf-8", errors="replace").strip()[:_LONGEST_OWNER])
            used = f"is in use by {owner or 'another process'}"
            raise ConfigError([Problem(str(path), used, "wait until it ends, or stop it")]) from error
        # The file stays: deleting it would let a third process lock a new file beside one that waits for this one.
        file.truncate(0)
        file.write(f"process {os.getpid()}, started {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n")
        file.flush()
        yield
