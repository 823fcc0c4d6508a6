"""The first messages of each kind of finding with their records, from the tables of a run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import TimestampType

from busway_reconcile.journal import schema
from busway_reconcile.journal.small_frames import frame_of
from busway_reconcile.judge.verdicts import FINDINGS, UNDECIDED
from busway_reconcile.report.finding import Finding, Kind, with_ends
from busway_reconcile.report.trace import trace
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary

SHOWN = 10
"""The number of messages that the page shows for each kind; the tables have all of them."""

_KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray")


def first_messages(spark: SparkSession, storage: Storage, summary: Summary, folder: str) -> list[Kind]:
    """Return each kind of finding in the run at *folder*, and undecided messages, with the first SHOWN of them."""
    counts = summary.counts
    wanted = [kind for kind in (*FINDINGS, UNDECIDED) if counts.get(kind)]
    if not wanted:
        return []
    tables = [
        spark.read.parquet(path) for name in ("findings", "explained") if storage.exists(path := f"{folder}/{name}")
    ]
    first = Window.partitionBy("verdict").orderBy(*(F.col(name) for name in ("enqueued_time", *_KEY)))
    messages = [
        row.asDict()
        for table in tables
        for row in _plain(
            table.where(F.col("verdict").isin(*wanted))
            .withColumn("nth", F.row_number().over(first))
            .where(F.col("nth") <= SHOWN)
            .orderBy("nth")
        ).collect()
    ]
    records = _records(spark, f"{folder}/evidence", messages)
    found: dict[str, list[Finding]] = defaultdict(list)
    for message in messages:
        steps = trace(records.get(_key(message, message["enqueued_time"]), []))
        found[message["verdict"]].append(with_ends(message, steps))
    return [Kind(kind, counts[kind], found[kind]) for kind in wanted]


def _records(
    spark: SparkSession, path: str, messages: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the records of *messages* by their keys."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    if not messages:
        return found
    shape = "task string, src_site string, src_entity string, src_part smallint, src_seq bigint, stray string"
    rows = [(*(message[name] for name in _KEY), message["enqueued_time"]) for message in messages]
    wanted = frame_of(spark, rows, f"{shape}, generation bigint")
    evidence = spark.read.parquet(path)
    keys = [*_KEY, "generation"]
    right = wanted.select(*(F.col(name).alias(f"wanted_{name}") for name in keys))
    is_wanted: Column = F.lit(True)
    for name in keys:
        is_wanted = is_wanted & F.col(name).eqNullSafe(F.col(f"wanted_{name}"))
    columns = [*schema.compacted().names, *(name for name in ("generation", "stray"))]
    for row in _plain(evidence.join(F.broadcast(right), is_wanted, "left_semi").select(*columns)).collect():
        record = row.asDict()
        found[_key(record, record["generation"])].append(record)
    return found


def _plain(frame: DataFrame) -> DataFrame:
    """Return *frame* with times in microseconds: Spark returns timestamps in the process's own time zone."""
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    return frame.withColumns({name: F.unix_micros(name) for name in times}) if times else frame


def _key(row: Mapping[str, Any], generation: int | None) -> tuple[Any, ...]:
    return (*(row[name] for name in _KEY), generation)
