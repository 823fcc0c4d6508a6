"""Raw records as they are kept: each once, and each outcome with what its `received` says of the message."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import schema

FILLED = ("enqueued_time", "expires_at", "message_id", "order_key", "hops")
"""What an outcome may leave to its `received` to say."""


def compacted(raw: DataFrame) -> DataFrame:
    """
    Return the records of *raw* without repeats, each outcome with what its `received` says of the message.

    Shape:   raw.records() without troubles in, schema.compacted() out.
    """
    # Hours are independent of each other: which of them are compacted together makes no difference.
    once = Window.partitionBy("landed", *schema.IDENTITY).orderBy("journal_time")
    unique = raw.withColumn("nth", F.row_number().over(once)).where("nth = 1")
    timed = unique.withColumns({name: F.timestamp_micros(F.col(name)) for name in schema.TIMES})
    checked = timed.withColumn("check", check())
    received = F.col("outcome") == "received"
    handled = Window.partitionBy(
        "landed", "task", "src_seq", "src_part", "src_site", "src_entity", "instance", "batch_id"
    )
    outcome = is_outcome()
    told = checked.withColumns(
        {
            "of_message": F.max(
                F.when(received, F.struct("enqueued_time", "expires_at", "message_id", "order_key", "check"))
            ).over(handled),
            "of_path": F.max(F.when(received, F.col("hops"))).over(handled),
        }
    )
    filled = {
        name: F.when(outcome, F.coalesce(F.col(name), F.col(f"of_message.{name}"))).otherwise(F.col(name))
        for name in FILLED
        if name != "hops"
    }
    unedited = (F.col("outcome") == "sent") & F.col("edited").isNull()
    entry = F.when(outcome & ~unedited, F.col("of_message.check")).otherwise(F.col("check"))
    return told.withColumns(
        {**filled, "entry_check": entry, "hops": F.coalesce("hops", F.when(outcome, F.col("of_path")))}
    ).select(*schema.compacted().names)


def check() -> Column:
    """Return the 64 bits over body and properties of a raw record: as it says, or of the digests that it has."""
    said = F.conv("check", 16, -10).cast("bigint")
    computed = (
        F.conv(F.substring("body_digest", 1, 16), 16, -10)
        .cast("bigint")
        .bitwiseXOR(F.coalesce(F.conv("property_digest", 16, -10).cast("bigint"), F.lit(0)))
    )
    return F.coalesce(said, computed)


def is_outcome() -> Column:
    """Tell of a record whether it says what its task made of a message."""
    return (F.col("observer") == "task") & (F.col("role") == "target") & F.col("src_seq").isNotNull()
