"""
The journal's record: the fields of a line of a journal.

Each field has its JSON form, its type in Parquet and Spark, and whether it may be missing; docs/journal-records.md says
what it means. A field without a value is left out. Optional fields may be added; any other change needs a new VERSION.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Optional, TypeGuard

import msgspec

from shared.protocols import Outcome

VERSION = 1

# Values of the field `outcome` for messages without an outcome yet; the others are `shared.protocols.Outcome`.
RECEIVED = "received"
SEEN = "seen"
# A record of the journal itself, not of a message: records of batches up to, or from, this one are lost.
GAP = "gap"


class Role(StrEnum):
    """The side of a task that a record is about, and the last folder of its path."""

    SOURCE = "source"
    TARGET = "target"


class Observer(StrEnum):
    """The writer of a record: the task that carries the messages, or a tap that only observes."""

    TASK = "task"
    TAP = "tap"


class Field(NamedTuple):
    """A field by its name, JSON form (int, string, hex, boolean, list) and Spark type."""

    name: str
    json: str
    spark: str
    is_nullable: bool = True


# Units: times are microseconds since 1970 UTC, as Spark keeps them.
FIELDS = (
    Field("v", "int", "tinyint", is_nullable=False),
    Field("task", "string", "string", is_nullable=False),
    Field("role", "string", "string", is_nullable=False),
    Field("observer", "string", "string", is_nullable=False),
    Field("tap", "string", "string"),
    Field("peek", "boolean", "boolean"),
    Field("instance", "string", "string", is_nullable=False),
    Field("batch_id", "int", "bigint", is_nullable=False),
    Field("journal_time", "int", "timestamp", is_nullable=False),
    Field("outcome", "string", "string", is_nullable=False),
    Field("src_site", "string", "string", is_nullable=False),
    Field("src_entity", "string", "string", is_nullable=False),
    Field("src_part", "int", "smallint"),
    Field("src_seq", "int", "bigint"),
    Field("enqueued_time", "int", "timestamp"),
    Field("part", "int", "int"),
    Field("parts", "int", "int"),
    Field("attempt", "int", "int"),
    Field("scheduled_time", "int", "timestamp"),
    Field("expires_at", "int", "timestamp"),
    Field("message_id", "string", "string"),
    Field("order_key", "string", "string"),
    Field("body_digest", "hex", "string"),
    Field("body_size", "int", "int"),
    Field("property_digest", "hex", "string"),
    Field("check", "hex", "string"),
    Field("edited", "boolean", "boolean"),
    Field("hops", "list", "array<string>"),
    Field("target", "string", "string"),
    Field("send_ordinal", "int", "int"),
    Field("remembered", "boolean", "boolean"),
    Field("joined", "boolean", "boolean"),
    Field("handed_over", "boolean", "boolean"),
    Field("stage", "string", "string"),
    Field("reason", "string", "string"),
    Field("identity", "hex", "string"),
    Field("given_up_by", "string", "string"),
    Field("dead_letter_reason", "string", "string"),
    Field("locked_until", "int", "timestamp"),
    Field("repair", "boolean", "boolean"),
    Field("tgt_part", "int", "smallint"),
    Field("tgt_seq", "int", "bigint"),
    Field("tgt_enqueued_time", "int", "timestamp"),
)

type Record = Mapping[str, Any]

_VALID_TIMES = msgspec.Meta(ge=0, le=253_402_214_400_000_000)
"""From 1970 to the last day of 9999."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "timestamp": 64}
_TYPES: Mapping[str, object] = {"string": str, "hex": str, "boolean": bool, "list": list[str]}
_OUTCOMES = "|".join((RECEIVED, SEEN, GAP, *Outcome))
_CHOICES: Mapping[str, object] = {
    # The other times come from messages and senders: an invalid one says nothing about the record.
    "journal_time": Annotated[int, _VALID_TIMES],
    "role": Role,
    "observer": Observer,
    "outcome": Annotated[str, msgspec.Meta(pattern=f"^({_OUTCOMES})$")],
}


def _type_of(field: Field) -> object:
    if field.name in _CHOICES:
        return _CHOICES[field.name]
    if field.json != "int":
        return _TYPES[field.json]
    most = 2 ** (_BITS[field.spark] - 1)
    return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]


_SHAPE = msgspec.defstruct(
    "_SHAPE",
    [
        (field.name, Optional[_type_of(field)], None) if field.is_nullable else (field.name, _type_of(field))  # noqa: UP045 - built
        for field in FIELDS
    ],
    kw_only=True,
)


def is_record(line: object) -> TypeGuard[Record]:
    """Return whether the JSON of a line is a record: anybody who may write to a journal may write something else."""
    try:
        msgspec.convert(line, _SHAPE)
    except msgspec.ValidationError:
        return False
    return True
