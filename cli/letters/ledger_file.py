"""The ledger as a file that only one process of this machine at a time has open."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from cli.files import SyncedLines, locked
from shared.errors import TargetRefused
from shared.private_file import open_private
from shared.resend.ledger import MemoryStore
from shared.resend.places import Place, file_of

_FOLDER = Path("build/resend")


def ledger_of(place: Place, folder: Path = _FOLDER) -> Path:
    """Return the ledger for the messages of *place*."""
    return folder / f"{file_of(place)}.jsonl"


class LedgerFile:
    """The lines of a ledger in a file; it implements `shared.resend.ledger.LedgerStore`."""

    def __init__(self, path: Path) -> None:
        """Use the file *path*, which `opened` creates."""
        self.path = path
        self._lines: SyncedLines

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Iterable[str]]:
        """Lock the file and give its lines; raises ConfigError if another process has it."""
        with locked(self.path):
            before = self._read()
            with open_private(self.path, "a") as file:
                self._lines = SyncedLines(file)
                yield before

    def copy(self) -> MemoryStore:
        """Return what it has now, for a run that records nothing."""
        return MemoryStore(self._read(), self.where)

    def _read(self) -> list[str]:
        # Not splitlines: JSON strings may contain other line separators of Unicode.
        return self.path.read_text(encoding="utf-8", errors="replace").split("\n") if self.path.exists() else []

    async def append(self, line: str) -> None:
        """Write a line to disk; raises TargetRefused."""
        try:
            self._lines.append(line.removesuffix("\n"))
        except OSError as error:
            raise TargetRefused(f"{self.path}: cannot be written: {error.strerror}") from error
