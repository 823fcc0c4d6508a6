"""Column expressions about compacted records."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

NUMBER = ("task", "src_site", "src_entity", "src_part", "src_seq")
"""The columns that name a message by the number that its source gave it."""


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
    """Return whether a record has no number by which it belongs to a message."""
    return needs_match() | F.col("src_seq").isNull()


def is_remembered() -> Column:
    """
    Return whether an instance did not send the message again, because it remembered that it had sent it.

    If it had sent another copy of the message, that copy has its own record of it, and this one needs none.
    """
    return F.coalesce(F.col("remembered"), F.lit(False)) & F.col("joined").isNull()


def stream() -> Column:
    """Return 64 bits that represent a task and the source partition that it reads: one number is compared fast."""
    return F.xxhash64(*NUMBER[:4])


def is_outcome() -> Column:
    """Return whether a record is the outcome that a task gave a numbered message."""
    return (F.col("observer") == "task") & (F.col("role") == "target") & F.col("src_seq").isNotNull()


def is_arrival() -> Column:
    """Return whether a record shows a copy at a target."""
    sent = (F.col("outcome") == "sent") & ~is_remembered()
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
    # Most messages come straight from their site: the rest is not evaluated for these.
    has_left = F.size("hops") > 1
    return F.when(has_left, F.coalesce(again, F.lit(False)) | F.coalesce(seen_there, F.lit(False))).otherwise(
        F.lit(False)
    )
