"""
The results of copies and parts that all instances of a task have on record, read back from the blobs of its journal.

The first reading takes what was written since a time, each later one what has come since the last: the blobs only grow.
What is newest is read first, as far as the bytes and the time allow.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from shared.codecs.compression import gzip_member
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.record import Role
from shared.protocols import Outcome, Recorded
from shared.stores.blobs import Container, Listed, some_at_once

READ_BYTES = 16 << 20
"""Bytes of blobs that one reading takes at most."""
_TEXT_BYTES = 256 << 20
"""The text of these: a few bytes can become a thousand times as many."""
FURTHEST_BACK = timedelta(days=3)
_HOUR = timedelta(hours=1)
_BEHIND, _AHEAD = timedelta(minutes=10), timedelta(minutes=5)
"""How much the clocks of instances may differ."""
_HAS_IDENTITY = b'"identity":"'
_MEMBER = b"\x1f\x8b\x08"


class _Line(msgspec.Struct, gc=False):
    """The fields of a record that matter here."""

    outcome: Literal["sent", "rejected"]
    observer: Literal["task"]
    identity: str


_DECODER = msgspec.json.Decoder(_Line)


class RecordedResults:
    """Reads the target side of one task's journal; the latest result is the last."""

    def __init__(self, container: Callable[[], Container], task: str) -> None:
        """Read from *container*, which is opened at the first reading."""
        self._container = container
        self._task = task
        self._from: datetime | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)
        self._positions: dict[str, int] = {}

    async def read(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:
        """Return what has come since the last reading; the first, and one of an earlier time, begins with *since*."""
        found: list[Mapping[bytes, Outcome]] = []
        problem = None
        since = min(max(since, now - FURTHEST_BACK), now)
        try:
            async with asyncio.timeout(timeout_seconds):
                blobs = await self._grown(since, now)
                problem = await self._read(blobs, found)
        except TimeoutError:
            problem = f"it did not answer within {timeout_seconds:.0f} s"
        except (TargetUnavailable, TargetRefused) as error:
            problem = str(error)
        else:
            self._from = since if self._from is None else min(since, self._from)
            self._read_at = now
        results: dict[bytes, Outcome] = {}
        for of_blob in reversed(found):
            results |= of_blob
        return Recorded(results, problem)

    async def _grown(self, since: datetime, now: datetime) -> list[Listed]:
        """Return the blobs with something to read, the latest first."""
        is_known = self._from is not None and since >= self._from
        hour = max(since, self._read_at - _BEHIND) if is_known else since
        hours = []
        while hour.replace(minute=0, second=0, microsecond=0) <= now + _AHEAD:
            hours.append(hour)
            hour += _HOUR
        container = self._container()
        listings = await some_at_once([container.listed(self._folder(hour)) for hour in hours])
        found = [blob for listing in listings for blob in listing.blobs if blob.size > self._position(blob)]
        return sorted(found, key=lambda blob: blob.modified, reverse=True)

    async def _read(self, blobs: Sequence[Listed], found: list[Mapping[bytes, Outcome]]) -> str | None:
        """Add the results in each of *blobs* to *found*; return why some are missing, if they are."""
        left = READ_BYTES
        container = self._container()
        for blob in blobs:
            position = self._position(blob)
            if left <= 0:
                break
            start = max(position, blob.size - left)
            content = await container.part(blob.name, start, blob.size - start)
            # In a thread: a megabyte takes some hundredths of a second.
            found.append(await asyncio.to_thread(_results, content))
            self._positions[blob.name] = blob.size
            left -= blob.size - position
        return f"only the latest {READ_BYTES >> 20} MB were read" if left < 0 else None

    def _position(self, blob: Listed) -> int:
        return self._positions.get(blob.name, 0)

    def _folder(self, hour: datetime) -> str:
        return f"task={self._task}/{hour.astimezone(UTC):date=%Y-%m-%d/hour=%H}/role={Role.TARGET}/"


def _results(content: bytes) -> Mapping[bytes, Outcome]:
    """Return the results in the gzip members of *content*, which may begin and end within one."""
    results: dict[bytes, Outcome] = {}
    position, left = content.find(_MEMBER), _TEXT_BYTES
    while 0 <= position < len(content) and left > 0:
        try:
            text, end = gzip_member(content, position, left)
        except (zlib.error, EOFError):
            position = content.find(_MEMBER, position + 1)
            continue
        for line in text.splitlines():
            if _HAS_IDENTITY in line:
                try:
                    record = _DECODER.decode(line)
                    results[bytes.fromhex(record.identity)] = Outcome(record.outcome)
                except (ValueError, RecursionError):
                    continue  # an outcome that may change, or no record: the reconciliation reports it
        left -= len(text)
        position = end
    return results
