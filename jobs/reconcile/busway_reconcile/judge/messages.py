"""The records of a message: completed, with its key, and all in one row."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import (
    arrival_order,
    arrival_time,
    is_outcome,
    is_remembered,
    is_round_trip,
    micros,
)
from busway_reconcile.judge.ordering import CLOCKS_DIFFER

RECORD = (*schema.COMPACTED, "known", "known_since", "doubted", "found", "refuted")
"""
A selected record: `known` says where it is from (window, open, earlier), `known_since` which run left it open; whether
that run lacked records of its message (`doubted`), had a finding about it (`found`), and had records that `refuted` its
path.
"""

KEYED = (*RECORD, "watched", "stray", "generation", "is_behind", "source_time")
"""A record with the key of its message, whether a tap must see its copy, and whether it arrived out of order."""

MESSAGE = (
    *schema.KEY, "message_id", "order_key", "body_size", "hops", "given_up_by", "attempts", "last_reason",
    # Entries
    "received", "entered_by_tap", "parts", "last_entry", "first_record", "entry_hours", "is_unreadable_entry",
    # Outcomes
    "recalled_parts", "original_parts", "sent_parts", "accepted_parts", "sent_unwatched", "parts_unwatched",
    "sends_at_tap",
    "withheld_parts", "expired_parts", "looped_parts", "withheld_as", "expires", "last_retry", "unended_attempts",
    "meant_for", "outcome_hours", "is_repaired",
    # Copies at targets
    "due_at_tap", "copies_watched", "copies_unwatched", "is_glimpse", "arrived_at", "arrivals",
    "is_round_trip",
    # Content
    "body_in", "id_received", "key_received", "names_sent", "names_seen", "checks_received", "checks_entered",
    "checks_unedited", "checks_sent", "checks_seen", "bodies_out", "bodies_seen",
    # Other runs
    "is_carried", "is_reopened", "known_since", "is_doubted", "is_found", "was_refuted",
)  # fmt: skip
"""One row for all records of a message."""


COMPLETED = ("enqueued_time", "expires_at", "message_id", "order_key", "hops")
"""Fields that an outcome may leave to its `received` record."""

BATCH = ("task", "src_site", "src_entity", "src_part", "src_seq", "instance", "batch_id")
"""Identifies the records that a task made of a message in one batch."""


def complete(records: DataFrame) -> DataFrame:
    """
    Return *records*, each outcome with the fields that it leaves to its `received` record.

    Shape:   all records of each of their messages, without duplicates, in; the same columns out.
    """
    of_batch = Window.partitionBy(*BATCH)
    entry = F.when(F.col("outcome") == "received", F.struct(*COMPLETED))
    return (
        records.withColumn("entry", F.max(entry).over(of_batch))
        .withColumns(
            {
                name: F.when(is_outcome(), F.coalesce(F.col(name), F.col(f"entry.{name}"))).otherwise(F.col(name))
                for name in COMPLETED
            }
        )
        .drop("entry")
    )


def number_repeats(records: DataFrame) -> DataFrame:
    """Return *records* with `nth`: 1 for each record of an hour, of equal ones the open one, more for the others."""
    is_earlier = F.col("known") == "earlier"
    once = Window.partitionBy("landed", *schema.IDENTITY).orderBy(is_earlier, "journal_time")
    return records.withColumn("nth", F.row_number().over(once))


def with_key(records: DataFrame) -> DataFrame:
    """Return *records* with `stray` and `generation`, the columns of schema.KEY that journals do not have."""
    number = Window.partitionBy("task", "src_site", "src_entity", "src_part", "src_seq")
    enqueued = micros("enqueued_time")
    stray = F.when(
        F.col("src_seq").isNull(),
        F.when(
            F.col("observer") == "tap",
            F.concat_ws("/", "role", F.coalesce("tap", F.lit("")), "target", "tgt_part", "tgt_seq", enqueued),
        ).otherwise(F.concat_ws("/", "role", "instance", "batch_id", F.coalesce("send_ordinal", F.lit(0)))),
    )
    # An outcome without its `received` record lacks the enqueued time. It is one of a message that was enqueued before
    # it: the numbers of an entity that is deleted and created again start again.
    known_at = F.coalesce(enqueued, micros("journal_time") + CLOCKS_DIFFER)
    until_then = number.orderBy(known_at).rangeBetween(Window.unboundedPreceding, Window.currentRow)
    generation = F.coalesce(enqueued, F.max(enqueued).over(until_then))
    keyed = records.withColumns(
        {
            "stray": stray,
            "generation": F.when(F.col("src_seq").isNotNull(), generation),
            "newest": F.max(enqueued).over(number),
        }
    )
    # What an earlier run has decided, of an earlier message with the number of this one.
    is_other = (F.col("known") == "earlier") & F.col("generation").isNull() & F.col("newest").isNotNull()
    return keyed.where(~is_other | F.col("src_seq").isNull()).drop("newest")


def one_row_per_message(records: DataFrame) -> DataFrame:
    """
    Return one row for all records of a message.

    Shape:   KEYED in, MESSAGE out.
    """
    task = F.col("observer") == "task"
    tap = F.col("observer") == "tap"
    received = F.col("outcome") == "received"
    sent = F.col("outcome") == "sent"
    again = is_remembered()
    # Whether the host sent it is not on record: if not, it was handed over again. Several such records are one copy.
    handed_over = F.coalesce(F.col("handed_over"), F.lit(False))
    # Nor is a message sent again that was in another envelope, however often that is remembered.
    once = handed_over | (F.coalesce(F.col("remembered"), F.lit(False)) & ~again)
    seen = tap & (F.col("role") == "target")
    watched = F.coalesce(F.col("watched"), F.lit(False))
    part = F.coalesce(F.col("part"), F.lit(0))
    # Parts of one message differ in their ids or in their content.
    identity = F.when(F.col("check").isNotNull(), F.xxhash64("check", "message_id")).alias("identity")
    place = F.struct(F.coalesce("target", F.lit("")).alias("target"), part.alias("part"), identity)
    # The numbers of a target start again when it is deleted and created: two copies may have one number.
    at = micros("tgt_enqueued_time").alias("at")
    view = F.struct(F.coalesce("target", F.lit("")).alias("target"), "tgt_part", "tgt_seq", at, identity)
    sent_time = micros("journal_time")
    name = F.struct("message_id", "order_key")
    attempt = F.xxhash64("instance", "batch_id")
    send = ("instance", "batch_id", "part", "send_ordinal")
    retry = F.col("outcome") == "retry"
    major, minor = arrival_order()
    # The time and order at a tap are those of arrival; in the task's journal they are those of the target's answer.
    shows = F.when(watched, seen).otherwise((sent & ~again) | seen)
    arrival = F.struct(
        F.coalesce("target", F.lit("")).alias("target"),
        task.alias("is_by_task"),
        major.alias("major"),
        minor.alias("minor"),
        F.col("is_behind").alias("is_behind"),
        arrival_time().alias("at"),
    )
    recalled = F.collect_set(F.when(sent & again & ~watched, part))
    original = F.collect_set(F.when(sent & ~again, part))
    by_task = sent & ~again & ~watched
    counted_once = F.array_except(
        F.collect_set(F.when(by_task & once, part)), F.collect_set(F.when(by_task & ~once, part))
    )
    grouped = records.groupBy(*schema.KEY).agg(
        _count(received, "instance", "batch_id").alias("received"),
        _count(tap & (F.col("role") == "source"), "tap", "tgt_part", "tgt_seq").alias("entered_by_tap"),
        F.max(F.when(received, F.coalesce(F.col("parts"), F.lit(1)))).alias("parts"),
        recalled.alias("recalled_parts"),
        original.alias("original_parts"),
        F.collect_set(F.when(sent, part)).alias("sent_parts"),
        F.collect_set(F.when(sent & ~handed_over, part)).alias("accepted_parts"),
        # A part that was only remembered names no target: the tap that must see the copy is that of its first record.
        F.array_union(F.collect_set(F.when(by_task, part)), F.array_except(recalled, original)).alias(
            "parts_unwatched"
        ),
        F.collect_set(F.when(sent & watched, place)).alias("due_at_tap"),
        F.collect_set(F.when(F.col("outcome").isin("filtered", "rejected"), part)).alias("withheld_parts"),
        F.collect_set(
            F.when(
                F.col("outcome") == "expired",
                F.struct(part.alias("part"), "source_time", "instance"),
            )
        ).alias("expired_parts"),
        F.collect_set(F.when(F.col("outcome") == "looped", part)).alias("looped_parts"),
        F.collect_set(F.when(F.col("outcome").isin(*schema.WITHHELD), F.col("outcome"))).alias("withheld_as"),
        (_count(by_task & ~once, *send) + F.size(counted_once)).alias("sent_unwatched"),
        F.collect_set(F.when(seen & watched, view)).alias("copies_watched"),
        F.collect_set(F.when(seen & ~watched, view)).alias("copies_unwatched"),
        F.max(F.when(retry, micros("journal_time"))).alias("last_retry"),
        F.size(F.array_except(F.collect_set(F.when(received, attempt)), F.collect_set(F.when(retry, attempt)))).alias(
            "unended_attempts"
        ),
        _any(sent & F.coalesce(F.col("repair"), F.lit(False))).alias("is_repaired"),
        F.max(F.when(F.col("role") == "source", F.col("body_digest"))).alias("body_in"),
        F.max(F.when(received, F.col("order_key"))).alias("key_received"),
        F.collect_set(F.when(sent, name)).alias("names_sent"),
        F.collect_set(F.when(seen, name)).alias("names_seen"),
        F.collect_set(F.when(received, F.col("check"))).alias("checks_received"),
        F.collect_set(F.when(tap & (F.col("role") == "source"), F.col("check"))).alias("checks_entered"),
        F.collect_set(F.when(sent & F.col("edited").isNull(), F.col("check"))).alias("checks_unedited"),
        F.collect_set(F.when(sent, F.col("check"))).alias("checks_sent"),
        F.collect_set(F.when(seen, F.col("check"))).alias("checks_seen"),
        F.collect_set(F.when(received | (sent & F.col("edited").isNotNull()), F.col("body_digest"))).alias(
            "bodies_out"
        ),
        F.collect_set(F.when(seen, F.col("body_digest"))).alias("bodies_seen"),
        _any(is_round_trip()).alias("is_round_trip"),
        F.max(F.when(received, F.col("hops"))).alias("hops"),
        F.max(F.when(sent | seen, F.col("target"))).alias("arrived_at"),
        F.max(F.when(task & (F.col("role") == "target"), F.col("target"))).alias("meant_for"),
        # In the order of the targets, at each what taps saw first.
        F.sort_array(F.collect_set(F.when(shows, arrival))).alias("arrivals"),
        F.collect_set(
            F.when(
                sent & watched,
                F.struct(place["target"].alias("target"), place["part"].alias("part"), sent_time.alias("at")),
            )
        ).alias("sends_at_tap"),
        F.max(micros("expires_at")).alias("expires"),
        F.max(F.when(received, F.col("message_id"))).alias("id_received"),
        F.max("message_id").alias("id_any"),
        F.max("order_key").alias("order_key"),
        F.max("given_up_by").alias("given_up_by"),
        F.max(F.when(F.col("role") == "source", F.col("body_size"))).alias("body_size"),
        F.max("attempt").alias("attempts"),
        F.max(F.when(F.col("role") == "source", micros("journal_time"))).alias("last_entry"),
        F.min(micros("journal_time")).alias("first_record"),
        F.max(F.when(F.col("reason").isNotNull(), F.struct("journal_time", "stage", "reason"))).alias("last_reason"),
        F.collect_set(F.when(F.col("role") == "source", F.col("landed"))).alias("entry_hours"),
        F.collect_set(F.when(F.col("role") == "target", F.col("landed"))).alias("outcome_hours"),
        F.max(F.when(F.col("known") == "open", F.lit(1)).otherwise(0)).alias("is_carried"),
        F.max(F.when(F.col("known") == "earlier", F.lit(1)).otherwise(0)).alias("is_reopened"),
        _any(F.col("known") != "earlier").alias("is_present"),
        F.min("known_since").alias("known_since"),
        _any(F.coalesce(F.col("doubted"), F.lit(False))).alias("is_doubted"),
        _any(F.coalesce(F.col("found"), F.lit(False))).alias("is_found"),
        _any(F.coalesce(F.col("refuted"), F.lit(False))).alias("was_refuted"),
        F.min((F.coalesce(F.col("peek"), F.lit(False)) & F.col("src_seq").isNull()).cast("int"))
        .cast("boolean")
        .alias("is_glimpse"),
        _any(task & F.col("src_seq").isNull() & ((F.col("role") == "source") | (F.col("outcome") == "retry"))).alias(
            "is_unreadable_entry"
        ),
    )
    # The earlier records of a number may be those of another message, which an earlier run has decided.
    present = grouped.where("is_present").withColumn("message_id", F.coalesce("id_received", "id_any"))
    return present.select(*MESSAGE)


def _count(condition: Column, *names: str) -> Column:
    """Count the distinct values of *names*: a duplicate record, for example in a copied file, counts once."""
    return F.size(F.collect_set(F.when(condition, F.xxhash64(*names))))


def _any(condition: Column) -> Column:
    return F.coalesce(F.max(condition), F.lit(False))


def arrived_parts(by_task: Column) -> Column:
    """
    Return how many parts of a message arrived, by the taps where they must see the copies, else by the task.

    Shape:   *by_task* are the parts that arrived where no tap must see them.
    """
    known = F.filter("due_at_tap", lambda place: place["identity"].isNotNull())
    kinds = F.array_distinct(F.transform(known, _kind))
    seen = F.transform("copies_watched", _kind)
    matched = F.aggregate(
        kinds, F.lit(0), lambda total, kind: total + F.least(_number(known, kind), _number("copies_watched", kind))
    )
    # A part that was sent twice may have got other content or another target: both copies are one part.
    by_tap = F.transform(
        F.filter(known, lambda place: F.array_contains(seen, _kind(place))), lambda place: place["part"]
    )
    recorded = F.least(matched + F.size(by_task), F.size(F.array_union(by_tap, by_task)))
    # A copy that is like no part is an altered one, or one whose `sent` record is lost. One more copy of a part is no
    # copy of another part that was only remembered: parts differ.
    others = F.size(F.array_except(seen, kinds))
    unrecorded = F.size(F.array_distinct(F.transform("copies_unwatched", _kind))) - F.size(by_task)
    return recorded + others + F.greatest(unrecorded, F.lit(0))


def _kind(place: Column) -> Column:
    return F.struct(place["target"].alias("target"), place["identity"].alias("identity"))


def _number(places: Column | str, kind: Column) -> Column:
    return F.size(F.filter(places, lambda place: _kind(place) == kind))
