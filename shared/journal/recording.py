"""The lines of a task's journal, one for each message received and each outcome."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from shared.journal.imprints import PROPERTY_DIGEST_BYTES
from shared.journal.lines import Line
from shared.message.arrival import Arrival, Origin
from shared.message.metadata import entity_that_gave_up
from shared.protocols import Entry, Imprint, Outcome, Record

_SERVICE_BUS_PARTITION = 0
_CHECK_DIGITS = 2 * PROPERTY_DIGEST_BYTES
_MICROSECONDS = 1000
"""Microseconds in a millisecond."""


class ReceivedLine(Line):
    """A message that was received, or seen by a tap; times are microseconds since 1970 UTC."""

    src_seq: int | None = None
    enqueued_time: int | None = None
    body_digest: str | None = None
    property_digest: str | None = None
    body_size: int | None = None
    message_id: str | None = None
    order_key: str | None = None
    expires_at: int | None = None
    tgt_seq: int | None = None
    tgt_enqueued_time: int | None = None
    hops: tuple[str, ...] | None = None
    given_up_by: str | None = None
    dead_letter_reason: str | None = None
    attempt: int | None = None
    parts: int | None = None
    scheduled_time: int | None = None


class OutcomeLine(Line):
    """The outcome of a message; of its content, only what differs from the content that was received."""

    src_seq: int | None = None
    send_ordinal: int | None = None
    remembered: bool | None = None
    check: str | None = None
    outcome: str | None = None
    target: str | None = None
    message_id: str | None = None
    order_key: str | None = None
    body_digest: str | None = None
    property_digest: str | None = None
    body_size: int | None = None
    edited: bool | None = None
    joined: bool | None = None
    handed_over: bool | None = None
    part: int | None = None
    stage: str | None = None
    reason: str | None = None
    locked_until: int | None = None
    identity: str | None = None


def received_line(entry: Entry) -> ReceivedLine:
    """Return the line of a message that has been received."""
    arrival, imprint = entry.arrival, entry.imprint
    line = content_line(arrival.sequence_number, arrival.enqueued_time, imprint)
    line.hops, given_up_by = _history(arrival.origin, arrival.dead_letter_source, tuple(imprint.hops))
    # Most messages have none of these.
    if given_up_by is not None:
        line.given_up_by, line.dead_letter_reason = given_up_by, imprint.dead_letter_reason
    attempt = imprint.attempt
    if attempt is not None and attempt > 1:
        line.attempt = attempt
    if entry.parts > 1:
        line.parts = entry.parts
    if arrival.scheduled_time is not None:
        line.scheduled_time = microseconds(arrival.scheduled_time)
    return line


def content_line(sequence_number: int | None, enqueued_time: int | None, imprint: Imprint) -> ReceivedLine:
    """Return a line with a message's number, when its source enqueued it (milliseconds), and its content."""
    properties, expires_at = imprint.property_digest, imprint.expires_at
    # Content that cannot be read has no ids either.
    return ReceivedLine(
        sequence_number,
        None if enqueued_time is None else enqueued_time * _MICROSECONDS,
        imprint.body_digest.hex(),
        None if properties is None else properties.hex(),
        imprint.body_size,
        imprint.message_id,
        imprint.order_key,
        None if expires_at is None else expires_at * _MICROSECONDS,
    )


def outcome_lines(records: Sequence[Record]) -> list[OutcomeLine]:
    """Return the lines of the outcomes of a batch, in its order."""
    checks = _checks(records)
    return [_outcome_line(record, ordinal, checks.get(ordinal)) for ordinal, record in enumerate(records)]


def _outcome_line(record: Record, ordinal: int, check: str | None) -> OutcomeLine:
    outcome, arrived, departed = record.outcome, record.arrived, record.departed
    line = OutcomeLine(
        record.arrival.sequence_number,
        ordinal,
        record.is_remembered or None,
        check,
        outcome,
        record.target,
        joined=record.is_joined or None,
        handed_over=record.is_handed_over or None,
        part=record.part,
        stage=record.stage,
        reason=record.reason,
        identity=None if record.identity is None else record.identity.hex(),
    )
    if outcome is Outcome.EXPIRED:
        line.locked_until = microseconds(record.arrival.locked_until)
    if arrived is not None:
        if record.message_id != arrived.message_id:
            line.message_id = record.message_id
        if record.order_key != arrived.order_key:
            line.order_key = record.order_key
        if departed is not arrived and departed is not None and departed.property_digest is not None:
            line.body_digest, line.property_digest = departed.body_digest.hex(), departed.property_digest.hex()
            line.body_size, line.edited = departed.body_size, True
    return line


def _checks(records: Sequence[Record]) -> dict[int, str]:
    """Return the check of each message that was sent now, by the ordinal of its record."""
    ordinals: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    for ordinal, record in enumerate(records):
        departed = record.departed
        if record.outcome is Outcome.SENT and departed is not None and not record.is_remembered:
            digest = departed.property_digest
            if digest is not None:
                ordinals.append(ordinal)
                bodies.append(departed.body_digest)
                properties.append(digest)
    return dict(zip(ordinals, checks_of(bodies, properties), strict=True))


def microseconds(milliseconds: int | None) -> int | None:
    """Return a time in the unit of the records."""
    return None if milliseconds is None else milliseconds * _MICROSECONDS


@lru_cache(maxsize=1024)
def _history(
    origin: Origin, dead_letter_source: str | None, visited: tuple[str, ...]
) -> tuple[tuple[str, ...], str | None]:
    """Return the sites that a message has visited, and the entity whose dead-letter queue it comes from."""
    return (*visited, origin.site), entity_that_gave_up(Arrival(origin, dead_letter_source=dead_letter_source))


def checks_of(bodies: Sequence[bytes], properties: Sequence[bytes]) -> list[str]:
    """Return for each message 64 bits that represent both its digests, in hexadecimal."""
    # All at once: one by one, it takes three times as long.
    of_bodies = b"".join([body[:PROPERTY_DIGEST_BYTES] for body in bodies])
    both = int.from_bytes(of_bodies) ^ int.from_bytes(b"".join(properties))
    digits = both.to_bytes(len(of_bodies)).hex()
    return [digits[start : start + _CHECK_DIGITS] for start in range(0, len(digits), _CHECK_DIGITS)]


def place_of(origin: Origin, *, is_hub: bool) -> dict[str, Any]:
    """Return the fields that name the source of a task."""
    place: dict[str, Any] = {"src_site": origin.site, "src_entity": origin.entity}
    part = partition_number(origin.partition) if is_hub else _SERVICE_BUS_PARTITION
    if part is not None:
        place["src_part"] = part
    return place


def partition_number(partition: str | None) -> int | None:
    """Return the number in the id of a hub's partition, None if missing."""
    return int(partition) if partition is not None and partition.isdecimal() else None
