"""Small documents by name, each with a version that a writer must have read; `shared.stores.settings` opens a store."""

from typing import NamedTuple, Protocol

from shared.errors import TargetUnavailable


class Document(NamedTuple):
    """The content of a document and its version."""

    content: bytes
    version: str


class Changed(TargetUnavailable):
    """Another writer has replaced the document since it was read; read it again."""


class Documents(Protocol):
    """
    A store of documents.

    Raises: every method raises TargetUnavailable or TargetRefused; a write may still have succeeded.
    """

    async def read(self, name: str) -> Document | None:
        """Return a document, None if missing."""
        ...

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Replace *version*, None for a new document, and return the new version; raises Changed."""
        ...
