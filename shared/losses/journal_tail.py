"""
What the journal has got since the last time: the source side of one task.

The blobs only grow, and what is appended is whole gzip members, so that an offset for each blob is enough. An hour is
read until it has been over for some minutes, as the clocks of instances differ.
"""

import asyncio
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from shared.codecs.compression import gzip_member
from shared.stores.blobs import Container, Listing

CHUNK_BYTES = 4 << 20
LOOK_BYTES = 64 << 20
"""Bytes that one reading takes at most; the next one continues."""
_BEHIND, _AHEAD = timedelta(minutes=10), timedelta(minutes=5)
CATCH_UP = timedelta(hours=24)
_LONGEST_QUIET = timedelta(days=14)
"""Of longer ago a journal may have been deleted, which looks like days without messages."""
_HOUR = timedelta(hours=1)
_SOURCE = "/role=source/"
MOST_LINES = 1_000_000
"""Records that one reading takes, and at most those of one member more."""
MOST_MEMBER_BYTES = 64 << 20
"""The text of a gzip member: a few bytes can become a thousand times as many."""


class Line(msgspec.Struct, gc=False):
    """The fields of a record that matter here."""

    outcome: str
    observer: str
    src_site: str
    src_entity: str
    journal_time: int
    src_seq: int | None = None
    src_part: int | None = None
    enqueued_time: int | None = None
    scheduled_time: int | None = None


class Reading(NamedTuple):
    """What was read, and whether that is all there was."""

    lines: Sequence[Line]
    is_complete: bool
    damaged: Sequence[str] = ()
    """Names of blobs of which a part could not be read."""


class Offsets(msgspec.Struct):
    """How far a journal has been read: the first hour that is not closed, and the position in each blob since."""

    hour: datetime
    blobs: dict[str, int] = {}


_DECODER = msgspec.json.Decoder(Line)


class JournalTail:
    """Reads the source side of one task's journal."""

    def __init__(self, container: Container, task: str) -> None:
        """Read from *container*."""
        self._container = container
        self._task = task

    async def start(self, now: datetime) -> Offsets:
        """Return the offsets of the present end, so that only what comes is read."""
        offsets = Offsets(_hour(now - _BEHIND))
        for listing in await self._listings(offsets, now):
            offsets.blobs |= {blob.name: blob.size for blob in listing.blobs}
        return offsets

    async def skip_quiet(self, offsets: Offsets, now: datetime) -> None:
        """Move *offsets* to the first hour with something unread; a request for each day in which there is nothing."""
        end = _hour(now - _BEHIND)
        while end - _LONGEST_QUIET <= offsets.hour < end:
            listing = await self._container.listed(f"task={self._task}/{offsets.hour:date=%Y-%m-%d}/")
            unread = [
                blob.name
                for blob in listing.blobs
                if _SOURCE in blob.name
                and self._is_open(blob.name, offsets)
                and blob.size > offsets.blobs.get(blob.name, 0)
            ]
            day = offsets.hour.replace(hour=0)
            hours = (day + number * _HOUR for number in range(offsets.hour.hour, 24))
            found = next((hour for hour in hours if any(name.startswith(self._folder(hour)) for name in unread)), None)
            offsets.hour = min(found or day + 24 * _HOUR, end)
            if found is not None:
                break
        offsets.blobs = {name: at for name, at in offsets.blobs.items() if self._is_open(name, offsets)}

    async def read(self, offsets: Offsets, now: datetime) -> Reading:
        """Return what has come, and move the *offsets*; raises TargetUnavailable, TargetRefused."""
        lines: list[Line] = []
        damaged: list[str] = []
        total = 0
        is_complete = True
        sizes = {blob.name: blob.size for listing in await self._listings(offsets, now) for blob in listing.blobs}
        for name, size in sizes.items():
            position = offsets.blobs.get(name, 0)
            while position < size and total < LOOK_BYTES and len(lines) < MOST_LINES:
                content = await self._container.part(name, position, min(CHUNK_BYTES, size - position))
                # The rest in a thread: a minute of a busy task takes a tenth of a second.
                if not content:
                    position = size  # deleted since it was listed
                    break
                found, read = await asyncio.to_thread(_members, content)
                lines += found
                if not read:
                    read = len(content)  # a block is whole members: this is damaged, or of another program
                    damaged.append(name)
                position += read
                total += read
            offsets.blobs[name] = position
            is_complete = is_complete and position >= size
        if is_complete:
            offsets.hour = max(offsets.hour, _hour(now - _BEHIND))
            offsets.blobs = {
                name: at for name, at in offsets.blobs.items() if name in sizes and self._is_open(name, offsets)
            }
        return Reading(lines, is_complete, damaged)

    async def _listings(self, offsets: Offsets, now: datetime) -> list[Listing]:
        hours = []
        hour, last = offsets.hour, _hour(now + _AHEAD)
        while hour <= last:
            hours.append(hour)
            hour += _HOUR
        return [await self._container.listed(self._folder(hour)) for hour in hours]

    def _folder(self, hour: datetime) -> str:
        return f"task={self._task}/{hour:date=%Y-%m-%d/hour=%H}{_SOURCE}"

    def _is_open(self, name: str, offsets: Offsets) -> bool:
        return name >= self._folder(offsets.hour)


def _hour(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _members(content: bytes) -> tuple[list[Line], int]:
    """Return the records of the whole gzip members at the beginning of *content*, and the length of these."""
    lines: list[Line] = []
    position = 0
    while position < len(content) and len(lines) < MOST_LINES:
        try:
            text, end = gzip_member(content, position, MOST_MEMBER_BYTES)
        except (zlib.error, EOFError):
            break
        if len(text) > MOST_MEMBER_BYTES:
            break  # no task writes as much at once
        for line in text.splitlines():
            try:
                lines.append(_DECODER.decode(line))
            except (msgspec.DecodeError, RecursionError):
                continue  # of a later version; the reconciliation reports it
        position = end
    return lines, position
