# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""What the clients have in common that end with a block."""

from types import TracebackType
from typing import Self


class Closing:
    """A client that is closed at the end of its block."""

    def close(self) -> None:
        """Do nothing: what the caller passed in, the caller closes."""

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()
