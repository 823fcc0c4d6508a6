"""
The journal's record as it is read and as it is kept compacted.

Units:   in raw journals times are microseconds since 1970 UTC, compacted they are timestamps of that precision.
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

TIMES = ("journal_time", "enqueued_time", "expires_at", "tgt_enqueued_time")

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
    "stage": StringType(),
    "reason": StringType(),
    "given_up_by": StringType(),
    "tgt_part": ShortType(),
    "tgt_seq": LongType(),
    "tgt_enqueued_time": LongType(),
}

ALWAYS_THERE = ("task", "role", "observer", "instance", "batch_id", "journal_time", "outcome", "src_site", "src_entity")

# What tells a record from every other one: the same twice is a member that was appended twice, or a copied file.
IDENTITY = (
    "task", "observer", "tap", "instance", "batch_id", "role", "src_seq", "src_part", "part", "tgt_part", "tgt_seq",
    "send_ordinal", "outcome", "body_digest",
)  # fmt: skip

# What a key is: the message of a task. `generation` is the enqueued time, which tells a re-made entity's messages
# apart; `stray` names what a tap saw and nobody else numbered.
KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "generation", "stray")

WITHHELD = ("filtered", "looped", "expired", "rejected")
ROLES = ("source", "target")
OBSERVERS = ("task", "tap")
GAP = "gap"
"""What a record says that is of no message: from one such record of a task to its last, batches are not on record."""
OUTCOMES = ("received", "sent", "retry", "seen", GAP, *WITHHELD)


def raw() -> StructType:
    """Return the schema of a line of a raw journal."""
    return StructType([StructField(name, kind) for name, kind in FIELDS.items()])


def compacted() -> StructType:
    """Return the schema of a compacted record; `landed` is the hour (UTC) in which it was written."""
    kinds = {name: TimestampType() if name in TIMES else kind for name, kind in FIELDS.items()}
    # 64 bits over body and properties: at arrival, and as they came in.
    kinds |= {"check": LongType(), "entry_check": LongType(), "landed": StringType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])
