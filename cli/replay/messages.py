"""The messages to replay, as the task's source delivered them: from its hub, or copies of what the journal has."""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
from shared.resend.places import entity_named, place_at
from shared.resend.selection import Selection
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_COPIES_AT_ONCE = 500
_QUIET_SECONDS = 10.0
_MOST_HOURS = 24 * 90


def _name(place: Origin) -> str:
    return f"{place.site}/{place.entity}/{place.partition}"


@dataclass
class Messages:
    """The messages of one replay, and what of them cannot be replayed; the journal's place is in *folder*."""

    plan: Plan
    task: TaskFile
    configuration: Configuration
    settings: Mapping[str, str]
    folder: Path
    _: KW_ONLY
    clock: Clock = field(default_factory=SystemClock)
    not_found: list[str] = field(default_factory=list)
    """The sequence numbers of messages that the journal has, and of which there is no copy."""
    unread: list[str] = field(default_factory=list)
    """Why a part of the journal, or an event, cannot be read."""

    def __post_init__(self) -> None:
        self.selection = Selection(where=None if self.plan.where is None else filter_of(self.plan.where))
        self._site = self.configuration.site(self.task.source.connection)

    async def pages(self) -> AsyncGenerator[list[tuple[str, Letter]]]:
        """Yield the messages in order, some at a time, each list from one partition; raises BuswayError."""
        async with contextlib.aclosing(self._events() if self.task.source.hub else self._copies()) as pages:
            async for page in pages:
                found: list[tuple[str, Letter]] = []
                for letter in page:
                    if letter.message is None:
                        self.unread.append(f"{letter.origin.site}/{letter.origin.entity}: a message is not AMQP")
                    elif self.selection.takes(letter):
                        found.append((key_of(letter.message.arrival), letter))
                yield found

    async def _events(self) -> AsyncGenerator[list[Letter]]:
        plan, source = self.plan, self.task.source
        ends = await ends_of(self.configuration, self.task, self.settings)
        partitions = plan.partitions or [str(partition) for partition in source.partitions or sorted(ends, key=int)]
        unknown = [partition for partition in partitions if partition not in ends]
        if unknown:
            raise ConfigError([Problem(f"--partition {unknown[0]}", "unknown", f"expected {', '.join(sorted(ends))}")])
        if len(partitions) > 1 and (plan.first.number is not None or plan.last.number is not None):
            text = "is a position in one partition, and the hub has several"
            raise ConfigError([Problem("a sequence number", text, "name it with --partition, or use times")])
        hub = hub_of(self.configuration, self.task, self.settings, plan.consumer_group)
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
        first, last = self.plan.first, self.plan.last
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
                time = first.time
                if expected is None and not self.task.source.compacted and time is not None:
                    letter = page[0]
                    if letter.number == end.first > 0 and (letter.enqueued_time or 0) > time:
                        gone = f"events before sequence number {end.first} are no longer in the hub"
                        self.unread.append(f"{_name(place)}: {gone}, and may have been wanted")
                for letter in page:
                    if letter.number is not None:
                        self._note_gone(place, expected, letter.number)
                        expected = letter.number + 1
                between = [letter for letter in page if self._is_between(letter.number, letter.enqueued_time)]
                yield [letter for letter in between if letter.message is None or heartbeat_in(letter.message) is None]
                number = page[-1].number
                if number is None or number >= end.last or not last.is_after(number, page[-1].enqueued_time):
                    return
        # Nothing says why: what it still has may be anything up to its last event.
        text = f"sends no event within {_QUIET_SECONDS:.0f} s, expected those up to sequence number {end.last}"
        raise TargetUnavailable(f"{_name(place)}: {text}")

    def _note_gone(self, place: Origin, expected: int | None, found: int) -> None:
        """
        Note the events from *expected* on that the hub no longer has, although a reader of it is not refused.

        Compaction leaves gaps, too.
        """
        last = found - 1 if self.plan.last.number is None else min(found - 1, self.plan.last.number)
        if expected is not None and expected <= last and not self.task.source.compacted:
            gone = f"{expected}" if expected == last else f"{expected} to {last}"
            self.unread.append(f"{_name(place)}: no longer in the hub: sequence number {gone}")

    def _is_between(self, number: int | None, time: int | None) -> bool:
        return self.plan.first.is_before(number, time) and self.plan.last.is_after(number, time)

    async def _copies(self) -> AsyncGenerator[list[Letter]]:
        problems: dict[str, None] = {}
        received = sorted(self._received(problems), key=lambda each: each.sequence_number or 0)
        self.unread += problems
        places = [entity_named(copy, self.configuration, "--copies") for copy in self.plan.copies]
        if not places:  # those of the task's taps that do not drain them
            taps = [tap for tap in self.configuration.taps if tap.tap.of == self.task.task and tap.tap.side == "source"]
            places = [place_at(tap.source.connection, tap.source.entity, self.configuration) for tap in taps]
            places += dead_letters_of(self.task, self.configuration)
        contents = [await Contents.of(place, self.task, self.settings) for place in places]
        origin = Origin(self._site, self.task.source.entity)
        for start in range(0, len(received), _COPIES_AT_ONCE):
            page: list[Letter] = []
            for each in received[start : start + _COPIES_AT_ONCE]:
                copy = next((found for some in contents if (found := some.alike(each)) is not None), None)
                if copy is None:
                    self.not_found.append(str(each.sequence_number))
                    continue
                content = as_it_entered(copy, each._replace(has_expired=True), self.task, (), self.clock.now())
                page.append(Letter(content, origin))
            yield page

    def _received(self, problems: dict[str, None]) -> Iterator[Missing]:
        """Yield what the journal says that the task received between the positions, each message once."""
        # A position that is a number does not say which hours to read.
        now = self.clock.now()
        begin = now - timedelta(hours=_MOST_HOURS)
        if self.plan.first.time is not None:
            begin = max(begin, datetime.fromtimestamp(self.plan.first.time / 1000, UTC) - timedelta(hours=1))
        files = [
            path
            for path in journal_files(self.plan.journal, self.folder, hours_between(begin, now + timedelta(hours=1)))
            if f"task={self.task.task}/" in path.as_posix() and "role=source" in path.as_posix()
        ]
        found: dict[str, Missing] = {}
        for record in records_in(files, problems):
            is_received = record.get("outcome") == "received" and record.get("observer") == "task"
            if is_received and record.get("src_seq") is not None:
                each = Missing.of(record)
                if self._is_between(each.sequence_number, each.enqueued_time):
                    found.setdefault(each.key, each)
        yield from found.values()
