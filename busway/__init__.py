"""The `busway` command: where its app is, in a checkout and in the wheel."""

import os
from pathlib import Path

_CARRIED = Path(__file__).parent / "app"

IS_CHECKOUT = not _CARRIED.is_dir()
ROOT = Path(__file__).parents[1] if IS_CHECKOUT else _CARRIED
"""The function app's folder: that of the checkout, or its copy in the wheel."""

FOLDERS = tuple(str(ROOT / folder) for folder in ("", "broker", "clients", "jobs/reconcile"))
"""The folders of its packages."""

PACKAGES = os.pathsep.join(FOLDERS)
"""PYTHONPATH with which a child process finds them, installed or not."""
