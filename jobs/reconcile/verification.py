"""Compacted records read again, and compared with the raw ones: what a night rests on."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, TimestampType

from jobs.reconcile import index, schema
from jobs.reconcile.filling import FILLED, check, is_outcome

COUNTED = ("coverage", "digests", "loose")
"""The tables that tell how many records there are: all, those of buckets, and those that are looked at in any case."""

_NOTHING = (0, 0, 0)


class CompactionFailed(Exception):
    """What was written is not what was read; nothing was committed and no raw file touched."""


def verified(good: DataFrame, kept: DataFrame) -> dict[str, tuple[int, int]]:
    """Return the records of each hour as they were read and as they were kept; every one has to be there once."""
    read, wrote = _sums(good), _sums(kept)
    repeated = [hour for hour, sums in read.items() if hour in wrote and wrote[hour][0] < sums[0]]
    wanted = dict(read)
    if repeated:
        # Which of several is the one that was kept does not show in the keys, and the keys are all that is compared.
        first = F.min("journal_time").alias("journal_time")
        once = good.where(F.col("landed").isin(repeated)).groupBy("landed", *schema.IDENTITY).agg(first)
        wanted |= {row["landed"]: tuple(row)[1:] for row in once.groupBy("landed").agg(*_of_keys(once)).collect()}
    for hour in sorted({*wanted, *wrote}):
        due, there = wanted.get(hour, _NOTHING), wrote.get(hour, _NOTHING)
        if there[: len(due)] != due:
            raise CompactionFailed(f"{hour}: kept {there[0]} records, expected {due[0]} and the content that was read")
    return {hour: (sums[0], wrote[hour][0]) for hour, sums in read.items()}


def verify_index(kept: DataFrame, tables: Mapping[str, DataFrame | None], records: int) -> None:
    """Raise CompactionFailed unless each of the *records* that are *kept* is in *tables*, which are those COUNTED."""
    kinds = (F.count("*"), F.count_if(~index.unnumbered()), F.count_if(index.is_loose()))
    wanted = dict(zip(COUNTED, kept.agg(*kinds).collect()[0], strict=True))
    found = {
        name: 0 if table is None else table.agg(F.sum("n") if "n" in table.columns else F.count("*")).collect()[0][0]
        for name, table in tables.items()
    }
    if found != wanted or wanted["coverage"] != records:
        raise CompactionFailed(f"the tables tell of {found} records, expected {wanted} of {records}")


def _sums(frame: DataFrame) -> dict[str, tuple[int, ...]]:
    """Return for each hour of raw or compacted records their number, and sums of hashes of who wrote what."""
    rows = frame.groupBy("landed").agg(*_of_keys(frame), _sum_of_hashes(*_contents(frame))).collect()
    return {row["landed"]: tuple(row)[1:] for row in rows}


def _of_keys(frame: DataFrame) -> tuple[Column, Column]:
    return F.count("*"), _sum_of_hashes(*(F.col(name) for name in schema.IDENTITY), _time(frame, "journal_time"))


def _sum_of_hashes(*columns: Column) -> Column:
    # 40 bits each, so that the sum does not overflow.
    return F.sum(F.shiftright(F.xxhash64(*columns), 24))


def _contents(frame: DataFrame) -> list[Column]:
    """Return what compaction leaves as it is read, in a form that raw and compacted records have in common."""
    found = []
    for name in schema.FIELDS:
        column = _time(frame, name) if name in schema.TIMES else F.col(name)
        if name == "check" and isinstance(frame.schema[name].dataType, StringType):
            column = check()
        found.append(F.when(~is_outcome(), column) if name in FILLED else column)
    return found


def _time(frame: DataFrame, name: str) -> Column:
    return F.unix_micros(name) if isinstance(frame.schema[name].dataType, TimestampType) else F.col(name)
