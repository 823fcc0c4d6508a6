"""Looks for missing sequence numbers at their source, and among its dead letters."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from shared.amqp import map_section, sections
from shared.amqp.values import Malformed
from shared.ends.service_bus.peek import MESSAGES_AT_ONCE, Peeker
from shared.message.peeked import PeekedMessage

MOST_MESSAGES = 20 * MESSAGES_AT_ONCE
"""Messages of a source in one look, and twice as many dead letters; the next look continues."""
MOST_SECONDS = 15.0
"""For each of the two: a partitioned entity has one message in an answer."""
_PARTITION_BITS = 48
# Source: Microsoft Learn, "Overview of Service Bus dead-letter queues", system-defined reasons.
_GIVEN_UP = ("TTLExpiredException", "MaxDeliveryCountExceeded", "HeaderSizeExceeded")

type Opener = Callable[[], AbstractAsyncContextManager[Peeker]]


class Range(NamedTuple):
    """Numbers to look for."""

    first: int
    last: int


class DeadLetter(NamedTuple):
    """A dead letter: its number, its number at the source if it is known, its enqueued time, and who gave it up."""

    number: int
    original: int | None
    enqueued: int | None
    is_given_up: bool


async def held_numbers(
    open_peeker: Opener, part: int, gaps: Iterable[Range]
) -> tuple[list[tuple[int, int | None]], int | None]:
    """
    Return the numbers of *gaps* that an entity holds, when the scheduled ones are due, and how far it was seen.

    None for that: to its end. *part* is the partition of a partitioned entity. Raises TargetUnavailable.
    """
    held: list[tuple[int, int | None]] = []
    seen = -1
    messages, end = 0, time.monotonic() + MOST_SECONDS
    async with open_peeker() as opened:
        for gap in gaps:
            while seen < gap.last:
                if messages >= MOST_MESSAGES or (messages and time.monotonic() > end):
                    return held, seen
                first = max(gap.first, seen + 1)
                peeked = await opened.peek(first, MESSAGES_AT_ONCE)
                messages += len(peeked)
                found = [
                    (message.sequence_number, _due(message))
                    for message in peeked
                    if message.sequence_number is not None and message.sequence_number >> _PARTITION_BITS == part
                ]
                held += found
                highest = max((number for number, _ in found), default=-1)
                if highest < first:
                    return held, None  # nothing from here on
                seen = highest
    return held, None


async def dead_letters(open_peeker: Opener, after: int, *, has_own_numbers: bool) -> tuple[list[DeadLetter], bool]:
    """
    Return the dead letters whose number is higher than *after*, and whether these are all.

    *has_own_numbers*: the entity is no subscription, whose dead letters have the number of the topic. Raises
    TargetUnavailable.
    """
    found: list[DeadLetter] = []
    end = time.monotonic() + MOST_SECONDS
    async with open_peeker() as opened:
        while len(found) < 2 * MOST_MESSAGES and (not found or time.monotonic() < end):
            peeked = await opened.peek(after + 1, MESSAGES_AT_ONCE)
            found += [
                _dead(message, has_own_numbers=has_own_numbers)
                for message in peeked
                if message.sequence_number is not None
            ]
            highest = max((letter.number for letter in found), default=after)
            if not peeked or highest <= after:
                return found, True
            after = highest
    return found, False


def _due(peeked: PeekedMessage) -> int | None:
    if not peeked.is_scheduled or peeked.arrival is None:
        return None
    return peeked.arrival.scheduled_time or 0


def _dead(peeked: PeekedMessage, *, has_own_numbers: bool) -> DeadLetter:
    raw = sections.split(peeked.content)
    original = reason = None
    try:
        if has_own_numbers:
            original = map_section.entry(raw.message_annotations, "x-opt-enqueue-sequence-number")
        reason = map_section.entry(raw.application_properties, "DeadLetterReason")
    except Malformed:
        pass  # compared by its time
    number = original.payload if original is not None else None
    text = reason.payload if reason is not None else None
    return DeadLetter(
        peeked.sequence_number or 0,
        number if isinstance(number, int) else None,
        peeked.enqueued_time,
        text in _GIVEN_UP,
    )
