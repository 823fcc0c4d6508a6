"""
The watch on the source of a task: once a minute it reads the journal and looks for missing numbers at the source.

Every message that reaches the app is in the journal before it is settled. So a number that the source no longer holds,
and that the journal, read after that, does not have, was settled by something else.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from shared.losses.journal_tail import CATCH_UP, JournalTail, Line
from shared.losses.numbers import GRACE, Dead, Gap, Held, Numbers, Received
from shared.losses.report import VERSION, Found, WatchState, blob_name, text_of
from shared.protocols import LossTelemetry
from shared.stores.documents import Changed, Documents

_LOGGER = logging.getLogger("busway.losses")

# The upper 16 bits of a sequence number of a partitioned entity are the partition.
_PARTITION_BITS = 48
_SAVE_AFTER = 300_000
_SKEW = 30_000
"""By how much the clock of the service may be ahead or behind, in milliseconds."""


class Seen(NamedTuple):
    """What a source holds of some numbers, and up to which number it was looked at, None for to its end."""

    held: Sequence[Held]
    until: int | None


class DeadLetters(NamedTuple):
    """Dead letters of a source, and whether these are all."""

    found: Sequence[Dead]
    is_complete: bool


class Source(Protocol):
    """
    The entity that is watched.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    async def look(self, part: int, gaps: Sequence[Gap], high: int) -> Seen | None:
        """Return what it holds of *gaps*; None if it cannot know, as the entity has changed."""
        ...

    async def dead_letters(self, after: int) -> DeadLetters:
        """Return the dead letters whose number is higher than *after*."""
        ...


class Place(NamedTuple):
    """The source of a task in its journal."""

    site: str
    entity: str
    is_hub: bool

    def __str__(self) -> str:
        """Return SITE/ENTITY."""
        return f"{self.site}/{self.entity}"


