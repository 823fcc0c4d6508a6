"""What the clients have in common that end with a block."""

from types import TracebackType
from typing import Self


class Closing:
    """A client that is closed at the end of its block."""

    async def close(self) -> None:
        """Do nothing: what the caller passed in, the caller closes."""

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()
