"""
The journal's record, raw and compacted.

Units:   times are microseconds since 1970 UTC in raw journals, and timestamps of that precision when compacted.
Source:  `shared/journal`; a test compares the names. Only nullable fields are ever added; an incompatible change
         raises `v`.
"""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

VERSION = 1

TIMES = ("journal_time", "enqueued_time", "expires_at", "tgt_enqueued_time", "locked_until", "scheduled_time")

VALID_TIMES = (0, 253_402_214_400_000_000)
"""The first and last of them, from 1970 to the last day of 9999: later ones are invalid, for example in nanoseconds."""

FIELDS = {
    "v": IntegerType(),
    "task": StringType(),
    "role": StringType(),
    "observer": StringType(),
    "tap": StringType(),
    "peek": BooleanType(),
    "instance": StringType(),
    "batch_id": LongType(),
    "journal_time": LongType(),
    "outcome": StringType(),
    "src_site": StringType(),
    "src_entity": StringType(),
    "src_part": ShortType(),
    "src_seq": LongType(),
    "enqueued_time": LongType(),
    "part": IntegerType(),
    "parts": IntegerType(),
    "attempt": IntegerType(),
    "scheduled_time": LongType(),
    "expires_at": LongType(),
    "message_id": StringType(),
    "order_key": StringType(),
    "body_digest": StringType(),
    "body_size": IntegerType(),
    "property_digest": StringType(),
    "check": StringType(),
    "edited": BooleanType(),
    "hops": ArrayType(StringType()),
    "target": StringType(),
    "send_ordinal": IntegerType(),
    "remembered": BooleanType(),
    "joined": BooleanType(),
    "handed_over": BooleanType(),
    "stage": StringType(),
    "reason": StringType(),
    "identity": StringType(),
    "given_up_by": StringType(),
    "dead_letter_reason": StringType(),
    "locked_until": LongType(),
    "repair": BooleanType(),
    "tgt_part": ShortType(),
    "tgt_seq": LongType(),
    "tgt_enqueued_time": LongType(),
}

ALWAYS_THERE = ("task", "role", "observer", "instance", "batch_id", "journal_time", "outcome", "src_site", "src_entity")

# Identifies a record within an hour: two equal ones are a member that was appended twice, or a copied file.
IDENTITY = (
    "task", "observer", "tap", "instance", "batch_id", "role", "src_seq", "src_part", "part", "tgt_part", "tgt_seq",
    "send_ordinal", "outcome", "body_digest",
)  # fmt: skip

# Identifies a message of a task. `generation` is the enqueued time, because the sequence numbers of an entity start
# again when it is deleted and created; `stray` names a message that has no number of its source.
KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "generation", "stray")

REPLAY = "~"
"""In the name of a task: it is a replay of the task before this character."""

WITHHELD = ("filtered", "looped", "expired", "rejected")
ROLES = ("source", "target")
OBSERVERS = ("task", "tap")
GAP = "gap"
"""Outcome of a record about no message: between the first and the last of a task, batches are not in the journal."""
OUTCOMES = ("received", "sent", "retry", "seen", GAP, *WITHHELD)


def compacted() -> StructType:
    """Return the schema of a compacted record; `landed` is the hour (UTC) in which it was written."""
    kinds = {name: TimestampType() if name in TIMES else kind for name, kind in FIELDS.items()}
    kinds |= {"check": LongType(), "landed": StringType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


COMPACTED = tuple(compacted().names)
"""The columns of a compacted record."""
