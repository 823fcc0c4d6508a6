"""The tables of a run, and the folder that they are written to."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.frames import frame_of, join_null_safe, semi_join_null_safe
from busway_reconcile.journal.hours import micros_of
from busway_reconcile.judge.verdicts import BY_DESIGN, FINDINGS, OPEN, UNDECIDED, last_known
from busway_reconcile.report.figures import PERCENTILES
from busway_reconcile.settings import Run
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary

TABLES = ("findings", "explained", "missing", "evidence", "open", "verdicts", "lags")


def write_tables(storage: Storage, run: Run, summary: Summary, tables: dict[str, DataFrame]) -> dict[str, str]:
    """Write the folder of *run*, in place of the folder of an earlier attempt; return the addresses of the tables."""
    attempt = f"{run.out}/runs/.attempt-{run.window.run}"
    storage.delete(attempt)
    # The tables are small: planning and committing them takes the time, which they do beside one another.
    with ThreadPoolExecutor(len(tables)) as pool:
        writes = [
            pool.submit(frame.write.mode("overwrite").parquet, f"{attempt}/{table}") for table, frame in tables.items()
        ]
        for write in writes:
            write.result()
    storage.write(f"{attempt}/summary.json", summary.to_json())
    storage.move(attempt, run.folder)
    return {table: f"{run.out}/{path}" for table, path in summary.tables.items() if table in tables}


def tables_of_counts(spark: SparkSession, summary: Summary) -> dict[str, DataFrame]:
    """Return the tables verdicts and lags."""
    counts = [(task.task, kind, count) for task in summary.tasks for kind, count in task.verdicts.items()]
    lags = [
        (task.task, hour["hour"], hour["messages"], *(hour[name] for name in PERCENTILES))
        for task in summary.tasks
        for hour in task.lag_by_hour
    ]
    of_lags = ", ".join(f"{name} double" for name in PERCENTILES)
    return {
        "verdicts": frame_of(spark, counts, "task string, verdict string, messages bigint"),
        "lags": frame_of(spark, lags, f"task string, hour string, messages bigint, {of_lags}"),
    }


def tables_of_messages(
    run: Run, summary: Summary, records: DataFrame, verdicts: DataFrame, end: datetime
) -> dict[str, DataFrame]:
    """
    Return the tables with a row per message, and the tables with the records of these messages.

    Shape:   KEYED *records* and JUDGED *verdicts* in; *end* is the end of the time that is counted.
    """
    known_since = F.coalesce("known_since", F.lit(run.window.run)).alias("known_since")
    named = verdicts.select(
        *("task", "src_site", "src_entity", "src_part", "src_seq"),
        F.timestamp_micros("generation").alias("enqueued_time"),
        *("stray", "message_id", "order_key", "verdict", "findings", "copies", "expected", "altered"),
        (F.col("lag") / 1000).alias("lag_milliseconds"),
        F.timestamp_micros("arrived").alias("arrived_time"),
        *("arrived_at", "meant_for"),
        F.array_distinct(F.transform("arrivals", lambda each: each["target"])).alias("arrived_targets"),
        F.timestamp_micros("expires").alias("expires_at"),
        *("body_size", "given_up_by", "hops"),
        F.coalesce("attempts", F.lit(1)).alias("attempts"),
        F.col("last_reason.stage").alias("last_stage"),
        F.col("last_reason.reason").alias("last_reason"),
        F.timestamp_micros("first_record").alias("first_record"),
        "note",
        known_since,
        *(F.col(name).cast("boolean") for name in ("is_carried", "is_reopened")),
    )
    place = ("task", "src_part", "src_seq", "enqueued_time")
    horizon = micros_of(end - run.settings.open_for)
    is_open = F.col("verdict").isin(*OPEN) & (last_known() > horizon)
    # No later run can decide a message that was sent before its tap started: it is undecided in one run. One that is
    # still in flight has that run before it.
    is_final = (F.col("verdict") == UNDECIDED) & F.col("is_before_tap")
    still_open = verdicts.where(is_open & ~is_final).select(
        *schema.KEY,
        known_since,
        F.col("gap_in_outcomes").alias("doubted"),
        F.col("verdict").isin(*FINDINGS).alias("found"),
        F.col("is_refuted").alias("refuted"),
    )
    kept = schema.COMPACTED
    state = ("known_since", "doubted", "found", "refuted")
    of_open = join_null_safe(records.drop(*state), still_open, schema.KEY)
    traced = verdicts.where(F.col("verdict").isin(*FINDINGS, UNDECIDED)).select(*schema.KEY)
    evidence = semi_join_null_safe(records, traced, schema.KEY).select(*kept, "generation", "stray", "known")
    tables = {
        "findings": named.where(F.col("verdict").isin(*FINDINGS)).transform(_sorted(*place)),
        "explained": named.where(F.col("verdict").isin(*BY_DESIGN, UNDECIDED)).coalesce(4),
        "missing": named.where("verdict = 'missing'").transform(_sorted(*place)),
        "evidence": evidence.transform(_sorted("task", "src_part", "src_seq", "stray", "journal_time")),
        "open": of_open.select(*kept, *state).coalesce(4),
    }
    counts = summary.counts
    if not any(counts.get(kind) for kind in OPEN):
        del tables["open"]
    return tables


def _sorted(*names: str) -> Callable[[DataFrame], DataFrame]:
    """Return a function that puts a small table into one file, in the order of *names*."""
    return lambda frame: frame.coalesce(1).sortWithinPartitions(*names)
