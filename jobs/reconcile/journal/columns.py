"""Column expressions about compacted records."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal import schema

BUCKET_SIZE = 32
"""Sequence numbers in a bucket (64 at most): few, so that one bad message in a thousand selects few others."""

NUMBER = ("task", "src_site", "src_entity", "src_part", "src_seq")

BUCKET = (*NUMBER[:4], "block")

SESSION = ("task", "observer", "target", "tgt_part", "src_site", "src_entity", "src_part", "order_key")


def block(size: int = BUCKET_SIZE) -> Column:
    """Return the number of the bucket that a record belongs to, with *size* sequence numbers in a bucket."""
    # The numbers of partitioned entities are above 2^53, where a floating-point quotient would be wrong.
    return F.expr(f"src_seq div {size}")


def micros(name: str) -> Column:
    """Return the time *name* in microseconds since 1970."""
    return F.unix_micros(F.col(name))


def needs_match() -> Column:
    """Return whether a tap wrote a record without the number that the task's source gave the message."""
    tap = F.col("observer") == "tap"
    at_target = (F.col("role") == "target") & F.col("src_seq").isNotNull() & F.col("src_part").isNull()
    at_source = (F.col("role") == "source") & F.col("src_seq").isNull()
    return tap & (at_target | at_source)


def is_unnumbered() -> Column:
    """Return whether a record is in no bucket."""
    return needs_match() | F.col("src_seq").isNull()


def is_loose() -> Column:
    """Return whether every run reads a record: it is in no bucket, or says that a queue dead-lettered the message."""
    return (is_unnumbered() & (F.col("outcome") != schema.GAP)) | F.col("given_up_by").isNotNull()


def is_outcome() -> Column:
    """Return whether a record is the outcome that a task gave a numbered message."""
    return (F.col("observer") == "task") & (F.col("role") == "target") & F.col("src_seq").isNotNull()


def is_arrival() -> Column:
    """Return whether a record shows a copy at a target."""
    sent = (F.col("outcome") == "sent") & ~F.coalesce(F.col("remembered"), F.lit(False))
    return sent | ((F.col("observer") == "tap") & (F.col("role") == "target"))


def arrival_time() -> Column:
    """Return when the copy arrived, as the observer knows it, in microseconds since 1970."""
    return F.coalesce(micros("tgt_enqueued_time"), micros("journal_time"))


def arrival_order() -> tuple[Column, Column]:
    """Return two numbers that order the arrivals at one target."""
    tap = F.col("observer") == "tap"
    return (
        F.when(tap, F.col("tgt_seq")).otherwise(micros("journal_time")),
        F.when(tap, F.lit(0)).otherwise(F.col("batch_id") * 100_000 + F.coalesce(F.col("send_ordinal"), F.lit(0))),
    )


def is_round_trip() -> Column:
    """Return whether the message came back to a site that it had left for another one."""
    # A message that moves between entities of one site stays there: consecutive equal sites count once.
    stays = F.filter(
        F.transform("hops", lambda site, at: F.struct(site.alias("site"), at.alias("at"))),
        lambda each: (
            (each["at"] == 0)
            | (each["site"] != F.get(F.col("hops"), F.when(each["at"] > 0, each["at"] - 1).otherwise(F.lit(0))))
        ),
    )
    sites = F.transform(stays, lambda each: each["site"])
    again = F.size(F.array_distinct(sites)) < F.size(sites)
    # The last hop is the source's own site, to which a message may go without leaving it.
    there = F.substring_index("target", "/", 1)
    back = F.array_contains(F.col("hops"), there) & (F.element_at("hops", -1) != there)
    seen_there = (F.col("observer") == "tap") & (F.col("role") == "target") & back
    return F.coalesce(again, F.lit(False)) | F.coalesce(seen_there, F.lit(False))


def checksum() -> Column:
    """Return the 64 bits over body and properties of a raw record: its `check`, or computed from its digests."""
    given = F.conv("check", 16, -10).cast("bigint")
    computed = (
        F.conv(F.substring("body_digest", 1, 16), 16, -10)
        .cast("bigint")
        .bitwiseXOR(F.coalesce(F.conv("property_digest", 16, -10).cast("bigint"), F.lit(0)))
    )
    return F.coalesce(given, computed)


def sum_of_hashes(*columns: Column | str) -> Column:
    """Return an order-free sum over rows of a hash of *columns*."""
    # 40 bits of each hash: the sum of any number of rows that an hour can hold does not overflow.
    return F.sum(F.shiftright(F.xxhash64(*columns), 24))
