"""
What happened to messages whose send was interrupted: the target may have accepted them, or not.

1. A copy that is in the target has the property RESENT_FROM with the identity of the message, and the proof of the
   ledger: it was sent. Without the proof, any producer may have sent it.
2. A message that is not there was not sent if every number since its run began is that of a message that is still
   there: see `shared.resend.numbering`. This decides as long as nobody consumes, and of a topic if nobody sends.
3. Otherwise it is unclear: it may have been consumed. It is not sent again, and reported. That earlier messages are
   still there shows nothing: a consumer that has several in hand completes them in any order.

A topic and a hub cannot be peeked; for a topic, a subscription is peeked if the messages came from it.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from shared.resend.edits import resent_key
from shared.resend.ledger import Entry, Ledger
from shared.resend.numbering import clear_probes, is_complete, is_increasing, next_number, run_of_probe
from shared.resend.peek import partition_of, peek
from shared.resend.places import DEAD_LETTERS, SUBSCRIPTION, Destination, Place, place_of
from shared.tasks.files import Configuration

# What a process has written to a connection before it was killed may reach the target this much later.
SETTLE_SECONDS = 5.0
SEND_SECONDS = 30.0
"""How long a send may take from its line in the ledger on."""


class Answer(StrEnum):
    """What is known about a message whose send was interrupted."""

    SENT = "sent"
    NOT_SENT = "not sent"
    UNCLEAR = "unclear"
    LOCKED = "locked"
    """It was sent, and another receiver has locked it before all was done with it."""


class Question(NamedTuple):
    """A message whose send was interrupted, and what the same run had sent to the same target."""

    key: str
    entry: Entry
    session_id: str | None
    sent_before: Sequence[str]


class Copy(NamedTuple):
    """What the target has of a message."""

    number: int | None
    session_id: str | None
    is_set_aside: bool
    """Whether nobody receives it as an active message: it is dead-lettered, deferred or scheduled."""


class View(NamedTuple):
    """What a look at a target shows."""

    copies: dict[str, Copy]
    """By the keys of the messages that runs with the ledger have sent."""
    numbers: set[int]
    """Of all messages in the entity that was sent to, none if it cannot be seen."""
    probes: dict[int, int] | None
    """The runs of the probes in that entity by their numbers, None if it cannot be seen."""


async def look(
    places: Sequence[Place], entity: Place | None, source: Place, settings: Mapping[str, str], ledger: Ledger
) -> View:
    """
    Return what *places* have of the messages of *source*; what was sent to *entity* came to them, or some of it.

    Raises TargetUnavailable if one cannot be peeked.
    """
    entered = None if entity is None else entity.entity.lower()
    is_seen = any(place.entity.lower() == entered for place in places)
    view, probes = View({}, set(), {} if is_seen else None), dict[int, int]()
    for place in places:
        async with contextlib.aclosing(peek(place, settings)) as letters:
            async for letter, message in letters:
                run = run_of_probe(letter, ledger)
                if run is not None:
                    probes[letter.number or 0] = run
                    continue
                if place.entity.lower() == entered:
                    view.numbers.add(letter.number or 0)
                key = resent_key(letter, source, ledger)
                if key is not None:
                    is_set_aside = place.is_dead_letter_queue or not message.is_active
                    view.copies[key] = Copy(letter.number, letter.session_id, is_set_aside)
    return view._replace(probes=probes) if is_seen else view


async def never_entered(
    questions: Sequence[Question], entity: Place, settings: Mapping[str, str], view: View, ledger: Ledger
) -> list[Question]:
    """
    Return those of *questions* that never entered *entity*, as a *view* of it and the numbers in the ledger show.

    A copy is in the view, or a run has set it aside and noted its number. If one that the same run had sent is not, it
    was taken. Numbers that do not grow are those of an entity that was created again.
    """
    to, probes = questions[0].entry.to, view.probes
    await clear_probes(entity, settings, probes or {}, to, ledger)
    end = await next_number(entity, settings, questions[0].session_id, to, ledger)
    known = {*view.numbers, *ledger.numbers_of(to)}
    # Copies in a subscription do not have the numbers of its topic.
    noted = [entry for entry in ledger.entries.values() if entry.to == to] if probes is not None else []
    marks = ledger.marks_of(to)
    # The numbers of one partition show nothing of the others.
    if end is None or any(map(partition_of, known)) or (probes is None and not is_increasing(ledger.numbers_of(to))):
        return []
    return [
        question
        for question in questions
        if question.entry.run in marks
        and (probes is None or probes.get(marks[question.entry.run]) == question.entry.run)
        # An earlier run may have noted the numbers of an entity that was created again since.
        and is_complete(marks[question.entry.run], end, known.union(_numbers(noted, question.entry.run)))
        and all(key in view.copies for key in question.sent_before if ledger.entries[key].run == question.entry.run)
    ]


def _numbers(entries: Iterable[Entry], first_run: int) -> Iterator[int]:
    """Yield the numbers that runs from *first_run* on have noted."""
    yield from (entry.number for entry in entries if entry.run >= first_run and entry.number is not None)


async def may_look(entries: Iterable[Entry], ledger: Ledger, stopping: asyncio.Event) -> bool:
    """Wait until what was sent must have arrived; return False if it is *stopping* before that."""
    # The line is written before the first attempt; the last one may be as long ago as the end of its process.
    latest = min(max((entry.at for entry in entries), default=0.0) + SEND_SECONDS, ledger.quiet_since)
    left = latest + SETTLE_SECONDS - ledger.clock.now().timestamp()
    if left > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), left)
    return not stopping.is_set()


def readable(place: Place, destination: Destination, configuration: Configuration) -> Place | None:
    """Return the queue to peek at, or the subscription that the messages came from, None if there is neither."""
    entity = place_of(destination, configuration)
    if entity is None:
        return None
    owner = place.entity[: -len(DEAD_LETTERS)] if place.is_dead_letter_queue else place.entity
    topic = owner.lower().partition(SUBSCRIPTION)[0]
    if SUBSCRIPTION in owner.lower() and place.site == destination.site and topic == destination.entity.lower():
        return place._replace(entity=owner)
    return entity


def by_destination(questions: Iterable[Question]) -> dict[str, list[Question]]:
    """Return *questions* by the target that the ledger has."""
    found: dict[str, list[Question]] = {}
    for question in questions:
        found.setdefault(question.entry.to, []).append(question)
    return found
