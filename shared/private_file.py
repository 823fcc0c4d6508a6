"""Files with keys, messages or state, which only their owner may read: from the first byte, whatever the umask is."""

import contextlib
import os
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

PRIVATE_UMASK = 0o077
"""For child processes whose files are like that."""


def open_private(path: Path, mode: Literal["w", "a"] = "w") -> TextIOWrapper:
    """Open a file of text for writing or appending; one that is new or overwritten gets the mode 0600."""
    return open(path, mode, encoding="utf-8", opener=_opened)


def write_private(path: Path, text: str) -> None:
    """Write *text* to a private file."""
    with open_private(path) as file:
        file.write(text)


def _opened(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    if flags & os.O_TRUNC:
        # It may be older; one of another owner keeps its mode.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o600)
    return descriptor
