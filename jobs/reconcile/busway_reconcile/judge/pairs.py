"""
Pairing: the records of each number in one row, and whether they show a message that simply arrived or was withheld.

Such a message is *settled* and only counted; all others are judged record by record. The one shuffle of all records
carries rows of fixed width with hashes in place of names, which are grouped several times as fast.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.columns import (
    NUMBER,
    arrival_order,
    arrival_time,
    is_arrival,
    is_outcome,
    is_remembered,
    is_round_trip,
    is_unnumbered,
    micros,
    stream,
)
from busway_reconcile.journal.frames import frame_of
from busway_reconcile.settings import Settings

VERDICT_OF = {"sent": "delivered", "joined": "delivered", "filtered": "filtered", "rejected": "rejected"}
"""The verdict of a settled message by its outcome."""

PAIR = (
    "stream", "src_seq", "is_reused", "outcome", "is_settled", "enqueued", "arrived", "session", "major", "minor",
    "clock",
)  # fmt: skip
"""
The columns of a pair. `is_reused` says that the source gave its number to two messages, because it was created again:
`enqueued` and `arrived` need not be of the same one. `arrived`, `major`, `minor` and `clock` are those of its first
copy, as the tap shows it if one saw it; `session` is null without an order key. Units: microseconds since 1970.
"""

_KINDS = ("received", *VERDICT_OF, "seen", "entered", "odd")
"""Kinds of records, each of which has four bits in the shape of a pair; `odd` are those that settle nothing."""

_BITS = 4


class Tapped(NamedTuple):
    """The sides that draining taps observe: `stream` and `target` of copies, and `stream` of entries."""

    copies: DataFrame
    entries: DataFrame


def streams(spark: SparkSession, rows: Sequence[tuple[str, str, str, int | None]]) -> DataFrame:
    """Return `stream` beside the columns that it represents, for *rows* of these."""
    shape = "task string, src_site string, src_entity string, src_part smallint"
    return frame_of(spark, rows, shape).withColumn("stream", stream())


def pair(records: DataFrame, tapped: Tapped | None, since: int, settings: Settings) -> DataFrame:
    """
    Return the pair of each number of compacted *records*; a message that was enqueued before *since* is not settled.

    Units:   *since* in microseconds since 1970.
    Shape:   *tapped* is None if no tap observes these tasks; PAIR out.
    """
    facts = _facts() if tapped is None else _facts() | _facts_of_taps()
    paired = (
        records.where(~is_unnumbered())
        .select(stream().alias("stream"), "src_seq", *(fact.of.alias(name) for name, fact in facts.items()))
        # A number has hardly ever two records in one file: sums for each file would be as many as its records. So they
        # are moved first, as what is known of each, and grouped once.
        .repartition("stream", "src_seq")
        .groupBy("stream", "src_seq")
        .agg(F.count("*").alias("n"), *(fact.by(name).alias(name) for name, fact in facts.items()))
        .withColumn("sent_key", F.coalesce("sent_key", "received_key"))
    )
    if tapped is None:
        none, nothing, no = F.lit(None).cast("bigint"), F.lit(0).cast("bigint"), F.lit(False)
        seen = dict.fromkeys(("seen_at", "seen_major", "seen_key", "seen_part"), none)
        seen |= dict.fromkeys(("sent_id", "received_id", "seen_id"), none)
        seen |= dict.fromkeys(("other_target", "altered_after", "altered_before"), nothing)
        watched = paired.withColumns({**seen, "is_seen": no, "is_entered": no})
    else:
        copies = F.broadcast(tapped.copies.withColumn("is_seen", F.lit(True)))
        entries = F.broadcast(tapped.entries.withColumn("is_entered", F.lit(True)))
        watched = (
            paired.join(copies, ["stream", "target"], "left")
            .join(entries, ["stream"], "left")
            .fillna(value=False, subset=["is_seen", "is_entered"])
            # A message that was joined into another one has no copy that a tap could see.
            .withColumn("is_seen", F.col("is_seen") & (_count("joined") == 0))
        )
    shown = {
        name: F.when(F.col("is_seen"), F.col(f"seen_{name}")).otherwise(F.col(f"sent_{name}"))
        for name in ("at", "major", "key")
    }
    part = F.when(F.col("is_seen"), F.col("seen_part").cast("smallint"))
    session = F.xxhash64("stream", "target", shown["key"], part)
    outcome = F.lit(None).cast("string")
    for name in VERDICT_OF:
        outcome = F.when(_count(name) == 1, F.lit(name)).otherwise(outcome)
    return watched.withColumns(
        {
            "is_reused": F.coalesce(F.col("enqueued") < F.col("last_enqueued"), F.lit(False)),
            "arrived": shown["at"],
            "major": shown["major"],
            "minor": F.when(F.col("is_seen"), F.lit(0)).otherwise(F.col("minor")),
            "clock": F.when(~F.col("is_seen"), F.col("clock")),
            "session": F.when(shown["key"].isNotNull() & shown["major"].isNotNull(), session),
            "outcome": outcome,
            "is_settled": F.coalesce(_is_settled(shown["at"], since, settings), F.lit(False)),
        }
    ).select(*PAIR)


def _is_settled(arrived: Column, since: int, settings: Settings) -> Column:
    """Return whether a message entered once and has one outcome, unaltered and in time, and taps saw the same."""
    outcomes = sum((_count(name) for name in VERDICT_OF), F.lit(0))
    is_due = F.col("is_seen") & (_count("sent") == 1)
    is_sent = _count("sent") + _count("joined") > 0
    late_after = round(settings.late_after.total_seconds() * 1_000_000)
    return (
        (_count("received") == 1)
        & (outcomes == 1)
        & (_count("odd") == 0)
        & (_count("seen") == is_due.cast("int"))
        & (_count("entered") == F.col("is_entered").cast("int"))
        # More than 15 records of a kind run over into the next kind, but the number of all records shows it.
        & (F.col("n") == 2 + _count("seen") + _count("entered"))
        & (F.col("other_batch") == 0)
        & (F.col("enqueued") == F.col("last_enqueued"))
        & (F.col("enqueued") >= since)
        & (F.col("is_edited") | ~is_sent | (F.col("altered") == 0))
        & (~is_due | ((F.col("altered_after") == 0) & (F.col("other_target") == 0)))
        & (~is_due | F.coalesce("sent_id", "received_id").eqNullSafe(F.col("seen_id")))
        & (~is_due | F.col("sent_key").eqNullSafe(F.col("seen_key")))
        & (~F.col("is_entered") | (F.col("altered_before") == 0))
        & (F.coalesce(arrived - F.col("enqueued"), F.lit(0)) <= late_after)
    )


def _count(kind: str) -> Column:
    """Return the number of records of *kind* in a pair, from its shape."""
    return F.shiftright("shape", _BITS * _KINDS.index(kind)).bitwiseAND(F.lit(2**_BITS - 1).cast("bigint"))


class _Fact(NamedTuple):
    """What is known of each record, and the function that makes it one value of a pair."""

    of: Column
    by: Callable[[str], Column]


def _facts() -> dict[str, _Fact]:
    """Return the facts of all records, all of fixed width: Spark would sort to group anything else."""
    odd = (
        (F.coalesce(F.col("parts"), F.lit(1)) > 1)
        | F.col("part").isNotNull()
        | is_remembered()
        | F.coalesce(F.col("peek"), F.lit(False))
        # Whether a message had expired, or had been at a site, is judged by other records.
        | F.col("outcome").isin("retry", "expired", "looped")
        | F.coalesce(F.col("repair"), F.lit(False))
        | (F.col("enqueued_time").isNull() & ~is_outcome())
        | is_round_trip()
    )
    kinds = {"odd": odd, "received": _received(), "seen": _seen(), "entered": _entered()}
    kinds |= {"joined": F.col("joined").isNotNull()}
    kinds |= {name: F.col("outcome") == name for name in ("sent", "filtered", "rejected")}
    digit = {name: F.lit(1 << _BITS * nth).cast("bigint") for nth, name in enumerate(_KINDS)}
    shape = digit["odd"]
    for name, condition in reversed(kinds.items()):
        shape = F.when(condition, digit[name]).otherwise(shape)
    sent, arrival, is_edited = _sent(), is_arrival() & is_outcome(), F.col("edited").isNotNull()
    major, minor = arrival_order()
    return {
        "shape": _Fact(shape, F.sum),
        "enqueued": _Fact(micros("enqueued_time"), F.min),
        "last_enqueued": _Fact(micros("enqueued_time"), F.max),
        "other_batch": _difference(F.xxhash64("instance", "batch_id"), _received(), is_outcome()),
        "altered": _difference(_check(), _received(), sent & ~is_edited),
        "is_edited": _Fact(sent & is_edited, F.max),
        "target": _Fact(F.when(arrival | _seen(), F.xxhash64("target")), F.max),
        "sent_at": _Fact(F.when(arrival, arrival_time()), F.min),
        "sent_major": _Fact(F.when(arrival, major), F.min),
        "minor": _Fact(F.when(arrival, minor), F.min),
        "clock": _Fact(F.when(arrival, F.xxhash64("instance")), F.max),
        # An outcome names only what an editor changed.
        "sent_key": _name_in("order_key", is_outcome()),
        "received_key": _name_in("order_key", _received()),
    }


def _facts_of_taps() -> dict[str, _Fact]:
    major, _ = arrival_order()
    return {
        "other_target": _difference(F.xxhash64("target"), _sent(), _seen()),
        "altered_after": _difference(_check(), _sent(), _seen()),
        "altered_before": _difference(_check(), _received(), _entered()),
        "seen_at": _Fact(F.when(_seen(), arrival_time()), F.min),
        "seen_major": _Fact(F.when(_seen(), major), F.min),
        "seen_key": _name_in("order_key", _seen()),
        "sent_id": _name_in("message_id", is_outcome()),
        "received_id": _name_in("message_id", _received()),
        "seen_id": _name_in("message_id", _seen()),
        "seen_part": _Fact(F.when(_seen(), F.col("tgt_part").cast("bigint")), F.max),
    }


def _name_in(name: str, records: Column) -> _Fact:
    return _Fact(F.when(records & F.col(name).isNotNull(), F.xxhash64(name)), F.max)


def _difference(of: Column, one: Column, other: Column) -> _Fact:
    """Return 0 if *of* is the same in one record of each side; sums of 64 bits run over without an error."""
    return _Fact(F.when(one, of).when(other, -of).otherwise(F.lit(0).cast("bigint")), F.sum)


def _check() -> Column:
    return F.coalesce(F.col("check"), F.lit(0).cast("bigint"))


def _received() -> Column:
    return (F.col("observer") == "task") & (F.col("outcome") == "received")


def _sent() -> Column:
    return is_outcome() & (F.col("outcome") == "sent")


def _seen() -> Column:
    return (F.col("observer") == "tap") & (F.col("role") == "target")


def _entered() -> Column:
    return (F.col("observer") == "tap") & (F.col("role") == "source")


def hashed_numbers(rows: DataFrame, of_streams: DataFrame) -> DataFrame:
    """Return `stream` and `src_seq` of *rows* without a partition: one for each partition that they may be of."""
    place = list(NUMBER[:3])
    return rows.select(*place, "src_seq").join(F.broadcast(of_streams), place).select("stream", "src_seq")
