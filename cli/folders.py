"""Folders under build/ that only one run uses at a time."""

import contextlib
import fcntl
import itertools
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def free_folder(folder: Path) -> Iterator[Path]:
    """Yield *folder*, or FOLDER-2 and so on while other runs use it."""
    for number in itertools.count(1):
        mine = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        # Logs, keys and messages of the run are inside.
        mine.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (mine / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield mine
            return
