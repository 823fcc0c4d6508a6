"""Files that are there completely or not at all."""

import contextlib
import os
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from shared.private_file import open_private


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
