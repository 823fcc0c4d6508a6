"""
The history of a message: its repl-* application properties.

One value per hop, joined by ";", so that the third of `repl-sequence` belongs to the third site of `repl-path`.
Source: Azure Service Bus, "Message replication tasks patterns", service-assigned metadata.
"""

import json
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from shared.amqp.codec import encode
from shared.amqp.values import Malformed, Value, string
from shared.message.arrival import Arrival
from shared.message.message import Message

STAMPS = "repl-"
"""How the names of all of them begin."""
ENQUEUE_TIME = "repl-enqueue-time"
SEQUENCE = "repl-sequence"
OFFSET = "repl-offset"
PATH = "repl-path"
DEAD_LETTER_REASON = "repl-dlq-reason"
DEAD_LETTER_DESCRIPTION = "repl-dlq-description"
DEAD_LETTER_SOURCE = "repl-dlq-source"

# Written by the .NET sample instead of the documented name; read so that a history it began is continued.
SAMPLE_ENQUEUE_TIME = "repl-enqueued-time"

SEPARATOR = ";"
DEAD_LETTER_QUEUES = ("/$transfer/$deadletterqueue", "/$deadletterqueue")

_KEYS = {name: encode(string(name)) for name in (PATH, ENQUEUE_TIME, SEQUENCE, OFFSET)}
_MOST_DIGITS = 18  # of a number of 64 bits
_SHORT = 256  # a string of fewer bytes has a length of one byte

_SERVICE_DEAD_LETTER = {"DeadLetterReason": DEAD_LETTER_REASON, "DeadLetterErrorDescription": DEAD_LETTER_DESCRIPTION}


def stamp(message: Message) -> None:
    """
    Append the arrival of *message* to its repl-* properties, and its site to the path.

    Shape:   application properties in, the same plus the stamps; DeadLetterReason and DeadLetterErrorDescription move.
    Units:   repl-enqueue-time is ISO 8601 in UTC to the millisecond.
    Raises:  Malformed if an existing repl-* property is not text.
    """
    arrival = message.arrival
    sequence_number, offset, enqueued_time = arrival.sequence_number, arrival.offset, arrival.enqueued_time
    present = message.sections.application_properties
    given_up_by = entity_that_gave_up(arrival)
    # Not "in", which takes four times as long: it asks first whether what it looks for is a number.
    if given_up_by is None and present.find(b"repl-") < 0 and present.find(b"DeadLetter") < 0:
        pairs = [_path(arrival.origin.site)]
        if enqueued_time is not None:
            seconds, rest = divmod(enqueued_time, 1000)
            pairs.append(b"%b%03dZ" % (_enqueued_in(seconds), rest))
        if sequence_number is not None:
            digits = b"%d" % sequence_number
            pairs.append(b"%b\xa1%c%b" % (_KEYS[SEQUENCE], len(digits), digits))
        if offset is not None:
            pairs.append(_pair(OFFSET, offset))
        message.append_properties(b"".join(pairs), len(pairs))
        return
    changes: dict[str, Value | None] = {PATH: _appended(message, PATH, arrival.origin.site)}
    if enqueued_time is not None:
        earlier = SAMPLE_ENQUEUE_TIME if message.application_property(ENQUEUE_TIME) is None else ENQUEUE_TIME
        changes[SAMPLE_ENQUEUE_TIME] = None
        changes[ENQUEUE_TIME] = _appended(message, earlier, iso_time(enqueued_time))
    if sequence_number is not None:
        changes[SEQUENCE] = _appended(message, SEQUENCE, str(sequence_number))
    if offset is not None:
        changes[OFFSET] = _appended(message, OFFSET, offset)
    for theirs, ours in _SERVICE_DEAD_LETTER.items():
        value = message.application_property(theirs)
        # One of another type is the application's own; null is what an SDK sends for a reason that was not given.
        if value is not None and isinstance(value.payload, str):
            changes[ours] = _appended(message, ours, value.payload)
            changes[theirs] = None
        elif value is not None and value.payload is None:
            changes[theirs] = None
    if given_up_by is not None:
        changes[DEAD_LETTER_SOURCE] = _appended(message, DEAD_LETTER_SOURCE, given_up_by)
    message.set_properties(changes)


