"""The messages to replay, as the task's source delivered them: from its hub, or copies of what the journal has."""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cli.hub_reader import BEFORE_START, ends_of, events, hub_of
from cli.journal import hours_between, journal_files
from cli.letters.selection import filter_of
from cli.repair.copies import Contents, as_it_entered, dead_letters_of
from cli.repair.manifest import Missing
from cli.replay.plan import Plan
from shared.clock import Clock, SystemClock
from shared.ends.event_hubs.receiver import EventHub
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.journal.search import records_in
from shared.message.arrival import Origin
from shared.message.heartbeat import heartbeat_in
from shared.message.waiting import PartitionEnd
from shared.resend.letters import Letter
from shared.resend.pipeline_delivery import key_of
from shared.resend.places import Place, entity_named, place_at
from shared.resend.selection import Selection
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_COPIES_AT_ONCE = 500
_QUIET_SECONDS = 10.0
_MOST_HOURS = 24 * 90


def _name(place: Origin) -> str:
    return f"{place.site}/{place.entity}/{place.partition}"


class Messages:
    """The messages of one replay, and what of them cannot be replayed."""

    def __init__(
        self,
        plan: Plan,
        task: TaskFile,
        configuration: Configuration,
        settings: Mapping[str, str],
        folder: Path,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Read what *plan* selects; the journal's place is in *folder*."""
        self.selection = Selection(where=None if plan.where is None else filter_of(plan.where))
        self.not_found: list[str] = []
        """The sequence numbers of messages that the journal has, and of which there is no copy."""
        self.unread: list[str] = []
        """Why a part of the journal, or an event, cannot be read."""
        self._plan = plan
        self._task = task
        self._configuration = configuration
        self._settings = settings
        self._folder = folder
        self._clock = clock or SystemClock()
        self._site = configuration.site(task.source.connection)

    async def pages(self) -> AsyncGenerator[list[tuple[str, Letter]]]:
        """Yield the messages in order, some at a time, each list from one partition; raises BuswayError."""
        async with contextlib.aclosing(self._events() if self._task.source.hub else self._copies()) as pages:
            async for page in pages:
                found: list[tuple[str, Letter]] = []
                for letter in page:
                    if letter.message is None:
                        self.unread.append(f"{letter.origin.site}/{letter.origin.entity}: a message is not AMQP")
                    elif self.selection.takes(letter):
                        found.append((key_of(letter.message.arrival), letter))
                yield found

    async def _events(self) -> AsyncGenerator[list[Letter]]:
        plan, source = self._plan, self._task.source
        ends = await ends_of(self._configuration, self._task, self._settings)
        partitions = plan.partitions or [str(partition) for partition in source.partitions or sorted(ends, key=int)]
        unknown = [partition for partition in partitions if partition not in ends]
        if unknown:
            raise ConfigError([Problem(f"--partition {unknown[0]}", "unknown", f"expected {', '.join(sorted(ends))}")])
        if len(partitions) > 1 and (plan.first.number is not None or plan.last.number is not None):
            text = "is a position in one partition, and the hub has several"
            raise ConfigError([Problem("a sequence number", text, "name it with --partition, or use times")])
        hub = hub_of(self._configuration, self._task, self._settings, plan.consumer_group)
        try:
            for partition in partitions:
                place = Origin(self._site, source.hub or "", partition)
                if ends[partition].is_empty:
                    self._note_gone(place, plan.first.number, ends[partition].last + 1)
                    continue
                async with contextlib.aclosing(self._of_partition(hub, place, ends[partition])) as pages:
                    async for page in pages:
                        yield page
        finally:
            await hub.close()

    async def _of_partition(self, hub: EventHub, place: Origin, end: PartitionEnd) -> AsyncGenerator[list[Letter]]:
        first, last = self._plan.first, self._plan.last
        if not first.is_before(end.last, end.last_enqueued):
            return
        start: str | int | datetime = BEFORE_START
        if first.number:
            start = first.number - 1
        elif first.time is not None:
            start = datetime.fromtimestamp(first.time / 1000, UTC) - timedelta(seconds=1)
        expected = first.number
        async with contextlib.aclosing(events(hub, place, start, _QUIET_SECONDS)) as pages:
            async for page in pages:
                if expected is None and not self._task.source.compacted:
                    self._note_earlier(page[0], end)
                for letter in page:
                    if letter.number is not None:
                        self._note_gone(place, expected, letter.number)
                        expected = letter.number + 1
                between = [letter for letter in page if self._is_between(letter.number, letter.enqueued_time)]
                yield [letter for letter in between if letter.message is None or heartbeat_in(letter.message) is None]
                number, time = page[-1].number, page[-1].enqueued_time
                if number is None or number >= end.last or not last.is_after(number, time):
                    return
        # Nothing says why: what it still has may be anything up to its last event.
        text = f"sends no event within {_QUIET_SECONDS:.0f} s, expected those up to sequence number {end.last}"
        raise TargetUnavailable(f"{_name(place)}: {text}")

    def _note_earlier(self, letter: Letter, end: PartitionEnd) -> None:
        """Note that the first event of a partition came after the time from which on events are wanted."""
        time = self._plan.first.time
        if time is not None and letter.number == end.first > 0 and (letter.enqueued_time or 0) > time:
            text = f"events before sequence number {end.first} are no longer in the hub, and may have been wanted"
            self.unread.append(f"{_name(letter.origin)}: {text}")

    def _note_gone(self, place: Origin, expected: int | None, found: int) -> None:
        """
        Note the events from *expected* on that the hub no longer has, although a reader of it is not refused.

        Compaction leaves gaps, too.
        """
        last = found - 1 if self._plan.last.number is None else min(found - 1, self._plan.last.number)
        if expected is not None and expected <= last and not self._task.source.compacted:
            gone = f"{expected}" if expected == last else f"{expected} to {last}"
            self.unread.append(f"{_name(place)}: no longer in the hub: sequence number {gone}")

    def _is_between(self, number: int | None, time: int | None) -> bool:
        return self._plan.first.is_before(number, time) and self._plan.last.is_after(number, time)

    async def _copies(self) -> AsyncGenerator[list[Letter]]:
        problems: dict[str, None] = {}
        received = sorted(self._received(problems), key=lambda each: each.sequence_number or 0)
        self.unread += problems
        contents = [await Contents.of(place, self._task, self._settings) for place in self._places()]
        origin = Origin(self._site, self._task.source.entity)
        for start in range(0, len(received), _COPIES_AT_ONCE):
            page: list[Letter] = []
            for each in received[start : start + _COPIES_AT_ONCE]:
                copy = next((found for some in contents if (found := some.alike(each)) is not None), None)
                if copy is None:
                    self.not_found.append(str(each.sequence_number))
                    continue
                content = as_it_entered(copy, each._replace(has_expired=True), self._task, (), self._clock.now())
                page.append(Letter(content, origin))
            yield page

    def _places(self) -> list[Place]:
        """Return the entities with copies: those of `--copies`, or of the task's taps that do not drain them."""
        if self._plan.copies:
            return [entity_named(copy, self._configuration, "--copies") for copy in self._plan.copies]
        taps = [tap for tap in self._configuration.taps if tap.tap.of == self._task.task and tap.tap.side == "source"]
        tapped = [place_at(tap.source.connection, tap.source.entity, self._configuration) for tap in taps]
        return [*tapped, *dead_letters_of(self._task, self._configuration)]

    def _received(self, problems: dict[str, None]) -> Iterator[Missing]:
        """Yield what the journal says that the task received between the positions, each message once."""
        files = [
            path
            for path in journal_files(self._plan.journal, self._folder, self._hours())
            if f"task={self._task.task}/" in path.as_posix() and "role=source" in path.as_posix()
        ]
        found: dict[str, Missing] = {}
        for record in records_in(files, problems):
            if _is_reception(record):
                each = Missing.of(record)
                if self._is_between(each.sequence_number, each.enqueued_time):
                    found.setdefault(each.key, each)
        yield from found.values()

    def _hours(self) -> Sequence[str]:
        """Return the hours of journals to read; a position that is a number does not say which."""
        now = self._clock.now()
        first = now - timedelta(hours=_MOST_HOURS)
        if self._plan.first.time is not None:
            begin = datetime.fromtimestamp(self._plan.first.time / 1000, UTC)
            first = max(first, begin - timedelta(hours=1))
        return hours_between(first, now + timedelta(hours=1))


def _is_reception(record: Mapping[str, Any]) -> bool:
    """Return whether a record of the journal says that the task itself received a message with a number."""
    is_received = record.get("outcome") == "received" and record.get("observer") == "task"
    return is_received and record.get("src_seq") is not None
