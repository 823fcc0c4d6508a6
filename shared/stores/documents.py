"""Small documents by name, each with a version that a writer must have read; `shared.stores.settings` opens a store."""

from typing import Protocol

from shared.errors import TargetUnavailable
from shared.stores.blobs import Blob


class Changed(TargetUnavailable):
    """Another writer has replaced the document since it was read; read it again."""


class Documents(Protocol):
    """
    A store of documents.

    Raises: every method raises TargetUnavailable or TargetRefused; a write may still have succeeded.
    """

    async def read_all(self, name: str) -> Blob | None:
        """Return a document, None if missing."""
        ...

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        """Replace *version*, None for a new document, and return the new version; raises Changed."""
        ...
