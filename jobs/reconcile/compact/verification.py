"""Verification of compacted records: they are read again and compared with the raw ones."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, TimestampType

from jobs.reconcile.compact.records import COMPLETED
from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import checksum, is_loose, is_outcome, is_unnumbered, sum_of_hashes

COUNTED = ("coverage", "digests", "loose")
"""Tables that count records: all, those in buckets, and those that every run reads."""

_NOTHING = (0, 0, 0)


class CompactionFailed(Exception):
    """The compacted records differ from the raw ones; nothing was committed and no raw file changed."""


def verify_records(good: DataFrame, kept: DataFrame) -> dict[str, tuple[int, int]]:
    """
    Return the number of raw and of kept records of each hour.

    Raises CompactionFailed unless every record of *good* is in *kept* once.
    """
    read, wrote = _sums(good), _sums(kept)
    repeated = [hour for hour, sums in read.items() if hour in wrote and wrote[hour][0] < sums[0]]
    wanted = dict(read)
    if repeated:
        # Duplicates may differ outside their keys, so that for these hours only the keys are compared.
        first = F.min("journal_time").alias("journal_time")
        once = good.where(F.col("landed").isin(repeated)).groupBy("landed", *schema.IDENTITY).agg(first)
        wanted |= {row["landed"]: tuple(row)[1:] for row in once.groupBy("landed").agg(*_of_keys(once)).collect()}
    for hour in sorted({*wanted, *wrote}):
        due, there = wanted.get(hour, _NOTHING), wrote.get(hour, _NOTHING)
        if there[: len(due)] != due:
            raise CompactionFailed(f"{hour}: kept {there[0]} records, expected {due[0]} with the content that was read")
    return {hour: (sums[0], wrote[hour][0]) for hour, sums in read.items()}


def verify_index(kept: DataFrame, tables: Mapping[str, DataFrame | None], records: int) -> None:
    """Raise CompactionFailed unless *kept* has *records* rows and each is in the *tables* that COUNTED names."""
    kinds = (F.count("*"), F.count_if(~is_unnumbered()), F.count_if(is_loose()))
    wanted = dict(zip(COUNTED, kept.agg(*kinds).collect()[0], strict=True))
    found = {
        name: 0 if table is None else table.agg(F.sum("n") if "n" in table.columns else F.count("*")).collect()[0][0]
        for name, table in tables.items()
    }
    if found != wanted or wanted["coverage"] != records:
        raise CompactionFailed(f"the index counts {found} records, expected {wanted} of {records}")


def _sums(frame: DataFrame) -> dict[str, tuple[int, ...]]:
    """Return for each hour the number of records, and sums of hashes of their keys and their content."""
    rows = frame.groupBy("landed").agg(*_of_keys(frame), sum_of_hashes(*_contents(frame))).collect()
    return {row["landed"]: tuple(row)[1:] for row in rows}


def _of_keys(frame: DataFrame) -> tuple[Column, Column]:
    return F.count("*"), sum_of_hashes(*(F.col(name) for name in schema.IDENTITY), _time(frame, "journal_time"))


def _contents(frame: DataFrame) -> list[Column]:
    """Return the columns that compaction does not change, in a form that raw and compacted records share."""
    found = []
    for name in schema.FIELDS:
        column = _time(frame, name) if name in schema.TIMES else F.col(name)
        if name == "check" and isinstance(frame.schema[name].dataType, StringType):
            column = checksum()
        found.append(F.when(~is_outcome(), column) if name in COMPLETED else column)
    return found


def _time(frame: DataFrame, name: str) -> Column:
    return F.unix_micros(name) if isinstance(frame.schema[name].dataType, TimestampType) else F.col(name)
