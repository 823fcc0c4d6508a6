"""Records without duplicates, each outcome completed from its `received` record."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import is_outcome

COMPLETED = ("enqueued_time", "expires_at", "message_id", "order_key", "hops")
"""Fields that an outcome may leave to its `received` record."""

_BATCH = ("task", "src_site", "src_entity", "src_part", "src_seq", "instance", "batch_id")


def complete(records: DataFrame) -> DataFrame:
    """
    Return *records*, each outcome with the fields that it leaves to its `received` record.

    Shape:   all records of each of their messages, without duplicates, in; the same columns out.
    """
    of_batch = Window.partitionBy(*_BATCH)
    entry = F.when(F.col("outcome") == "received", F.struct(*COMPLETED))
    return (
        records.withColumn("entry", F.max(entry).over(of_batch))
        .withColumns(
            {
                name: F.when(is_outcome(), F.coalesce(F.col(name), F.col(f"entry.{name}"))).otherwise(F.col(name))
                for name in COMPLETED
            }
        )
        .drop("entry")
    )


def number_repeats(records: DataFrame) -> DataFrame:
    """Return *records* with `nth`: 1 for each record of an hour, 2 and more for its duplicates."""
    once = Window.partitionBy("landed", *schema.IDENTITY).orderBy("journal_time")
    return records.withColumn("nth", F.row_number().over(once))
