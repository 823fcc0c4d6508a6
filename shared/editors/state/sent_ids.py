"""
Ids of sent messages, as digests: those of one instance, or shared by all instances.

Shared ids are records of 24 bytes: a digest of 16, and when the message was sent, in milliseconds since 1970 UTC,
big-endian. All instances append them to one blob per hour; a duplicate record does no harm.
"""

import asyncio
import logging
import re
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from shared.clock import Clock
from shared.errors import BuswayError, TargetRefused
from shared.stores.blobs import Blobs, answered_within

_LOGGER = logging.getLogger("busway.editors")

DIGEST_SIZE = 16

_RECORD = struct.Struct(f">{DIGEST_SIZE}sQ")
_HOUR = "%Y-%m-%dT%H"
_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d{3,})\.ids")
# Clocks of instances differ, and an append may be under way when its hour ends.
_LATE = timedelta(minutes=5)


class OwnIds:
    """Ids that count as sent, those of this instance, in memory."""

    def __init__(self, window: timedelta, limit: int, clock: Clock) -> None:
        """Keep the latest *limit* ids, each for *window*."""
        self._clock = clock
        self._window = window // timedelta(milliseconds=1)
        self._limit = limit
        self._sent: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._sent)

    async def refresh(self, timeout_seconds: float) -> None:
        """Read what other instances have stored: nothing, as ids are not shared."""

    def has(self, digest: bytes) -> bool:
        """Return whether a message with the id of this digest was sent within the window."""
        sent = self._sent.get(digest)
        return sent is not None and self._now() - sent < self._window

    async def remember(self, digests: Collection[bytes], timeout_seconds: float) -> None:  # noqa: ARG002 - no store is used
        """Remember that messages with these ids were sent now."""
        now = self._now()
        self.keep((digest, now) for digest in digests)

    def keep(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Remember ids with the times at which they were sent; forget old ones, and those beyond the limit."""
        for digest, sent in records:
            before = self._sent.setdefault(digest, sent)
            if before < sent:
                self._sent[digest] = sent
                self._sent.move_to_end(digest)
        oldest = self._now() - self._window
        while self._sent and (len(self._sent) > self._limit or next(iter(self._sent.values())) <= oldest):
            self._sent.popitem(last=False)

    def _now(self) -> int:
        return _milliseconds(self._clock.now())


class SharedIds(OwnIds):
    """Ids that all instances write to a store, as far as this instance has read them; raises as stores do."""

    def __init__(self, blobs: Blobs, folder: str, window: timedelta, limit: int, clock: Clock) -> None:
        """Keep one blob per hour in *folder*."""
        super().__init__(window, limit, clock)
        self._blobs = blobs
        self._folder = folder
        self._lifetime = window
        self._hour = ""
        # Bytes that were read of each blob that may still grow.
        self._growing: dict[tuple[str, int], int] = {}
        self._turn = asyncio.Lock()

    async def refresh(self, timeout_seconds: float) -> None:
        """Read what was appended since the last call, at first the whole window."""
        async with answered_within(timeout_seconds, self._folder), self._turn:
            now = self._clock.now().astimezone(UTC)
            if now.strftime(_HOUR) != self._hour:
                await self._begin_hour(now)
            unread = sorted(self._growing)
            while unread:
                place = unread.pop(0)
                is_full = await self._read(place)
                hour, part = place
                if is_full and (hour, part + 1) not in self._growing:
                    self._growing[hour, part + 1] = 0
                    unread.insert(0, (hour, part + 1))
                if is_full or hour < (now - _LATE).strftime(_HOUR):
                    del self._growing[place]

    async def remember(self, digests: Collection[bytes], timeout_seconds: float) -> None:
        """Append the ids to the blob of the hour with one request."""
        now = self._clock.now().astimezone(UTC)
        sent, hour = _milliseconds(now), now.strftime(_HOUR)
        content = b"".join(_RECORD.pack(digest, sent) for digest in digests)
        async with answered_within(timeout_seconds, self._folder):
            part = max((part for each, part in self._growing if each == hour), default=0)
            while not await self._blobs.append(self._name(hour, part), content):
                part += 1
        self.keep((digest, sent) for digest in digests)

    async def _begin_hour(self, now: datetime) -> None:
        """List the blobs: those of the window are read once, older ones are deleted."""
        oldest = (now - self._lifetime).strftime(_HOUR)
        for name in await self._blobs.names(f"{self._folder}/"):
            found = _NAME.fullmatch(name.removeprefix(f"{self._folder}/"))
            if found is None:
                continue
            if found[1] < oldest:
                await self._forget(name)
            elif not self._hour:
                self._growing.setdefault((found[1], int(found[2])), 0)
        hour = now.strftime(_HOUR)
        if not any(each == hour for each, _ in self._growing):
            self._growing[hour, 0] = 0
        self._hour = hour

    async def _read(self, place: tuple[str, int]) -> bool:
        """Read what was appended to a blob; return whether it is full."""
        position = self._growing[place]
        tail = await self._blobs.tail(self._name(*place), position)
        if len(tail.content) % _RECORD.size:
            raise TargetRefused(f"blob {self._name(*place)}: expected only ids of sent messages, got other content")
        self.keep(_RECORD.iter_unpack(tail.content))
        self._growing[place] = position + len(tail.content)
        return tail.is_full

    async def _forget(self, name: str) -> None:
        try:
            await self._blobs.delete(name)
        except BuswayError as error:
            # It only takes space.
            _LOGGER.warning("%s: cannot delete blob %s, which is no longer needed: %s", self._folder, name, error)

    def _name(self, hour: str, part: int) -> str:
        return f"{self._folder}/{hour}-{part:03}.ids"


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
