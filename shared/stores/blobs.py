"""Stores for named content of editors: bodies, tables, and growing lists; `shared.stores.settings` opens them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple, Protocol

from shared.errors import TargetUnavailable

_AT_ONCE = 8


class Blob(NamedTuple):
    """The content of a blob and its version."""

    content: bytes
    version: str


class Unchanged(NamedTuple):
    """The blob still has the version that the caller knows."""


class TooLarge(NamedTuple):
    """The blob is larger than the caller's limit."""

    size: int


class Tail(NamedTuple):
    """The content since a position, and whether nothing more can be appended."""

    content: bytes
    is_full: bool


class Listed(NamedTuple):
    """A blob in a listing, with the time of its last write by the clock of the service."""

    name: str
    modified: datetime
    size: int


class Listing(NamedTuple):
    """The blobs that were listed, and the time of the answer by the clock of the service, if it is known."""

    blobs: Sequence[Listed]
    now: datetime | None


class Container(Protocol):
    """The part of `shared.stores.container.BlobContainer` that readers of journals need; it raises as that one."""

    async def folders(self, prefix: str) -> list[str]:
        """Return the beginnings of names, up to the next slash, that start with *prefix*."""
        ...

    async def listed(self, prefix: str) -> Listing:
        """Return the blobs that start with *prefix*."""
        ...

    async def part(self, name: str, position: int, length: int) -> bytes:
        """Return up to *length* bytes of a blob from *position* on."""
        ...


class Blobs(Protocol):
    """
    A store of blobs.

    Raises: every method raises TargetUnavailable or TargetRefused; a write may still have succeeded.
    """

    url: str
    """Address of the container, without a secret."""

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:
        """Write all of a blob or nothing; a blob with the same content is left as it is."""
        ...

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return a blob, None if missing."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob, if there is one."""
        ...

    async def append(self, name: str, content: bytes) -> bool:
        """Append to a blob; return False if it is full. After an error, a second call may append twice."""
        ...

    async def tail(self, name: str, position: int) -> Tail:
        """Return what has been appended from byte *position* on."""
        ...

    async def names(self, prefix: str) -> list[str]:
        """Return the names that start with *prefix*, sorted."""
        ...


async def some_at_once[T](works: Iterable[Awaitable[T]]) -> list[T]:
    """Await *works*, a few at a time, and return their results in order; the first error stops it and is raised."""
    left = enumerate(works)
    answers: dict[int, T] = {}
    errors: list[Exception] = []

    async def worker() -> None:
        for index, work in left:
            try:
                answers[index] = await work
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
            if errors:
                break

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))
    if errors:
        raise errors[0]
    return [answers[index] for index in range(len(answers))]


@asynccontextmanager
async def answered_within(seconds: float, place: str) -> AsyncIterator[None]:
    """Limit how long a store may take; raises TargetUnavailable."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TargetUnavailable(f"{place}: the store did not answer within {seconds:.0f} s") from error
