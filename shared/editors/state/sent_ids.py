"""
The ids of messages that have been sent, by their digests: those of an instance, or those that instances share.

Shared, they are records of 24 bytes: a digest of 16, and when the message was sent, in milliseconds since 1970 UTC,
big-endian. They are appended to a blob for each hour, by all instances to the same; what is appended twice says the
same twice.
"""

import asyncio
import logging
import re
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

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


class SentIds(Protocol):
    """Which ids count as sent. Raises: TargetUnavailable and TargetRefused where a store cannot be asked."""

    async def refresh(self, timeout_seconds: float) -> None:
        """Learn what others have remembered."""
        ...

    def has(self, digest: bytes) -> bool:
        """Tell whether a message with the id of this digest was sent within the window."""
        ...

    async def remember(self, digests: Collection[bytes], timeout_seconds: float) -> None:
        """Keep that messages with these ids have been sent now."""
        ...


class OwnIds:
    """Those of this instance, which are gone when it ends."""

    def __init__(self, window: timedelta, limit: int, clock: Clock) -> None:
        """Hold the latest *limit* ids, each for as long as *window*."""
        self._clock = clock
        self._window = window // timedelta(milliseconds=1)
        self._limit = limit
        self._sent: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many ids are held."""
        return len(self._sent)

    async def refresh(self, timeout_seconds: float) -> None:
        """Learn nothing: nobody else remembers anything."""

    def has(self, digest: bytes) -> bool:
        """Tell whether the id is held and its window not over."""
        sent = self._sent.get(digest)
        return sent is not None and self._now() - sent < self._window

    async def remember(self, digests: Collection[bytes], timeout_seconds: float) -> None:  # noqa: ARG002 - nobody is asked
        """Hold the ids."""
        now = self._now()
        self.hold((digest, now) for digest in digests)

    def hold(self, records: Iterable[tuple[bytes, int]]) -> None:
        """Hold ids whose messages were sent at these times; let go of what is too old or one too many."""
        for digest, sent in records:
            if self._sent.get(digest, -1) < sent:
                self._sent[digest] = sent
                self._sent.move_to_end(digest)
        oldest = self._now() - self._window
        while self._sent and (len(self._sent) > self._limit or next(iter(self._sent.values())) <= oldest):
            self._sent.popitem(last=False)

    def _now(self) -> int:
        return _milliseconds(self._clock.now())


class SharedIds:
    """Those that all instances have written to a store, of which each holds what it has read."""

    def __init__(self, blobs: Blobs, folder: str, window: timedelta, limit: int, clock: Clock) -> None:
        """Keep the blobs of the hours below *folder*."""
        self._blobs = blobs
        self._folder = folder
        self._window = window
        self._clock = clock
        self._held = OwnIds(window, limit, clock)
        self._hour = ""
        # Of each blob that may still grow, how many bytes of it have been read.
        self._growing: dict[tuple[str, int], int] = {}
        self._turn = asyncio.Lock()

    async def refresh(self, timeout_seconds: float) -> None:
        """Read what has been appended since, at the beginning all of the window."""
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

    def has(self, digest: bytes) -> bool:
        """Tell whether the id was read, or written, and its window is not over."""
        return self._held.has(digest)

    async def remember(self, digests: Collection[bytes], timeout_seconds: float) -> None:
        """Append the ids to the blob of the hour, all with one request."""
        now = self._clock.now().astimezone(UTC)
        sent, hour = _milliseconds(now), now.strftime(_HOUR)
        content = b"".join(_RECORD.pack(digest, sent) for digest in digests)
        async with answered_within(timeout_seconds, self._folder):
            part = max((part for each, part in self._growing if each == hour), default=0)
            while not await self._blobs.append(self._name(hour, part), content):
                part += 1
        self._held.hold((digest, sent) for digest in digests)

    async def _begin_hour(self, now: datetime) -> None:
        """Look what blobs there are: those of the window are to be read once, and older ones are needed no more."""
        oldest = (now - self._window).strftime(_HOUR)
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
        """Hold what has been appended to a blob since; tell whether no more will be."""
        position = self._growing[place]
        tail = await self._blobs.tail(self._name(*place), position)
        if len(tail.content) % _RECORD.size:
            raise TargetRefused(f"blob {self._name(*place)}: holds something else than the ids of sent messages")
        self._held.hold(_RECORD.iter_unpack(tail.content))
        self._growing[place] = position + len(tail.content)
        return tail.is_full

    async def _forget(self, name: str) -> None:
        try:
            await self._blobs.delete(name)
        except BuswayError as error:
            # It takes room and does no harm.
            _LOGGER.warning("%s is needed no more and cannot be deleted: %s", name, error)

    def _name(self, hour: str, part: int) -> str:
        return f"{self._folder}/{hour}-{part:03}.ids"


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
