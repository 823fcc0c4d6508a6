"""The counts of a window's pairs: how many messages are settled, their lags, and the extremes of both."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.hours import hour_of, moment_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.pairs import VERDICT_OF
from busway_reconcile.settings import Settings

LAG_CLASS = 1.05
"""Lags are counted in classes of 5 %."""

_HOUR_MICROS = timedelta(hours=1) // timedelta(microseconds=1)


class Count(NamedTuple):
    """
    A number of messages: those of one task with one verdict, hour of arrival and class of lag.

    Shape:   *verdict* is None for messages that are judged one by one, *arrived* and *lag_class* are None without an
             arrival. Units: microseconds.
    """

    task: str
    verdict: str | None
    arrived: str | None
    lag_class: int | None
    messages: int
    least_lag: int | None
    first_enqueued: int | None


def counts(pairs: DataFrame, numbers: DataFrame, of_streams: DataFrame) -> list[Count]:
    """
    Return the counts of *pairs*, of which those with one of *numbers* are judged one by one.

    As many as tasks, outcomes, hours and classes of lag, however many messages there are. A pair with a number that
    was used again has no lag: `lags_of_reused` knows those of its messages.
    """
    lag = F.when(~F.col("is_reused"), F.col("arrived") - F.col("enqueued"))
    is_settled = F.col("is_settled") & F.col("is_wanted").isNull()
    marked = pairs.join(numbers.withColumn("is_wanted", F.lit(True)), ["stream", "src_seq"], "left")
    grouped = marked.groupBy(
        "stream",
        F.when(is_settled, F.col("outcome")).alias("outcome"),
        _arrived_hour(lag).alias("hour"),
        lag_class(lag).alias("lag_class"),
    ).agg(F.count("*").alias("n"), F.min(lag).alias("least_lag"), F.min("enqueued").alias("first"))
    rows = grouped.join(F.broadcast(of_streams.select("stream", "task")), "stream").collect()
    return [
        Count(
            row["task"],
            VERDICT_OF.get(row["outcome"]),
            _text_of_hour(row["hour"]),
            row["lag_class"],
            row["n"],
            row["least_lag"],
            row["first"],
        )
        for row in rows
    ]


def lags_of_reused(verdicts: DataFrame) -> list[Count]:
    """Return the counts of the lags of judged messages whose number the source gave to several, without verdicts."""
    number = Window.partitionBy("task", "src_site", "src_entity", "src_part", "src_seq")
    is_of_window = (F.col("is_carried") == 0) & (F.col("is_reopened") == 0) & F.col("src_seq").isNotNull()
    grouped = (
        verdicts.where(is_of_window)
        .withColumn("messages", F.count("*").over(number))
        .where((F.col("messages") > 1) & F.col("lag").isNotNull())
        .groupBy("task", _arrived_hour(F.col("lag")).alias("hour"), lag_class(F.col("lag")).alias("lag_class"))
        .agg(F.count("*").alias("n"), F.min("lag").alias("least_lag"))
    )
    return [
        Count(row["task"], None, _text_of_hour(row["hour"]), row["lag_class"], row["n"], row["least_lag"], None)
        for row in grouped.collect()
    ]


def _arrived_hour(lag: Column) -> Column:
    return F.when(lag.isNotNull(), F.floor(F.col("arrived") / _HOUR_MICROS))


def _text_of_hour(hour: int | None) -> str | None:
    return None if hour is None else hour_of(moment_of(hour * _HOUR_MICROS))


def lag_class(lag: Column) -> Column:
    """Return the class of a *lag* in microseconds."""
    return F.floor(F.log(LAG_CLASS, F.greatest(lag / 1000, F.lit(0)) + 1)).cast("int")


def class_milliseconds(lag_class: int) -> float:
    """Return the middle of a class of lags in milliseconds."""
    return float(LAG_CLASS ** (lag_class + 0.5) - 1)


def first_enqueued(found: Sequence[Count]) -> int | None:
    """Return when the first of all messages was enqueued, in microseconds, or None without messages."""
    return min((each.first_enqueued for each in found if each.first_enqueued is not None), default=None)


def clock_problems(found: Sequence[Count], settings: Settings) -> list[Problem]:
    """Return a problem for each task whose messages arrived before they were enqueued."""
    least: dict[str, int] = {}
    for each in found:
        if each.least_lag is not None and each.least_lag < -settings.clock_tolerance.total_seconds() * 1_000_000:
            least[each.task] = min(each.least_lag, least.get(each.task, 0))
    return [
        Problem(
            "clocks-disagree",
            task,
            f"messages arrived up to {-lag / 1_000_000:,.1f} s before they were enqueued: the lags are unreliable",
            task,
        )
        for task, lag in sorted(least.items())
    ]
