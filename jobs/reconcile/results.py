"""The tables of a run, as they are written."""

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import schema
from jobs.reconcile.joins import join_null_safe, semi_join_null_safe
from jobs.reconcile.run import Run
from jobs.reconcile.summary import PERCENTILES, Summary
from jobs.reconcile.suspects import micros_of
from jobs.reconcile.verdicts import BY_DESIGN, FINDINGS, OPEN, UNDECIDED, last_known

TABLES = ("findings", "explained", "missing", "evidence", "open", "verdicts", "lags")


def write(
    run: Run, summary: Summary, rows: DataFrame | None, verdicts: DataFrame | None, end: datetime
) -> dict[str, str]:
    """Put the run's folder in the place of the one that an earlier attempt left; return where its tables are."""
    attempt = f"{run.out}/runs/.attempt-{run.window.run}"
    run.storage.delete(attempt)
    tables = _of_counts(run, summary)
    if rows is not None and verdicts is not None:
        tables |= _of_messages(run, summary, rows, verdicts, end)
    for table, frame in tables.items():
        frame.write.mode("overwrite").parquet(f"{attempt}/{table}")
    run.storage.write(f"{attempt}/summary.json", summary.to_json())
    run.storage.move(attempt, f"{run.out}/runs/{run.window.run}")
    return {table: f"{run.out}/{path}" for table, path in summary.tables.items() if table in tables}


def _of_counts(run: Run, summary: Summary) -> dict[str, DataFrame]:
    counts = [(each.task, kind, count) for each in summary.tasks for kind, count in each.verdicts.items()]
    lags = [
        (each.task, hour["hour"], hour["messages"], *(hour[name] for name in PERCENTILES))
        for each in summary.tasks
        for hour in each.lag_by_hour
    ]
    of_lags = ", ".join(f"{name} double" for name in PERCENTILES)
    return {
        "verdicts": run.spark.createDataFrame(counts, "task string, verdict string, messages bigint").coalesce(1),
        "lags": run.spark.createDataFrame(lags, f"task string, hour string, messages bigint, {of_lags}").coalesce(1),
    }


def _of_messages(
    run: Run, summary: Summary, rows: DataFrame, verdicts: DataFrame, end: datetime
) -> dict[str, DataFrame]:
    known_since = F.coalesce("known_since", F.lit(run.window.run)).alias("known_since")
    named = verdicts.select(
        *("task", "src_site", "src_entity", "src_part", "src_seq"),
        F.timestamp_micros("generation").alias("enqueued_time"),
        *("stray", "message_id", "order_key", "verdict", "findings", "copies", "expected", "altered"),
        (F.col("lag") / 1000).alias("lag_milliseconds"),
        F.timestamp_micros("arrived").alias("arrived_time"),
        *("arrived_at", "meant_for"),
        F.timestamp_micros("expires").alias("expires_at"),
        *("body_size", "given_up_by", "hops"),
        F.coalesce("attempts", F.lit(1)).alias("attempts"),
        F.col("last_reason.stage").alias("last_stage"),
        F.col("last_reason.reason").alias("last_reason"),
        F.timestamp_micros("first_record").alias("first_record"),
        known_since,
        *(F.col(name).cast("boolean") for name in ("is_carried", "is_reopened")),
    )
    place = ("task", "src_part", "src_seq", "enqueued_time")
    horizon = micros_of(end - run.settings.open_for)
    is_open = F.col("verdict").isin(*OPEN) & (last_known() > horizon)
    # What no tap can have seen will be told by none.
    still_open = verdicts.where(is_open & ~F.col("is_before_tap")).select(
        *schema.KEY, known_since, F.col("gap_in_outcomes").alias("doubted")
    )
    kept = schema.compacted().names
    of_open = join_null_safe(rows.drop("known_since", "doubted"), still_open, schema.KEY)
    told = verdicts.where(F.col("verdict").isin(*FINDINGS, UNDECIDED)).select(*schema.KEY)
    evidence = semi_join_null_safe(rows, told, schema.KEY).select(*kept, "generation", "stray", "known")
    tables = {
        "findings": named.where(F.col("verdict").isin(*FINDINGS)).transform(_sorted(*place)),
        "explained": named.where(F.col("verdict").isin(*BY_DESIGN, UNDECIDED)).coalesce(4),
        "missing": named.where("verdict = 'missing'").transform(_sorted(*place)),
        "evidence": evidence.transform(_sorted("task", "src_part", "src_seq", "stray", "journal_time")),
        "open": of_open.select(*kept, "known_since", "doubted").coalesce(4),
    }
    counts = summary.counts
    if not any(counts.get(kind) for kind in OPEN):
        del tables["open"]
    return tables


def _sorted(*names: str) -> Callable[[DataFrame], DataFrame]:
    """Return what puts a table, which is small, into one file in the order of *names*."""
    return lambda frame: frame.coalesce(1).sortWithinPartitions(*names)
