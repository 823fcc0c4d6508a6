"""The search for copies of missing messages, and what is to happen with each."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import NamedTuple

from cli.repair.copies import Contents, Copy, dead_letters_of, event
from cli.repair.manifest import Missing
from shared.resend.ledger import DONE, OPEN, Ledger
from shared.resend.places import Place, place_at
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile


class State(StrEnum):
    """The result of a repair for one message."""

    FOUND = "found"
    SENT = "sent"
    WITHHELD = "withheld"
    DONE = "done before"
    THERE = "there already"
    WAITS = "waits"
    EXPIRED = "expired"
    LOST = "no copy"
    LEFT = "left alone"
    FAILED = "failed"


GOOD = (State.FOUND, State.SENT, State.WITHHELD, State.DONE, State.THERE, State.WAITS, State.EXPIRED)


class Report(NamedTuple):
    """The result of a repair for one message, with an explanation."""

    message: Missing
    state: State
    text: str


class Case(NamedTuple):
    """A missing message, a copy of it, and where the copy is to go."""

    missing: Missing
    copy: Copy
    there: Sequence[str]
    """The target queues that have the message."""
    only_for: Sequence[str]
    """The targets that lack it, none for all."""


@dataclass
class Search:
    """Looks for copies, each in the entities that may have one."""

    configuration: Configuration
    settings: Mapping[str, str]
    places: Sequence[Place]
    """Where to look too."""
    ledger: Ledger
    _: KW_ONLY
    sends_expired: bool
    consumer_group: str | None
    """Reads hubs; None for that of the task."""

    def __post_init__(self) -> None:
        self._tasks = {task.task: task for task in self.configuration.tasks}
        self._contents_by_place: dict[tuple[str, Place], Contents] = {}

    async def look_for(self, missing: Missing) -> Case | Report:
        """Return what is to be sent, or a report why there is nothing to send."""
        skipped = self._reason_to_skip(missing)
        if skipped is not None:
            return skipped
        task = self._tasks[missing.task]
        there = await self._at_targets(task, missing)
        lacking = self._lacking(task, missing, there)
        is_there = bool(there) and not lacking
        # What an interrupted repair has sent gets its records, as if it was sent now, if there is a copy.
        if is_there and self.ledger.state(missing.key) not in OPEN:
            return as_it_is_there(missing, there)
        stays = None if is_there else await self._reason_to_leave(task, missing, lacking)
        if stays is not None:
            return stays
        copy = None
        if task.source.hub is not None:
            copy = await event(self.configuration, task, self.settings, missing, self.consumer_group)
            names = f"the retained events of {self.configuration.site(task.source.connection)}/{task.source.hub}"
        else:
            taps = [tap.source for tap in self.configuration.taps if tap.task in missing.taps]
            tapped = [place_at(tap.connection, tap.entity, self.configuration) for tap in taps if tap.hub is None]
            places = dict.fromkeys([*dead_letters_of(task, self.configuration), *tapped, *self.places])
            names = ", ".join(map(str, places)) or "any entity: its source has no dead-letter queue; use --copies"
            for place in places:
                copy = copy or (await self._contents(task, place)).alike(missing)
        if copy is not None:
            return Case(missing, copy, there, lacking)
        if is_there:
            return as_it_is_there(missing, there)
        return Report(missing, State.LOST, f"not found in {names}")

    def _reason_to_skip(self, missing: Missing) -> Report | None:
        """Return the reason why this repair must not send a message, or None."""
        if self.ledger.state(missing.key) in DONE:
            return Report(missing, State.DONE, f"an earlier repair sent it (ledger: {self.ledger.where})")
        if missing.has_expired and not self.sends_expired:
            return Report(missing, State.EXPIRED, "its source expired it before it was sent; --expired sends it too")
        if missing.task not in self._tasks:
            known = ", ".join(self._tasks)
            return Report(missing, State.LEFT, f"no task has this name; the tasks are {known}")
        source = self._tasks[missing.task].source
        if (self.configuration.site(source.connection), source.entity) != (missing.site, missing.entity):
            text = f"it entered {missing.site}/{missing.entity}, but the task's source is now {source.entity}"
            return Report(missing, State.LEFT, text)
        return None

    async def _reason_to_leave(self, task: TaskFile, missing: Missing, lacking: Sequence[str]) -> Report | None:
        """Return a report if parts of a message arrived, or if it is still in its source, or None."""
        if missing.copies and not lacking:
            return Report(missing, State.LEFT, f"{missing.copies} of its parts arrived, and would arrive twice")
        source = task.source
        if source.hub is None:
            contents = await self._contents(task, place_at(source.connection, source.entity, self.configuration))
            is_numbered = missing.sequence_number is not None
            waiting = contents.numbered(missing) if is_numbered else contents.alike(missing)
            if waiting is not None:
                return Report(missing, State.WAITS, f"is still in {source.entity}: the task will receive it")
        return None

    async def _at_targets(self, task: TaskFile, missing: Missing) -> list[str]:
        """Return the target queues of the task that have a copy; a consumed one cannot be seen."""
        there = []
        for target in task.targets():
            if target.queue is not None and self.configuration.connections[target.connection].is_namespace:
                place = place_at(target.connection, target.queue, self.configuration)
                found = (await self._contents(task, place)).alike(missing)
                if found is not None:
                    there.append(name_of(found))
        return list(dict.fromkeys(there))

    def _lacking(self, task: TaskFile, missing: Missing, there: Sequence[str]) -> list[str]:
        """Return the targets that lack a message which other targets have, none if they are not known for sure."""
        if missing.copies != len(missing.arrived):
            return []  # of a part there may be several
        having = {*there, *missing.arrived}
        routes = [
            [f"{self.configuration.site(target.connection)}/{target.entity}" for target in route.targets]
            for route in task.routes
        ]
        possible = [names for names in routes if len(names) == missing.expected > 1 and having and having <= {*names}]
        return [name for name in possible[0] if name not in having] if len(possible) == 1 else []

    async def _contents(self, task: TaskFile, place: Place) -> Contents:
        key = task.task, place
        if key not in self._contents_by_place:
            self._contents_by_place[key] = await Contents.of(place, task, self.settings)
        return self._contents_by_place[key]


def as_it_is_there(missing: Missing, there: Sequence[str]) -> Report:
    """Return the report of a message that is in the queues *there*."""
    return Report(missing, State.THERE, f"is in {' and '.join(there)}")


def name_of(copy: Copy) -> str:
    """Return the entity that a copy is in, for people."""
    return f"{copy.place.site}/{copy.place.entity}"
