"""What Spark plans for the steps that read the records of an hour."""

from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.judge.pairs import pair
from busway_reconcile.judge.selection import foreign_copies, mark_watched, numbered_records, numbers_of
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.settings import Settings


@pytest.fixture(name="records")
def records_fixture(spark: SparkSession, tmp_path: Path) -> DataFrame:
    folder = str(tmp_path / "records")
    spark.createDataFrame([], schema.compacted()).write.parquet(folder)
    return spark.read.schema(schema.compacted()).parquet(folder)


def plan_of(frame: DataFrame) -> str:
    conf = frame.sparkSession.conf
    lengths = {name: conf.get(name) for name in ("spark.sql.maxPlanStringLength", "spark.sql.maxMetadataStringLength")}
    for name in lengths:
        conf.set(name, 1_000_000)
    try:
        return str(frame._jdf.queryExecution().executedPlan().toString())
    finally:
        for name, length in lengths.items():
            conf.set(name, str(length))


def test_parquet_reads_only_the_range_of_the_numbers(spark: SparkSession, records: DataFrame) -> None:
    numbers = numbers_of(spark.createDataFrame([(1, 700), (2, 30), (1, 500)], "stream bigint, src_seq bigint"))
    assert (numbers.size, numbers.lowest, numbers.highest) == (3, 30, 700)
    plan = plan_of(numbered_records(records, numbers))
    assert "GreaterThanOrEqual(src_seq,30)" in plan
    assert "LessThanOrEqual(src_seq,700)" in plan


def test_without_numbers_nothing_is_read(spark: SparkSession, records: DataFrame) -> None:
    numbers = numbers_of(spark.createDataFrame([], "stream bigint, src_seq bigint"))
    assert (numbers.size, numbers.lowest, numbers.highest) == (0, None, None)
    assert "FileScan" not in plan_of(numbered_records(records, numbers))


def test_java_has_stack_enough_for_two_thousand_tasks(records: DataFrame) -> None:
    tasks = {
        f"task-{each}": TaskActivity(
            f"task-{each}",
            sources={("west", f"queue-{each}")},
            targets={f"east/queue-{each}"},
            target_taps=defaultdict(set, {f"east/queue-{each}": {"tap"}}),
        )
        for each in range(2_000)
    }
    foreign = records.where(foreign_copies(tasks.values(), tasks.values()))
    rows = foreign.withColumns({"known": F.lit("window"), "joined": F.lit(None)})
    assert mark_watched(rows, tasks, {}).isEmpty()


def test_records_are_moved_before_they_are_grouped(records: DataFrame) -> None:
    before, _, after = plan_of(pair(records, None, 0, Settings())).partition("Exchange")
    assert "HashAggregate" in before
    assert "HashAggregate" not in after
