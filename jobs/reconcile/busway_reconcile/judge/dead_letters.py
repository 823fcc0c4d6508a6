"""Dead letters of the sources: evidence that the source gave up a message, and why."""

from collections.abc import Callable, Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.columns import micros, stream
from busway_reconcile.judge.cache import cut

EXPIRED = "TTLExpiredException"
"""The reason that Service Bus gives to a dead letter whose time to live ended."""

_MESSAGE = ("src_site", "entity", "named", "body_in")
_LETTER = ("src_entity", "number", "since")


def mark_dead_letters(
    messages: DataFrame, loose: DataFrame | None, before: Callable[[int], DataFrame | None]
) -> DataFrame:
    """
    Return *messages* with `is_spilled` and `is_expired_letter`: whether a dead letter is this message.

    A dead letter is the message with its id, its body, and its enqueued time, which dead-lettering does not change. One
    that the service forwarded has a time of its own: then as many messages count as there are such dead letters.
    One that was received before the window, and again in it, has explained a message of an earlier run.
    Shape:   one row per message, and the table *loose* of the window, in; *before* returns the records of the hours
             before it, from a time on, that have dead letters.
    """
    if loose is None:
        return messages.withColumns({"is_spilled": F.lit(False), "is_expired_letter": F.lit(False)})
    letters = _letters(loose, before)
    named = messages.withColumns({"entity": F.lower("src_entity"), "named": F.coalesce("message_id", F.lit(""))}).join(
        F.broadcast(letters), list(_MESSAGE), "left"
    )
    # What a target accepted was not given up: it is lost if it did not arrive. What a host was asked to send may be.
    last = F.size("accepted_parts") + F.size("copies_watched") + F.size("copies_unwatched") > 0
    alone = F.when(F.col("letters").isNull(), F.col("src_seq"))
    # Several tasks may read one source: each has a row about a message that it received.
    message = ("src_part", "src_seq", "generation", "stray")
    rows = Window.partitionBy(*_MESSAGE, *message)
    ranked = named.withColumns({"of_last": F.max(last).over(rows), "most_attempts": F.max("attempts").over(rows)})
    order = ("of_last", F.col("most_attempts").desc_nulls_last(), *message)
    nth = F.dense_rank().over(Window.partitionBy(*_MESSAGE, alone).orderBy(*order))
    nth_of_time = F.dense_rank().over(Window.partitionBy(*_MESSAGE, "generation", alone).orderBy(*order))
    same_time = F.filter("letters", lambda each: each["time"] == F.col("generation"))
    forwarded = F.filter(
        "letters",
        lambda each: each["time"].isNull() & (each["since"] >= F.col("generation")) & (F.col("named") != ""),
    )
    numbered = ranked.withColumns({"nth": nth, "nth_of_time": nth_of_time})
    of_message = F.concat(
        F.when(F.col("nth_of_time") <= F.size(same_time), same_time).otherwise(_none()),
        F.when(F.col("nth") <= F.size(forwarded), forwarded).otherwise(_none()),
    )
    found = numbered.withColumn("of_message", F.when(~last & F.col("letters").isNotNull(), of_message))
    has_expired = F.exists("of_message", lambda each: each["is_expired"])
    received = F.exists("of_message", lambda each: each["is_received"])
    return found.withColumns(
        {
            "is_expired_letter": F.coalesce(has_expired, F.lit(False)),
            # A tap sees a dead letter and leaves it where it is.
            "is_spilled": F.coalesce(received & ~has_expired, F.lit(False)),
        }
    ).drop("entity", "named", "letters", "of_last", "most_attempts", "nth", "nth_of_time", "of_message")


def may_be_given_up(records: DataFrame, loose: DataFrame, tasks: Collection[str]) -> DataFrame:
    """
    Return `stream` and `src_seq` of the messages of *tasks* that have the id of a dead letter, or none as it has none.

    Shape:   *records* are those of the window, *loose* the table of it.
    """
    named = F.coalesce("message_id", F.lit("")).alias("named")
    letters = loose.where("given_up_by is not null and role = 'source'").select(named).distinct()
    is_received = (F.col("outcome") == "received") & F.col("src_seq").isNotNull()
    received = records.where(F.col("task").isin(*tasks) & is_received)
    return received.select(stream().alias("stream"), "src_seq", named).join(F.broadcast(letters), "named").drop("named")


def _none() -> Column:
    return F.filter("letters", lambda _: F.lit(False))


def _letters(loose: DataFrame, before: Callable[[int], DataFrame | None]) -> DataFrame:
    """Return the dead letters, each once, as one row for each entity, id and body."""
    each = cut(_each_letter(loose))
    first = each.where("time is null").agg(F.min("since")).collect()[0][0]
    known = None if first is None else before(first)
    if known is not None:
        has_counted = _each_letter(known).where("time is null and (is_received or is_expired)")
        each = each.join(has_counted, [*_MESSAGE, *_LETTER], "left_anti")
    letter = F.struct("time", "since", "is_expired", "is_received")
    return each.groupBy(*_MESSAGE).agg(F.collect_list(letter).alias("letters"))


def _each_letter(records: DataFrame) -> DataFrame:
    """Return each dead letter among *records* once; `time` is null if the service forwarded it."""
    is_direct = F.lower("src_entity") == F.concat(F.lower("given_up_by"), F.lit("/$deadletterqueue"))
    return (
        records.where("given_up_by is not null and role = 'source' and body_digest is not null")
        .withColumns(
            {
                "entity": F.lower("given_up_by"),
                "named": F.coalesce("message_id", F.lit("")),
                "since": micros("enqueued_time"),
                "number": F.coalesce("src_seq", "tgt_seq"),
            }
        )
        .withColumn("time", F.when(is_direct, F.col("since")))
        .withColumnRenamed("body_digest", "body_in")
        .groupBy(*_MESSAGE, *_LETTER, "time")
        .agg(
            F.max(F.coalesce(F.col("dead_letter_reason") == EXPIRED, F.lit(False))).alias("is_expired"),
            F.max(F.col("outcome") == "received").alias("is_received"),
        )
    )
