"""
The tables of all runs as Delta tables, for programs that read a lakehouse.

Each table has one partition for each run, which a repetition of the run replaces. The job itself reads only its own
folder: nothing depends on these tables.
"""

from collections.abc import Iterator
from datetime import datetime

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary

TABLES = ("findings", "explained", "missing", "evidence", "verdicts", "lags")
"""The tables of a run that have a Delta table; another one, `runs`, has a row for each run."""

_RUN = "run string, start timestamp, end timestamp, exit_code int, verdict string, sentence string, messages bigint"


class DeltaUnavailable(RuntimeError):
    """The Spark session cannot write Delta tables; the message says what to add to it."""


def check_delta(spark: SparkSession) -> None:
    """Raise DeltaUnavailable if *spark* has no Delta."""
    sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr] # noqa: SLF001 - PySpark has no other access; None only with Connect
    try:
        sources.lookupDataSource("delta", spark._jsparkSession.sessionState().conf())  # noqa: SLF001 - same reason
    except Py4JJavaError as error:
        raise DeltaUnavailable(
            f"--delta: Spark {spark.version} has no Delta here; start the job with spark-submit --packages "
            "io.delta:…, see docs/reconciliation.md"
        ) from error


def write_delta(spark: SparkSession, summary: Summary, out: str, address: str) -> list[str]:
    """Write the run of *summary* from its folder below *out* into Delta tables below *address*; return these."""
    storage = Storage(spark)
    folder, below = f"{storage.absolute(out)}/runs/{summary.run}", storage.absolute(address)
    written = []
    for name, frame in _frames(spark, storage, summary, folder, below):
        (
            frame.withColumn("run", F.lit(summary.run))
            .write.format("delta")
            .mode("overwrite")
            .partitionBy("run")
            .option("replaceWhere", f"run = '{summary.run}'")
            # A later version of the job may have more columns.
            .option("mergeSchema", "true")
            .save(f"{below}/{name}")
        )
        written.append(f"{below}/{name}")
    return written


def _frames(
    spark: SparkSession, storage: Storage, summary: Summary, folder: str, below: str
) -> Iterator[tuple[str, DataFrame]]:
    """Return the rows for each Delta table; they may be none, if only an earlier attempt of this run had some."""
    for name in TABLES:
        if storage.exists(f"{folder}/{name}"):
            yield name, spark.read.parquet(f"{folder}/{name}")
        elif storage.exists(f"{below}/{name}/_delta_log"):
            yield name, spark.read.format("delta").load(f"{below}/{name}").limit(0)
    start, end = (datetime.fromisoformat(each) for each in (summary.start, summary.end))
    messages = sum(summary.counts.values()) - summary.counts.get("orphan", 0)
    row = (summary.run, start, end, summary.exit_code, summary.verdict, summary.sentence, messages)
    # Last: a run that is in the table `runs` is complete in the others.
    yield "runs", spark.createDataFrame([row], _RUN)
