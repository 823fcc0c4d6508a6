"""
The verdicts: each message gets one, the most severe that applies, and a list of all findings that apply.

docs/reconciliation.md defines each verdict.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.hours import micros_of
from jobs.reconcile.judge.messages import MESSAGE
from jobs.reconcile.settings import Settings

# By severity: the first that applies is the verdict.
FINDINGS = ("missing", "orphan", "looped", "altered", "duplicated", "out_of_order", "late")
BY_DESIGN = ("filtered", "rejected", "expired", "stopped", "spilled", "in_flight")
UNDECIDED = "undecided"
VERDICTS = (*FINDINGS, UNDECIDED, "delivered", *BY_DESIGN)
OPEN = ("missing", "in_flight", UNDECIDED)
"""Verdicts that records of a later window may change."""

CONTEXT = ("is_spilled", "gap_in_entries", "gap_in_outcomes", "is_before_tap", "is_after_tap")
"""
What the whole run knows about a message: whether the source's dead-letter task received it, whether records of its
entry or outcome may be lost, and whether it was sent to a tap's target before the tap started or after it stopped.
"""

JUDGED = (*MESSAGE, *CONTEXT, "copies", "expected", "lag", "altered", "findings", "verdict")
"""A message with its verdict."""


def with_verdict(messages: DataFrame, end: datetime, settings: Settings) -> DataFrame:
    """
    Return *messages* with their verdicts at the time *end*.

    Shape:   MESSAGE and CONTEXT in, JUDGED out.
    Units:   lag in microseconds.
    """
    end_micros = micros_of(end)
    due = F.coalesce(F.col("parts"), F.lit(1)) - F.size(F.array_except("withheld_parts", "sent_parts"))
    by_task = F.when(F.col("sent_unwatched") > 0, F.col("sent_unwatched")).otherwise(
        # It was accepted by an earlier attempt, which has no record.
        F.when((F.col("remembered") > 0) & (F.size("due_at_tap") == 0), F.lit(1)).otherwise(F.lit(0))
    )
    copies = F.col("seen_watched") + F.greatest(by_task, F.col("seen_unwatched"))
    counted = messages.withColumns(
        {
            "copies": copies,
            "expected": F.when(copies > 0, F.greatest(due, F.lit(1))).otherwise(F.greatest(due, F.lit(0))),
            "lag": F.col("arrived") - F.col("generation"),
            "altered": _altered(),
        }
    )
    entered = (F.col("received") + F.col("entered_by_tap")) > 0
    arrived = F.col("copies") > 0
    complete = F.col("copies") >= F.col("expected")
    whole = arrived & complete
    young = last_known() > end_micros - round(settings.grace.total_seconds() * 1_000_000)
    has_expired = F.coalesce(F.col("expires") <= end_micros, F.lit(False)) & (F.size("sent_parts") == 0)
    # A tap that had not started or had stopped when the copy came did not miss it.
    tap_is_blind = F.col("is_before_tap") | F.col("is_after_tap")
    absent = (
        F.when(F.col("is_spilled"), F.lit("spilled"))
        .when(has_expired, F.lit("expired"))
        .when(young, F.lit("in_flight"))
        .when(tap_is_blind | F.col("gap_in_outcomes"), F.lit(UNDECIDED))
        .otherwise(F.lit("missing"))
    )
    withheld = (
        F.when(F.array_contains("withheld_as", "rejected"), F.lit("rejected"))
        .when(F.array_contains("withheld_as", "expired"), F.lit("expired"))
        .when(F.array_contains("withheld_as", "looped"), F.lit("stopped"))
        .otherwise(F.lit("filtered"))
    )
    kinds = {
        "orphan": ~entered & arrived & ~F.col("gap_in_entries"),
        "looped": F.col("is_round_trip") & (entered | arrived),
        "altered": F.col("altered").isNotNull(),
        "duplicated": F.col("copies") > F.col("expected"),
        "out_of_order": whole & F.coalesce(F.col("first_arrival.is_behind"), F.lit(False)),
        "late": whole & F.coalesce(F.col("lag") > settings.late_after.total_seconds() * 1_000_000, F.lit(False)),
    }
    outcome = (
        F.when(F.col("is_unreadable_entry"), F.lit("unreadable"))
        .when(~entered & arrived & F.col("gap_in_entries"), F.lit(UNDECIDED))
        .when(F.col("expected") == 0, withheld)
        .when(whole, F.lit("delivered"))
        .when(~entered & (F.size("withheld_as") == 0) & ~arrived, F.lit(UNDECIDED))
        .otherwise(absent)
    )
    named = counted.withColumn("outcome", outcome)
    kinds_found = [F.when(F.col("outcome") == "missing", F.lit("missing"))]
    kinds_found += [F.when(condition, F.lit(kind)) for kind, condition in kinds.items()]
    return (
        named.withColumn("findings", F.filter(F.array(*kinds_found), lambda each: each.isNotNull()))
        .withColumn(
            "verdict",
            F.when(F.size("findings") > 0, F.element_at("findings", 1)).otherwise(F.col("outcome")),
        )
        .select(*JUDGED)
    )


def last_known() -> Column:
    """Return when a message was enqueued or last received, whichever was later, in microseconds since 1970."""
    return F.greatest(F.coalesce("generation", "first_record"), F.coalesce("last_entry", "first_record"))


def _altered() -> Column:
    """Return what changed: body, property, or content if the evidence does not show which; null for nothing."""
    on_the_way = F.size(F.array_except("checks_unedited", "checks_received")) > 0
    before = (
        (F.size("checks_entered") > 0)
        & (F.size("checks_received") > 0)
        & (F.size(F.array_except("checks_received", "checks_entered")) > 0)
    )
    known_out = F.when(F.size("checks_sent") > 0, F.col("checks_sent")).otherwise(F.col("checks_received"))
    behind = (
        (F.size("checks_seen") > 0) & (F.size(known_out) > 0) & (F.size(F.array_except("checks_seen", known_out)) > 0)
    )
    body = (F.size("bodies_out") > 0) & (F.size(F.array_except("bodies_seen", "bodies_out")) > 0)
    return (
        F.when(behind & body, F.lit("body"))
        .when(behind & ~on_the_way, F.lit("property"))
        .when(behind | before | (on_the_way & (F.size("checks_received") > 0)), F.lit("content"))
    )
