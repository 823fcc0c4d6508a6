"""Sources of a table, and reloading when there is a new version."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from shared.clock import Clock
from shared.editors.lookup.tables import BrokenTableError
from shared.errors import BuswayError, TargetRefused
from shared.stores.blobs import Blob, Blobs, TooLarge, Unchanged, answered_within

_LOGGER = logging.getLogger("busway.editors")

LARGEST = 256 * 1024 * 1024
# A file that changed just now may be incomplete.
_SETTLED_SECONDS = 2.0


class Source(Protocol):
    """A place that has a table; its name is in errors."""

    name: str

    async def newer(self, version: str | None, timeout_seconds: float) -> Blob | None:
        """Return the content, None if it is still *version*; raises BuswayError and BrokenTableError."""
        ...


class FileSource:
    """A file; its version is its time and size."""

    def __init__(self, name: str, path: Path, clock: Clock) -> None:
        """Use *name* in errors."""
        self.name = name
        self._path = path
        self._clock = clock

    async def newer(self, version: str | None, timeout_seconds: float) -> Blob | None:  # noqa: ARG002 - a file answers at once
        """Return the file's content, if it did not change just now."""
        return await asyncio.to_thread(self.read, version)

    def read(self, version: str | None = None) -> Blob | None:
        """Return the file's content."""
        try:
            before = self._path.stat()
            seen = f"{before.st_mtime_ns}/{before.st_size}"
            age = self._clock.now().timestamp() - before.st_mtime
            if seen == version or (version is not None and 0 <= age < _SETTLED_SECONDS):
                return None
            if before.st_size > LARGEST:
                raise BrokenTableError(f"has {before.st_size} bytes, expected at most {LARGEST}")
            content = self._path.read_bytes()
        except OSError as error:
            raise BrokenTableError(f"cannot be read: {error.strerror}") from error
        return Blob(content, seen)


class BlobSource:
    """A blob; its version is its ETag."""

    def __init__(self, name: str, blobs: Blobs) -> None:
        """Read the blob of this *name*."""
        self.name = name
        self._blobs = blobs

    async def newer(self, version: str | None, timeout_seconds: float) -> Blob | None:
        """Return the blob's content."""
        async with answered_within(timeout_seconds, self._blobs.url):
            found = await self._blobs.read(self.name, limit=LARGEST, known_version=version)
        match found:
            case Blob():
                return found
            case Unchanged():
                return None
            case TooLarge():
                raise BrokenTableError(f"has {found.size} bytes, expected at most {LARGEST}")
            case None:
                raise BrokenTableError(f"is missing, expected it in {self._blobs.url}")


class Reloaded[T]:
    """A value parsed from a table, again when the table changes; an invalid version is logged and skipped."""

    def __init__(
        self,
        source: Source,
        parse: Callable[[bytes], T],
        refresh: timedelta,
        clock: Clock,
        *,
        task: str,
        first: Blob | None = None,
    ) -> None:
        """Check for a new version every *refresh*, for *task*; *first* is a version that was read already."""
        self._source = source
        self._parse = parse
        self._refresh = refresh.total_seconds()
        self._task = task
        self._clock = clock
        self._made: T | None = None if first is None else parse(first.content)
        self._version = None if first is None else first.version
        self._looked_at = clock.monotonic() if first is not None else None
        self._last_problem = ""

    async def current(self, timeout_seconds: float) -> T:
        """Return the latest valid version; raises TargetUnavailable or TargetRefused if it has none yet."""
        now = self._clock.monotonic()
        if self._made is not None and self._looked_at is not None and now - self._looked_at < self._refresh:
            return self._made
        try:
            found = await self._source.newer(self._version, timeout_seconds)
            if found is not None:
                self._version = found.version
                self._made = await asyncio.to_thread(self._parse, found.content)
                self._last_problem = ""
        except BrokenTableError as error:
            problem = f"table {self._source.name}: {error}"
            if self._made is None:
                self._version = None
                raise TargetRefused(problem) from error
            self._report(problem)
        except BuswayError as error:
            if self._made is None:
                raise
            self._report(f"table {self._source.name}: {error}")
        if self._made is None:
            raise TargetRefused(f"table {self._source.name}: no content")
        self._looked_at = now
        return self._made

    def _report(self, problem: str) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            _LOGGER.error("%s: %s; the previous version stays in use", self._task, problem)
