"""The version of this Busway, and the commit of one that is not released."""

import subprocess
from importlib.metadata import version

from busway import IS_CHECKOUT, ROOT


def build() -> str:
    """Return the version; of one in development with its commit, as in 0.3.0.dev0+g1a2b3c4d5."""
    released = version("busway")
    return f"{released}+g{commit}" if ".dev" in released and (commit := _commit()) else released


def _commit() -> str:
    if not IS_CHECKOUT:
        return (ROOT / "commit").read_text(encoding="utf-8").strip()
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
