"""The given-up messages of an app's tasks, as its dashboard shows them. Nothing is received, only peeked."""

import contextlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from shared.errors import BuswayError, ConfigError, MessageRejected, Problem
from shared.message.view import body_lines, fields
from shared.resend.groups import Groups, group_of
from shared.resend.letters import Letter
from shared.resend.model import (
    DeadEntity,
    DeadGroup,
    DeadLetterReport,
    GroupChoice,
    LetterDetail,
    LetterField,
    LetterLine,
    LetterList,
)
from shared.resend.peek import peek
from shared.resend.places import Place, dead_letter_queues, rejects_queues
from shared.stores.blobs import some_at_once
from shared.tasks.files import Configuration

MOST_PEEKED = 20_000
"""Messages of an entity that are looked at, from its first one on; so much for groups, lists and a resend."""
MOST_GROUPS = 100
_MOST_BYTES = 64 << 20
# A partitioned entity has one message in an answer.
_MOST_SECONDS = 20.0
_MOST_LISTED = 100
_MOST_BODY = 64 << 10

type Kind = Literal["dead letters", "rejects"]


class KnownEntity(NamedTuple):
    """An entity that the tasks name."""

    kind: Kind
    place: Place


class Board:
    """
    Looks into the entities of a configuration.

    Raises: every method but `report` raises ConfigError for an unknown entity, TargetUnavailable and TargetRefused.
    """

    def __init__(self, configuration: Configuration, settings: Mapping[str, str], *, shows_bodies: bool) -> None:
        """Show bodies only with *shows_bodies*."""
        self._settings = settings
        self._shows_bodies = shows_bodies
        known = [KnownEntity("dead letters", queue) for queue in dead_letter_queues(configuration)]
        known += [KnownEntity("rejects", queue) for queue in rejects_queues(configuration)]
        self._known = {address(entity.place): entity for entity in known}
        targets = [target for task in configuration.tasks for target in task.targets()]
        self._destinations = sorted({f"{target.connection}/{target.entity}" for target in targets})

    def place(self, entity: str) -> Place:
        """Return the entity CONNECTION/ENTITY; raises ConfigError if no task has it."""
        found = self._known.get(entity)
        if found is None:
            hint = f"expected one of {', '.join(self._known) or 'none'}"
            raise ConfigError([Problem(entity or "entity", "is no dead-letter queue or rejects queue of a task", hint)])
        return found.place

    async def report(self, *, may_resend: bool) -> DeadLetterReport:
        """Return the groups of all entities; one that cannot be read leaves the others."""
        now = datetime.now(UTC)
        entities = await some_at_once([self._entity(name, known, now) for name, known in self._known.items()])
        return DeadLetterReport(_time(now), may_resend, self._shows_bodies, self._destinations, entities)

    async def letters(self, entity: str, group: GroupChoice) -> LetterList:
        """Return the first messages of a group."""
        found: list[LetterLine] = []
        async with contextlib.aclosing(peek(self.place(entity), self._settings, most=MOST_PEEKED)) as letters:
            async for letter, _ in letters:
                if group_of(letter) == group:
                    found.append(_line(letter))
                if len(found) > _MOST_LISTED:
                    break
        return LetterList(found[:_MOST_LISTED], len(found) > _MOST_LISTED)

    async def letter(self, entity: str, number: int) -> LetterDetail | None:
        """Return one message, None if it is not there."""
        place = self.place(entity)
        async with contextlib.aclosing(peek(place, self._settings, number, most=1)) as letters:
            async for letter, _ in letters:
                if letter.number == number:
                    return self._detail(entity, place, letter)
        return None

    async def _entity(self, name: str, known: KnownEntity, now: datetime) -> DeadEntity:
        groups, seen, size, is_cut = Groups(known.place, now), 0, 0, False
        end = time.monotonic() + _MOST_SECONDS
        try:
            async with contextlib.aclosing(peek(known.place, self._settings, most=MOST_PEEKED)) as letters:
                async for letter, peeked in letters:
                    seen += 1
                    groups.add(letter, peeked)
                    size += len(letter.content)
                    is_cut = seen >= MOST_PEEKED or size > _MOST_BYTES or time.monotonic() > end
                    if is_cut:
                        break
        except BuswayError as error:
            return DeadEntity(name, str(known.place), known.kind, None, unknown=_reason(error))
        shown = [
            DeadGroup(reason.name, reason.count, reason.oldest, reason.newest, reason.example)
            for reason in groups.reasons()[:MOST_GROUPS]
        ]
        return DeadEntity(name, str(known.place), known.kind, groups.count, is_cut, shown)

    def _detail(self, entity: str, place: Place, letter: Letter) -> LetterDetail:
        head = (entity, str(place), _line(letter), group_of(letter), letter.is_wrapped)
        try:
            message = letter.readable()
            shown = [LetterField(field.name, field.type, field.value) for field in fields(message)]
            body = "\n".join(body_lines(message)) if self._shows_bodies else None
        except MessageRejected as error:
            return LetterDetail(*head, [], None, unreadable=error.description)
        is_cut = body is not None and len(body) > _MOST_BODY
        return LetterDetail(*head, shown, None if body is None else body[:_MOST_BODY], is_cut)


def address(place: Place) -> str:
    """Return CONNECTION/ENTITY."""
    return f"{place.alias}/{place.entity}"


def _line(letter: Letter) -> LetterLine:
    enqueued = None
    if letter.enqueued_time is not None:
        with contextlib.suppress(ValueError, OverflowError, OSError):
            enqueued = _time(datetime.fromtimestamp(letter.enqueued_time / 1000, UTC))
    return LetterLine(
        letter.number, enqueued, letter.message_id, letter.session_id, letter.description, len(letter.content)
    )


def _reason(error: BuswayError) -> str:
    return str(error.problems[0]) if isinstance(error, ConfigError) else str(error)


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
