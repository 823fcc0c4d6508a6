"""
The manifest of missing messages: what `busway repair` needs to find a copy of each and to know it when it sees it.

Shape: JSON lines. The first says what the manifest is of, each other one is a message. Times are microseconds since
       1970 UTC, digests are those of the journal.
"""

import json
from typing import Any

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary

MANIFEST = "repair.jsonl"
VERSION = 1

MOST = 200_000
"""Messages in one manifest; where more are missing, it says so, and the table `missing` has them all."""

_MICROS = ("enqueued_time", "expires_at")


def write_manifest(spark: SparkSession, summary: Summary, out: str) -> str:
    """Write the manifest of the run that *summary* is of beside its tables below *out*; return its address."""
    storage = Storage(spark)
    folder = f"{storage.absolute(out)}/runs/{summary.run}"
    missing = spark.read.parquet(f"{folder}/missing")
    evidence = spark.read.parquet(f"{folder}/evidence")
    keys = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray")
    # The digests of what entered; a tap at the source knows them as well as the task does.
    latest = Window.partitionBy(*keys, "generation").orderBy(F.col("journal_time").desc())
    entries = (
        evidence.where("role = 'source' and body_digest is not null")
        .withColumn("nth", F.row_number().over(latest))
        .where("nth = 1")
        .select(*(F.col(name).alias(f"of_{name}") for name in (*keys, "generation")), "body_digest", "property_digest")
    )
    is_same = F.unix_micros(missing["enqueued_time"]).eqNullSafe(entries["of_generation"])
    for name in keys:
        is_same = is_same & missing[name].eqNullSafe(entries[f"of_{name}"])
    columns = (
        "task", "src_site", "src_entity", "src_part", "src_seq", "message_id", "order_key", "meant_for", "copies",
        "expected", "last_reason",
    )  # fmt: skip
    rows = (
        missing.join(entries, is_same, "left")
        .select(*columns, *(F.unix_micros(name).alias(name) for name in _MICROS), "body_digest", "property_digest")
        .orderBy("task", "src_part", "src_seq")
        .limit(MOST)
        .collect()
    )
    count = summary.counts.get("missing", 0)
    head = {"manifest": VERSION, "run": summary.run, "messages": len(rows), "missing": count}
    storage.write(
        f"{folder}/{MANIFEST}", "".join(f"{_line(each)}\n" for each in (head, *(row.asDict() for row in rows)))
    )
    return f"{folder}/{MANIFEST}"


def _line(values: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
