"""The ledger as a blob beside the status: the dashboard's, and that of `busway dead resend --ledger app`."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from shared.errors import ConfigError, Problem
from shared.resend.places import Place, file_of
from shared.stores.container import BlobContainer
from shared.stores.leased_blob import BlobInUse, LeasedBlob

_FOLDER = "resend"


class LedgerBlob:
    """The lines of a ledger in a blob with a lease; it implements `shared.resend.ledger.LedgerStore`."""

    def __init__(self, container: BlobContainer, place: Place) -> None:
        """Use the blob for the messages of *place*."""
        self._container = container
        self._name = f"{_FOLDER}/{file_of(place)}.jsonl"
        self._blob: LeasedBlob

    @property
    def where(self) -> str:
        """The address of the blob."""
        return f"{self._container.url}/{self._name}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Iterable[str]]:
        """Take the lease and give the lines; raises ConfigError if another process has it."""
        try:
            async with self._container.leased(self._name) as self._blob:
                yield (await self._blob.read()).decode(errors="replace").splitlines()
        except BlobInUse as error:
            raise ConfigError([Problem(self._name, "is in use", "another resend of this entity runs")]) from error

    async def append(self, line: str) -> None:
        """Append a line."""
        await self._blob.append(line.encode())
