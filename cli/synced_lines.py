"""Lines that are on disk before the next step is taken."""

import os
from typing import TextIO


class SyncedLines:
    """Appends lines to an open file; the first one ends a line that another process may have left incomplete."""

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
