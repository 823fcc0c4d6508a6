"""Entities that may have a copy of a missing message: they are peeked, never received from."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from cli.hub_reader import events, hub_of
from cli.repair.manifest import Missing
from shared.amqp import map_section, sections
from shared.amqp.values import Malformed, Value, long, string, symbol, timestamp
from shared.assembly.journals import actions_of
from shared.errors import TargetUnavailable
from shared.journal.imprints import Imprinter
from shared.line.rejection import share_for
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import unstamp
from shared.message.rule_properties import RuleProperties
from shared.resend.peek import peek
from shared.resend.places import DEAD_LETTERS, Place, place_at
from shared.rules.rule import parse_action
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_DEAD_LETTER_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")
_ANNOTATIONS = b"\x00\x53\x72"
_MAX_MESSAGES = 200_000
_QUIET_SECONDS = 5.0
_CLOCK = timedelta(seconds=1)


class Copy(NamedTuple):
    """An encoded message, and the entity that it is in."""

    content: bytes
    place: Origin


class Contents:
    """The messages of an entity by sequence number and by id."""

    def __init__(self, place: Origin) -> None:
        self._by_number: dict[int, bytes] = {}
        self._by_id: dict[str | None, list[tuple[bytes, str, str | None]]] = {}
        self.place = place

    @classmethod
    async def of(cls, place: Place, task: TaskFile, settings: Mapping[str, str]) -> Self:
        """
        Read a queue, subscription or dead-letter queue, with the digests that the journal of *task* has.

        Raises: TargetUnavailable if it cannot be read, or has more messages than a repair reads.
        """
        found, imprinter, count = cls(place.origin), Imprinter(actions_of(task)), 0
        async with contextlib.aclosing(peek(place, settings)) as letters:
            async for letter, peeked in letters:
                count += not peeked.is_scheduled
                if count > _MAX_MESSAGES:
                    text = f"has more than {_MAX_MESSAGES} messages, too many for a repair to read"
                    raise TargetUnavailable(f"{place}: {text}")
                # The journal has no digests of one that cannot be read either.
                if letter.message is None or peeked.is_scheduled:
                    continue
                with contextlib.suppress(Malformed):
                    imprint = imprinter.arriving(letter.message)
                    if letter.number is not None:
                        found._by_number[letter.number] = letter.content
                    properties = None if imprint.property_digest is None else imprint.property_digest.hex()
                    copy = (letter.content, imprint.body_digest.hex(), properties)
                    found._by_id.setdefault(imprint.message_id, []).append(copy)
        return found

    def numbered(self, missing: Missing) -> Copy | None:
        """Return the message itself, by its sequence number."""
        content = None if missing.sequence_number is None else self._by_number.get(missing.sequence_number)
        if content is None:
            return None
        enqueued = Message.received(content, self.place).arrival.enqueued_time
        # The numbers of an entity start again when it is deleted and created.
        return Copy(content, self.place) if enqueued == missing.enqueued_time else None

    def alike(self, missing: Missing) -> Copy | None:
        """Return a copy with another sequence number, the same id and the same content."""
        for content, body, properties in self._by_id.get(missing.message_id, []):
            if body == missing.body_digest and properties == missing.property_digest:
                return Copy(content, self.place)
        return None


def dead_letters_of(task: TaskFile, configuration: Configuration) -> list[Place]:
    """Return the dead-letter queue of a task's source, none for a hub or a dead-letter queue."""
    source = task.source
    is_elsewhere = source.hub is not None or source.dead_letter
    return [] if is_elsewhere else [place_at(source.connection, source.entity, configuration).dead_letters()]


async def event(
    configuration: Configuration, task: TaskFile, settings: Mapping[str, str], missing: Missing, group: str | None
) -> Copy | None:
    """
    Return an event that its hub still has, or None, read with a consumer *group*, by default that of the task.

    Raises TargetUnavailable and TargetRefused.
    """
    if missing.partition is None or missing.enqueued_time is None or task.source.hub is None:
        return None
    hub = hub_of(configuration, task, settings, group)
    place = Origin(configuration.site(task.source.connection), task.source.hub, str(missing.partition))
    since = datetime.fromtimestamp(missing.enqueued_time / 1000, UTC) - _CLOCK
    try:
        async with contextlib.aclosing(events(hub, place, since, _QUIET_SECONDS)) as pages:
            async for page in pages:
                for letter in page:
                    number = letter.number
                    if number is None or missing.sequence_number is None or number > missing.sequence_number:
                        return None
                    if number == missing.sequence_number:
                        return Copy(letter.content, place) if letter.enqueued_time == missing.enqueued_time else None
    finally:
        await hub.close()
    return None


def as_it_entered(copy: Copy, missing: Missing, task: TaskFile, only_for: Sequence[str], now: datetime) -> bytes:
    """Return the copy as the task's source would deliver it, to be sent only to the targets *only_for*, if any."""
    source = Origin(missing.site, missing.entity)
    raw = sections.split(copy.content)
    if task.source.hub is not None and not only_for:
        return copy.content
    message = Message(raw, Message.received(copy.content, source).arrival)
    number, enqueued = missing.sequence_number, missing.enqueued_time
    if number is not None or copy.place.site != missing.site:
        left = unstamp(message, missing.site, number)
        number, enqueued = (left.sequence_number, left.enqueued_time) if number is None else (number, enqueued)
    if only_for:
        message.set_properties({name: string(text) for name, text in share_for(task.task, source, only_for).items()})
    if task.source.hub is not None:
        return message.encode()
    if not task.source.dead_letter and copy.place.entity == task.source.entity + DEAD_LETTERS:
        message.set_properties(dict.fromkeys(_DEAD_LETTER_PROPERTIES))
    elif task.source.rule is not None and task.source.rule.action is not None:
        # The rule of the task's own subscription was not applied to a copy in another one.
        parse_action(task.source.rule.action).apply(RuleProperties(message))
    if missing.has_expired and missing.enqueued_time is not None and message.time_to_live and task.ttl == "remaining":
        # The task subtracts the age of the message, so that its whole life remains.
        age = round(now.timestamp() * 1000) - missing.enqueued_time
        message.time_to_live = message.time_to_live + max(age, 0)
    changes: dict[str, Value | None] = {"x-opt-deadletter-source": None, "x-opt-locked-until": None}
    if number is not None:
        changes["x-opt-sequence-number"] = long(number)
    if enqueued is not None:
        changes["x-opt-enqueued-time"] = timestamp(enqueued)
    raw.message_annotations = map_section.edited(raw.message_annotations, _ANNOTATIONS, changes, symbol)
    sent = (raw.header, raw.message_annotations, raw.properties, raw.application_properties, raw.body, raw.footer)
    return b"".join(sent)
