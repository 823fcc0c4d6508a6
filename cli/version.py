"""The version of this Busway, and the commit of one that is not released."""

import contextlib
import subprocess
from importlib.metadata import version

from busway import IS_CHECKOUT, ROOT


def build() -> str:
    """Return the version; of one in development with its commit, as in 0.3.0.dev0+g1a2b3c4d5."""
    released, commit = version("busway"), ""
    if ".dev" in released and not IS_CHECKOUT:
        commit = (ROOT / "commit").read_text(encoding="utf-8")
    elif ".dev" in released:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD"]
        with contextlib.suppress(FileNotFoundError):
            commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - our own arguments
    return f"{released}+g{commit.strip()}" if commit.strip() else released
