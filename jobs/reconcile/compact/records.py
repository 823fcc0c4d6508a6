"""Raw records without duplicates, each outcome completed from its `received` record."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import checksum, is_outcome

COMPLETED = ("enqueued_time", "expires_at", "message_id", "order_key", "hops")
"""Fields that an outcome may leave to its `received` record."""


def compact_records(raw: DataFrame) -> DataFrame:
    """
    Return the records of *raw* without duplicates, each outcome completed from its `received` record.

    Shape:   parsed records without trouble in, schema.COMPACTED out.
    """
    # Hours are independent of each other, so it makes no difference which of them are compacted together.
    once = Window.partitionBy("landed", *schema.IDENTITY).orderBy("journal_time")
    unique = raw.withColumn("nth", F.row_number().over(once)).where("nth = 1")
    timed = unique.withColumns({name: F.timestamp_micros(F.col(name)) for name in schema.TIMES})
    checked = timed.withColumn("check", checksum())
    received = F.col("outcome") == "received"
    same_batch = Window.partitionBy(
        "landed", "task", "src_seq", "src_part", "src_site", "src_entity", "instance", "batch_id"
    )
    outcome = is_outcome()
    with_entry = checked.withColumns(
        {
            "entry": F.max(
                F.when(received, F.struct("enqueued_time", "expires_at", "message_id", "order_key", "check"))
            ).over(same_batch),
            "entry_hops": F.max(F.when(received, F.col("hops"))).over(same_batch),
        }
    )
    completed = {
        name: F.when(outcome, F.coalesce(F.col(name), F.col(f"entry.{name}"))).otherwise(F.col(name))
        for name in COMPLETED
        if name != "hops"
    }
    unedited = (F.col("outcome") == "sent") & F.col("edited").isNull()
    entry_check = F.when(outcome & ~unedited, F.col("entry.check")).otherwise(F.col("check"))
    return with_entry.withColumns(
        {
            **completed,
            "entry_check": entry_check,
            "hops": F.coalesce("hops", F.when(outcome, F.col("entry_hops"))),
        }
    ).select(*schema.COMPACTED)
