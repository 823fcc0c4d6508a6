"""
From an app setting to a store of blobs or documents.

The setting is a storage account (a connection string, or NAME__blobServiceUri for the app's identity), or `file:PATH`,
a SQLite file for one machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import Problem
from shared.stores.blobs import Blobs
from shared.stores.documents import Documents
from shared.stores.sqlite_stores import PREFIX, FileBlobs
from shared.stores.storage_account import SETTING_FORM, open_container

if TYPE_CHECKING:
    from shared.stores.container import BlobContainer


def store_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return the problem of the app setting of a store, or None."""
    text = settings.get(setting, "")
    if not text.startswith(PREFIX):
        return SETTING_FORM.problem(setting, settings)
    if not Path(text.removeprefix(PREFIX)).parent.is_dir():
        return Problem(setting, "the app setting names a file in a missing folder", f"expected {PREFIX}PATH of a file")
    return None


def open_blobs(setting: str, settings: Mapping[str, str], container: str) -> Blobs:
    """Return the store of blobs that an app setting names; raises ConfigError."""
    return _opened(setting, settings, container, "blob ")


def open_documents(setting: str, settings: Mapping[str, str], container: str) -> Documents:
    """Return the store of documents that an app setting names; raises ConfigError."""
    return _opened(setting, settings, container, "document ")


def _opened(setting: str, settings: Mapping[str, str], container: str, errors_name: str) -> "FileBlobs | BlobContainer":
    text = settings.get(setting, "")
    if text.startswith(PREFIX):
        return FileBlobs(Path(text.removeprefix(PREFIX)), container)
    return open_container(setting, settings, container, errors_name=errors_name)
