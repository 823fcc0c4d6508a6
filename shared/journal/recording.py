"""From the decisions of a pipeline to the lines of its journal."""

from shared.journal.imprints import check_of
from shared.journal.lines import Line
from shared.message import Origin
from shared.metadata import entity_that_gave_up
from shared.protocols import Entry, Imprint, Outcome, Record

MICROSECONDS = 1000

_SERVICE_BUS_PARTITION = 0


def received_line(entry: Entry) -> Line:
    """Return what is known of a message that has been received."""
    arrival, imprint = entry.arrival, entry.imprint
    line: Line = {}
    if arrival.sequence_number is not None:
        line["src_seq"] = arrival.sequence_number
    if arrival.enqueued_time is not None:
        line["enqueued_time"] = arrival.enqueued_time * MICROSECONDS
    add_imprint(line, imprint)
    if imprint.attempt is not None and imprint.attempt > 1:
        line["attempt"] = imprint.attempt
    line["hops"] = [*imprint.hops, arrival.origin.site]
    if entry.parts > 1:
        line["parts"] = entry.parts
    given_up_by = entity_that_gave_up(arrival)
    if given_up_by is not None:
        line["given_up_by"] = given_up_by
    return line


def add_imprint(line: Line, imprint: Imprint) -> None:
    """Add what is known of a message's content to *line*."""
    if imprint.message_id is not None:
        line["message_id"] = imprint.message_id
    if imprint.order_key is not None:
        line["order_key"] = imprint.order_key
    line["body_digest"] = imprint.body_digest.hex()
    if imprint.property_digest is not None:
        line["property_digest"] = imprint.property_digest.hex()
    line["body_size"] = imprint.body_size
    if imprint.expires_at is not None:
        line["expires_at"] = imprint.expires_at * MICROSECONDS


def outcome_line(record: Record, ordinal: int) -> Line:
    """Return what became of a message; of its content, what is not as it was received."""
    line: Line = {}
    if record.arrival.sequence_number is not None:
        line["src_seq"] = record.arrival.sequence_number
    line["send_ordinal"] = ordinal
    arrived, departed = record.arrived, record.departed
    if record.is_remembered:
        line["remembered"] = True
    elif record.outcome is Outcome.SENT and departed is not None and departed.property_digest is not None:
        line["check"] = check_of(departed.body_digest, departed.property_digest).hex()
    line["outcome"] = record.outcome
    if record.target is not None:
        line["target"] = record.target
    if record.part is not None:
        line["part"] = record.part
    if arrived is not None:
        if record.message_id is not None and record.message_id != arrived.message_id:
            line["message_id"] = record.message_id
        if record.order_key is not None and record.order_key != arrived.order_key:
            line["order_key"] = record.order_key
        if departed is not None and departed is not arrived and departed.property_digest is not None:
            line["body_digest"] = departed.body_digest.hex()
            line["property_digest"] = departed.property_digest.hex()
            line["body_size"] = departed.body_size
            line["edited"] = True
    if record.stage is not None:
        line["stage"] = record.stage
    if record.reason is not None:
        line["reason"] = record.reason
    return line


def place_of(origin: Origin, *, is_hub: bool) -> Line:
    """Return the fields that say where a task takes its messages from."""
    place: Line = {"src_site": origin.site, "src_entity": origin.entity}
    part = partition_number(origin.partition) if is_hub else _SERVICE_BUS_PARTITION
    if part is not None:
        place["src_part"] = part
    return place


def partition_number(partition: str | None) -> int | None:
    """Return the number that the id of a hub's partition is, None for none."""
    return int(partition) if partition is not None and partition.isdecimal() else None