class Departure(NamedTuple):
    """What a message was stamped with when it left a site; None where it does not say so."""

    sequence_number: int | None
    enqueued_time: int | None
    """In milliseconds since 1970."""


def unstamp(message: Message, site: str, sequence_number: int | None = None) -> Departure:
    """
    Remove what *message* was stamped with when it left *site*, and since then; return that of *site*.

    It may have left the site more than once: with a *sequence_number* that is the one. Raises nothing: stamps that are
    not text stay, and `stamp` refuses them.
    """
    try:
        path, numbers, times = (
            (_history(message, name) or "").split(SEPARATOR) for name in (PATH, SEQUENCE, ENQUEUE_TIME)
        )
    except Malformed:
        return Departure(None, None)
    has_numbers = len(numbers) == len(path)
    hops = [
        hop
        for hop, visited in enumerate(path)
        if visited == site and (sequence_number is None or (has_numbers and numbers[hop] == str(sequence_number)))
    ]
    if not hops:
        return Departure(None, None)
    hop = hops[-1]
    kept = {PATH: path[:hop], SEQUENCE: numbers[:hop], ENQUEUE_TIME: times[:hop]}
    message.set_properties({name: string(SEPARATOR.join(values)) if values else None for name, values in kept.items()})
    if not has_numbers or len(times) != len(path):
        return Departure(None, None)
    return Departure(_number(numbers[hop]), _milliseconds(times[hop]))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _milliseconds(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * 1000)


def visited_sites(message: Message) -> list[str]:
    """Return the sites that *message* has left, oldest first, from its repl-path."""
    path = _history(message, PATH)
    return path.split(SEPARATOR) if path else []


def deterministic_id(arrival: Arrival) -> str | None:
    """
    Return an id for a message that has none: the same at every redelivery, different for every other message.

    That of a message from an envelope is the same in every envelope with the same content. Raises nothing; None where
    the service gave no sequence number (a message that was never enqueued).
    """
    if arrival.event is not None:
        event = json.dumps(arrival.event)  # ASCII, and no two events give one text
        return blake2b(event.encode(), digest_size=16).hexdigest()
    if arrival.sequence_number is None:
        return None
    origin = arrival.origin
    identity = (
        f"{origin.site}/{origin.entity}/{origin.partition or ''}/{arrival.sequence_number}/{arrival.enqueued_time}"
    )
    return blake2b(identity.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=256)
def _path(site: str) -> bytes:
    return _pair(PATH, site)


@lru_cache(maxsize=256)
def _enqueued_in(seconds: int) -> bytes:
    """Return the pair of the enqueue time up to its milliseconds."""
    return _pair(ENQUEUE_TIME, f"{_iso_second(seconds)}.000Z")[: -len("000Z")]


def _pair(name: str, text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) < _SHORT:
        return b"%b\xa1%c%b" % (_KEYS[name], len(encoded), encoded)
    return _KEYS[name] + encode(string(text))


def iso_time(milliseconds: int) -> str:
    """Return a time in ISO 8601, UTC, to the millisecond; Malformed outside the years 1 to 9999."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_iso_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=256)
def _iso_second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise Malformed(f"enqueued time: {seconds} s since 1970, expected one in the years 1 to 9999") from error


def _appended(message: Message, name: str, text: str) -> Value:
    history = _history(message, name)
    return string(f"{history}{SEPARATOR}{text}" if history else text)


def _history(message: Message, name: str) -> str | None:
    value = message.application_property(name)
    if value is None or value.payload is None:
        return None
    # A char may be half of a pair of surrogates, which no string holds.
    if isinstance(value.payload, str) and value.kind != "char":
        return value.payload
    raise Malformed(f"property {name}: got a {value.kind}, expected a string")


def entity_that_gave_up(arrival: Arrival) -> str | None:
    """Return the entity that dead-lettered a message, None for a message that is not a dead letter."""
    return arrival.dead_letter_source or _owner_of_dead_letters(arrival.origin.entity)


@lru_cache(maxsize=256)
def _owner_of_dead_letters(entity: str) -> str | None:
    """Return the entity to which the dead-letter queue *entity* belongs, None if *entity* is not one."""
    return next(
        (
            entity[: -len(dead_letter_queue)]
            for dead_letter_queue in DEAD_LETTER_QUEUES
            if entity.lower().endswith(dead_letter_queue)
        ),
        None,
    )