class LossWatch:
    """Watches the source of a task; *tails* has several journals if several tasks take from the same queue."""

    def __init__(
        self,
        place: Place,
        tails: Mapping[str, JournalTail],
        source: Source,
        states: Documents,
        telemetry: LossTelemetry | None = None,
    ) -> None:
        """Keep the state under the name of the first task."""
        self.task = next(iter(tails))
        self._place = place
        self._tails = tails
        self._source = source
        self._states = states
        self._telemetry = telemetry
        self._kept: tuple[WatchState, str | None, bytes] | None = None

    async def look(self, now: datetime) -> list[Found]:
        """Look once; return and report the losses that are new. Raises TargetUnavailable, TargetRefused."""
        kept, self._kept = self._kept, None
        state, version, known = kept or await self._loaded(now)
        time = round(now.timestamp() * 1000)
        is_complete = await self._read(state, now)
        lost: list[Found] = []
        if is_complete:
            for name, numbers in state.parts.items():
                await self._ask(int(name), numbers, time)
            lost = await self._decide(state, now)
            due = _essence(state)
            if due == known and version is not None and time - state.looked < _SAVE_AFTER:
                self._kept = state, version, known
                return []
            state.looked = time
        try:
            version = await self._states.write_version(blob_name(self.task), msgspec.json.encode(state), version)
        except Changed:
            return []  # another instance looks at the same time, and reports what it finds
        self._kept = state, version, _essence(state)
        self._report(lost)
        return lost

    async def _loaded(self, now: datetime) -> tuple[WatchState, str | None, bytes]:
        document = await self._states.read_all(blob_name(self.task))
        version = None if document is None else document.version
        state = None if document is None else _decoded(document.content)
        if (
            state is not None
            and state.offsets
            and state.place == str(self._place)
            and state.offsets.keys() == self._tails.keys()
        ):
            for task, offsets in state.offsets.items():
                if now - offsets.hour > CATCH_UP:
                    # After days in which the app did not run, what the source has deleted meanwhile is a loss.
                    await self._tails[task].skip_quiet(offsets, now)
            if now - min(offsets.hour for offsets in state.offsets.values()) <= CATCH_UP:
                return state, version, _essence(state)
        if document is not None:
            text = "the watch for losses starts again: its state is too old, or of another source"
            _LOGGER.warning("%s: %s", self.task, text)
        time = round(now.timestamp() * 1000)
        state = WatchState(VERSION, str(self._place), time, time)
        for task, tail in self._tails.items():
            state.offsets[task] = await tail.start(now)
        # At a task's first start nothing was received before the first look.
        state.is_first = document is None and not any(offset.blobs for offset in state.offsets.values())
        return state, version, b""

    async def _read(self, state: WatchState, now: datetime) -> bool:
        """Add what the journals have got; return whether that is all."""
        time = round(now.timestamp() * 1000)
        parts: dict[str, list[Received]] = {}
        is_complete = True
        for task, tail in self._tails.items():
            reading = await tail.read(state.offsets[task], now)
            is_complete = is_complete and reading.is_complete
            for name in reading.damaged:
                _LOGGER.warning("%s: the journal %s has a part that cannot be read", task, name)
            for line in reading.lines:
                self._add(line, parts, state, time)
        for name, received in parts.items():
            # What was enqueued before the first look may have been received before it, too, unless that is the first.
            since = state.started + (-_SKEW if state.is_first else _SKEW)
            numbers = state.parts.setdefault(name, Numbers(since))
            recovered = numbers.receive(received, time)
            if recovered:
                text = "messages that were reported as lost have been received or repaired"
                _LOGGER.warning("%s: %d %s", self.task, recovered, text)
        return is_complete

    def _add(self, line: Line, parts: dict[str, list[Received]], state: WatchState, now: int) -> None:
        if line.observer != "task" or (line.src_site, line.src_entity) != (self._place.site, self._place.entity):
            return
        if line.outcome == "gap":
            # The numbers after it show up with the next record, which may be much later.
            state.lacks = [min([line.journal_time // 1000, *state.lacks[:1]]), now]
            return
        number = line.src_seq
        part = (line.src_part or 0) if self._place.is_hub else (number or 0) >> _PARTITION_BITS
        enqueued = None if line.enqueued_time is None else line.enqueued_time // 1000
        due = None if line.scheduled_time is None else line.scheduled_time // 1000
        parts.setdefault(str(part), []).append(Received(number, enqueued, due))

    async def _ask(self, part: int, numbers: Numbers, time: int) -> None:
        gaps = numbers.questions()
        if not gaps:
            numbers.resume = 0
            return
        seen = await self._source.look(part, gaps, numbers.high)
        if seen is not None:
            numbers.answer(seen.held, seen.until, time)

    async def _decide(self, state: WatchState, now: datetime) -> list[Found]:
        time = round(now.timestamp() * 1000)
        if state.lacks and state.lacks[-1] + 2 * GRACE < time:
            state.lacks = []
        suspected = {int(name): part for name, part in state.parts.items() if part.candidates(time)}
        if not suspected:
            return []
        known: dict[int, Numbers] = {}
        for name, numbers in suspected.items():
            dead = await self._source.dead_letters(numbers.dead_mark)
            explained = numbers.explain(dead.found)
            if explained:
                _LOGGER.info("%s: %d missing messages are in the dead-letter queue", self.task, explained)
            if dead.is_complete:
                known[name] = numbers
        # Once more: what the source does not hold by now has its record by now.
        if not await self._read(state, now):
            return []
        if state.lacks:
            forgiven = sum(numbers.forgive(state.lacks[0], state.lacks[-1] + GRACE) for numbers in known.values())
            if forgiven:
                text = "missing messages cannot be decided, because the best_effort journal lacks records"
                _LOGGER.warning("%s: %d %s; the nightly reconciliation reports them", self.task, forgiven, text)
        return [Found(part, loss) for part, numbers in known.items() for loss in numbers.lose(time)]

    def _report(self, lost: Sequence[Found]) -> None:
        if not lost:
            return
        numbers = sum(each.loss.count for each in lost)
        count = numbers - sum(each.loss.scheduled for each in lost)
        what = "event" if self._place.is_hub else "message"
        how = (
            "passed over without a record, and are in the hub until its retention ends"
            if self._place.is_hub
            else "gone from the source without a record: lost, expired or taken by another consumer"
        )
        _LOGGER.error(
            "%s: %d %s%s of %s %s %s; sequence numbers %s%s, enqueued from %s to %s",
            self.task,
            count,
            what,
            "" if count == 1 else "s",
            self._place,
            "is" if count == 1 else "are",
            how.replace("are in", "is in") if count == 1 else how,
            text_of(lost, is_hub=self._place.is_hub),
            "" if count == numbers else f" ({numbers - count} of them were those of scheduled messages)",
            _iso(min(each.loss.after for each in lost)),
            _iso(max(each.loss.before for each in lost)),
        )
        if self._telemetry is not None:
            self._telemetry.lost(self.task, count)


def _essence(state: WatchState) -> bytes:
    """Return what must not be lost when the process ends; offsets and received numbers can be read again."""
    parts = [[name, part.gaps, part.losses, part.dead_mark] for name, part in state.parts.items()]
    return msgspec.json.encode([parts, state.lacks])


def _decoded(content: bytes) -> WatchState | None:
    try:
        state = msgspec.json.decode(content, type=WatchState)
    except msgspec.DecodeError:
        return None
    return state if state.version == VERSION else None


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
