"""From the decisions of a pipeline to the lines of its journal."""

from functools import lru_cache
from typing import Any

from shared.journal.lines import quoted
from shared.message.message import Arrival, Origin
from shared.message.metadata import entity_that_gave_up
from shared.protocols import Entry, Imprint, Outcome, Record

_SERVICE_BUS_PARTITION = 0


def received_line(entry: Entry) -> str:
    """Return what is known of a message that has been received."""
    arrival, imprint, parts = entry.arrival, entry.imprint, entry.parts
    rest = _told_of_way(arrival.origin, arrival.dead_letter_source, tuple(imprint.hops))
    if imprint.attempt is not None and imprint.attempt > 1:
        rest += f',"attempt":{imprint.attempt}'
    if parts > 1:
        rest += f',"parts":{parts}'
    return identity_fields(arrival.sequence_number, arrival.enqueued_time) + imprint_fields(imprint) + rest


def identity_fields(sequence_number: int | None, enqueued_time: int | None) -> str:
    """Return the beginning of a line: the number of a message and the milliseconds at which its source took it."""
    if sequence_number is not None and enqueued_time is not None:
        return f'{{"src_seq":{sequence_number},"enqueued_time":{enqueued_time}000,'
    if enqueued_time is not None:
        return f'{{"enqueued_time":{enqueued_time}000,'
    return "{" if sequence_number is None else f'{{"src_seq":{sequence_number},'


def imprint_fields(imprint: Imprint) -> str:
    """Return what is known of a message's content."""
    body, properties, size = imprint.body_digest.hex(), imprint.property_digest, imprint.body_size
    identity, key = imprint.message_id, imprint.order_key
    told = "" if imprint.expires_at is None else f',"expires_at":{imprint.expires_at}000'
    if properties is None:
        return f'"body_digest":"{body}","body_size":{size}{told}'
    if identity is not None and key is not None:  # in one piece, as most messages have both
        told = f',"message_id":{quoted(identity)},"order_key":{quoted(key)}{told}'
    elif identity is not None:
        told = f',"message_id":{quoted(identity)}{told}'
    elif key is not None:
        told = f',"order_key":{quoted(key)}{told}'
    return f'"body_digest":"{body}","property_digest":"{properties.hex()}","body_size":{size}{told}'


@lru_cache(maxsize=1024)
def _told_of_way(origin: Origin, dead_letter_source: str | None, visited: tuple[str, ...]) -> str:
    told = f',"hops":[{",".join(map(quoted, (*visited, origin.site)))}]'
    given_up_by = entity_that_gave_up(Arrival(origin, dead_letter_source=dead_letter_source))
    return told if given_up_by is None else f'{told},"given_up_by":{quoted(given_up_by)}'


@lru_cache(maxsize=1024)
def _told_of_target(outcome: Outcome, target: str | None) -> str:
    told = f',"outcome":"{outcome.value}"'
    return told if target is None else f'{told},"target":{quoted(target)}'


def outcome_line(record: Record, ordinal: int) -> str:
    """Return what became of a message; of its content, what is not as it was received."""
    number, outcome, arrived, departed = record.arrival.sequence_number, record.outcome, record.arrived, record.departed
    told = _told_of_target(outcome, record.target)
    if record.is_remembered:
        told = f',"remembered":true{told}'
    elif outcome is Outcome.SENT and departed is not None and departed.property_digest is not None:
        told = f',"check":"{check_of(departed.body_digest, departed.property_digest):016x}"{told}'
    if arrived is not None:
        identity, key = record.message_id, record.order_key
        if identity is not None and identity != arrived.message_id:
            told += f',"message_id":{quoted(identity)}'
        if key is not None and key != arrived.order_key:
            told += f',"order_key":{quoted(key)}'
        if departed is not arrived and departed is not None and departed.property_digest is not None:
            digests = f'"{departed.body_digest.hex()}","property_digest":"{departed.property_digest.hex()}"'
            told += f',"body_digest":{digests},"body_size":{departed.body_size},"edited":true'
    if record.is_joined:
        told += ',"joined":true'
    if record.part is not None:
        told += f',"part":{record.part}'
    if record.stage is not None:
        told += f',"stage":"{record.stage}"'
    if record.reason is not None:
        told += f',"reason":{quoted(record.reason)}'
    return (
        f'{{"send_ordinal":{ordinal}{told}'
        if number is None
        else f'{{"src_seq":{number},"send_ordinal":{ordinal}{told}'
    )


def check_of(body: bytes, properties: bytes) -> int:
    """Return 64 bits that stand for both digests of a message."""
    return int.from_bytes(body[:8]) ^ int.from_bytes(properties)


def place_of(origin: Origin, *, is_hub: bool) -> dict[str, Any]:
    """Return the fields that say where a task takes its messages from."""
    place: dict[str, Any] = {"src_site": origin.site, "src_entity": origin.entity}
    part = partition_number(origin.partition) if is_hub else _SERVICE_BUS_PARTITION
    if part is not None:
        place["src_part"] = part
    return place


def partition_number(partition: str | None) -> int | None:
    """Return the number that the id of a hub's partition is, None for none."""
    return int(partition) if partition is not None and partition.isdecimal() else None
