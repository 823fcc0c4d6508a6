"""The judgement of the selected messages, with the gaps of the evidence taken into account."""

from collections.abc import Callable, Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.hours import micros_of
from jobs.reconcile.judge.messages import MESSAGE, one_row_per_message
from jobs.reconcile.judge.tap_periods import Periods, each_period
from jobs.reconcile.judge.verdicts import CONTEXT, with_verdict
from jobs.reconcile.settings import Settings


def judge(
    records: DataFrame,
    loose: DataFrame | None,
    periods: Periods,
    *,
    unreliable: Mapping[str, Mapping[str, set[str]]],
    end: datetime,
    settings: Settings,
) -> DataFrame:
    """
    Return one row with its verdict for each message of *records*.

    Shape:   KEYED *records*, the table *loose* of the window, and *unreliable* as unreliable_hours() returns it, in;
             JUDGED out.
    """
    is_before, is_after = F.lit(False), F.lit(False)
    for task, target, period in each_period(periods):
        due = (F.col("task") == task) & F.exists("due_at_tap", _is_at(target))
        is_before = is_before | (due & (F.col("last_sent") < micros_of(period.since)))
        if period.until is not None:
            is_after = is_after | (due & (F.col("last_sent") > micros_of(period.until)))
    messages = one_row_per_message(records).withColumns(
        {
            "gap_in_outcomes": _is_in("entry_hours", unreliable["target"]) | F.col("is_doubted"),
            "gap_in_entries": _is_in("outcome_hours", unreliable["source"]),
            "is_before_tap": F.coalesce(is_before, F.lit(False)),
            "is_after_tap": F.coalesce(is_after, F.lit(False)),
        }
    )
    marked = _mark_spilled(messages, None if loose is None else _spilled_ids(loose))
    # An unreadable message is counted by its outcome; a message without a number that only a peek saw proves nothing.
    return with_verdict(marked, end, settings).where("verdict <> 'unreadable' and not is_glimpse")


def _is_at(target: str) -> Callable[[Column], Column]:
    return lambda place: place["target"] == target


def _is_in(column: str, hours: Mapping[str, set[str]]) -> Column:
    found = F.lit(False)
    for task, bad in sorted(hours.items()):
        some = F.array(*(F.lit(hour) for hour in sorted(bad)))
        found = found | ((F.col("task") == task) & F.arrays_overlap(F.col(column), some))
    return found


def _spilled_ids(loose: DataFrame) -> DataFrame:
    """Return the message ids that dead-letter tasks received, with the number of messages for each."""
    return (
        loose.where("outcome = 'received' and given_up_by is not null and message_id is not null")
        .groupBy("src_site", F.lower("given_up_by").alias("entity"), "message_id")
        .agg(F.countDistinct("src_entity", "src_seq", "enqueued_time").alias("spilled"))
    )


def _mark_spilled(messages: DataFrame, spilled: DataFrame | None) -> DataFrame:
    if spilled is None:
        return messages.withColumn("is_spilled", F.lit(False)).select(*MESSAGE, *CONTEXT)
    named = messages.withColumn("entity", F.lower("src_entity")).join(
        F.broadcast(spilled), ["src_site", "entity", "message_id"], "left"
    )
    # Several messages may share an id: as many as were dead-lettered count as spilled, those with most attempts first.
    same_id = Window.partitionBy(
        "task", "src_site", "entity", "message_id", F.when(F.col("spilled").isNull(), F.col("src_seq"))
    ).orderBy(
        F.size("sent_parts") + F.col("seen_watched") + F.col("seen_unwatched") > 0,
        F.col("attempts").desc_nulls_last(),
        "src_part",
        "src_seq",
        "generation",
    )
    is_spilled = F.coalesce(F.row_number().over(same_id) <= F.col("spilled"), F.lit(False))
    return named.withColumn("is_spilled", is_spilled).select(*MESSAGE, *CONTEXT)
