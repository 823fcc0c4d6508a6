"""
The verdicts: each message gets one, the most severe that applies, and a list of all findings that apply.

docs/verdicts.md defines each verdict.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.hours import micros_of
from busway_reconcile.judge.messages import MESSAGE, arrived_parts
from busway_reconcile.settings import Settings

# By severity: the first that applies is the verdict.
FINDINGS = ("missing", "expired-unsent", "orphan", "looped", "altered", "duplicated", "out_of_order", "late")
BY_DESIGN = ("filtered", "rejected", "expired", "stopped", "spilled", "in_flight", "repaired", "replayed")
UNDECIDED = "undecided"
VERDICTS = (*FINDINGS, UNDECIDED, "delivered", *BY_DESIGN)
OPEN = ("missing", "expired-unsent", "in_flight", UNDECIDED)
"""Verdicts that records of a later window may change."""

CONTEXT = (
    "is_spilled", "is_expired_letter", "worked_before", "worked_during", "worked_after", "gap_in_entries",
    "gap_in_outcomes", "is_before_tap", "is_after_tap", "named_site", "is_refuted", "is_own_word",
)  # fmt: skip
"""
What the whole run knows about a message: whether it is a dead letter of its source, when its task worked, whether
records of its entry or outcome may be lost, whether it was sent to a tap's target before the tap started or after it
stopped, and whether the records of the site on its path refute the path.
"""

JUDGED = (
    *MESSAGE,
    *CONTEXT,
    "copies",
    "expected",
    "arrived",
    "lag",
    "altered",
    "unproven",
    "findings",
    "verdict",
    "note",
)
"""A message with its verdict; `unproven` are instances that withheld it as expired without proof."""


_CLOCK_BEHIND = timedelta(hours=1) // timedelta(microseconds=1)
"""How far the clock of an instance may be behind: the time in flight begins no later after its last record."""


def with_verdict(messages: DataFrame, end: datetime, settings: Settings) -> DataFrame:
    """
    Return *messages* with their verdicts at the time *end*.

    Shape:   MESSAGE and CONTEXT in, JUDGED out.
    Units:   lag in microseconds.
    """
    end_micros = micros_of(end)
    late_after = settings.late_after.total_seconds() * 1_000_000
    is_proven = _is_proven_expiry()
    withheld_parts = F.array_distinct(
        F.concat(
            "withheld_parts",
            F.when(F.col("is_refuted"), F.array().cast("array<int>")).otherwise(F.col("looped_parts")),
            F.transform(F.filter("expired_parts", is_proven), lambda each: each["part"]),
        )
    )
    due = F.coalesce(F.col("parts"), F.lit(1)) - F.size(F.array_except(withheld_parts, "sent_parts"))
    seen_watched, seen_unwatched = F.size("copies_watched"), F.size("copies_unwatched")
    # A part that was accepted by an earlier attempt, which has no record.
    unrecorded = F.array_except("recalled_parts", "original_parts")
    by_task = F.col("sent_unwatched") + F.size(unrecorded)
    copies = seen_watched + F.greatest(by_task, seen_unwatched)
    # A message with several targets has arrived when the last of them has it.
    firsts = F.filter("arrivals", _is_first_of_target)
    counted = messages.withColumn("arrived", F.array_max(F.transform(firsts, lambda each: each["at"]))).withColumns(
        {
            "copies": copies,
            "arrived_parts": arrived_parts(F.col("parts_unwatched")),
            "recorded_parts": arrived_parts(F.array_except("parts_unwatched", unrecorded)),
            "expected": F.when(copies > 0, F.greatest(due, F.lit(1))).otherwise(F.greatest(due, F.lit(0))),
            "lag": F.col("arrived") - F.col("generation"),
            "altered": _altered(),
            "unproven": F.array_distinct(
                F.transform(F.filter("expired_parts", lambda each: ~is_proven(each)), lambda each: each["instance"])
            ),
        }
    )
    entered = (F.col("received") + F.col("entered_by_tap")) > 0
    arrived = F.col("copies") > 0
    whole = arrived & (F.col("arrived_parts") >= F.col("expected"))
    # The clock of an instance may be ahead of that of this job.
    young = F.lit(not settings.writers_stopped) & (
        last_known() > end_micros - round(settings.grace.total_seconds() * 1_000_000)
    )
    is_accepted = F.size("sent_parts") + seen_watched + seen_unwatched > 0
    is_over = F.coalesce(F.col("expires") <= end_micros, F.lit(False))
    is_away = F.col("worked_during").isNull() & F.col("expires").isNotNull()
    # A tap that had not started or had stopped when the copy came did not miss it; a part that was never sent is lost.
    is_all_sent = F.size("sent_parts") >= F.col("expected")
    tap_is_blind = (F.col("is_before_tap") | F.col("is_after_tap")) & is_all_sent
    was_left = ~is_accepted & is_over & is_away & (F.col("unended_attempts") == 0) & (F.size("expired_parts") == 0)
    absent = (
        F.when(F.col("is_expired_letter") & is_away, F.lit("expired-unsent"))
        .when(F.col("is_expired_letter"), F.lit("expired"))
        .when(F.col("is_spilled"), F.lit("spilled"))
        .when(young, F.lit("in_flight"))
        .when(tap_is_blind | F.col("gap_in_outcomes"), F.lit(UNDECIDED))
        .when(was_left, F.lit("expired-unsent"))
        .otherwise(F.lit("missing"))
    )
    withheld = (
        F.when(F.array_contains("withheld_as", "rejected"), F.lit("rejected"))
        .when(F.array_contains("withheld_as", "expired"), F.lit("expired"))
        .when(F.array_contains("withheld_as", "looped"), F.lit("stopped"))
        .otherwise(F.lit("filtered"))
    )
    # What a repair sent is late, and after later messages, because it was missing.
    on_time = whole & ~F.col("is_repaired")
    kinds = {
        "orphan": ~entered & arrived & ~F.col("gap_in_entries"),
        "looped": F.col("is_round_trip") & (entered | arrived),
        "altered": F.col("altered").isNotNull(),
        "duplicated": F.col("copies") > F.least("arrived_parts", "expected"),
        "out_of_order": on_time & F.exists(firsts, lambda each: F.coalesce(each["is_behind"], F.lit(False))),
        # A dead letter keeps its enqueued time, and when it was dead-lettered is not on record.
        "late": on_time & F.col("given_up_by").isNull() & F.coalesce(F.col("lag") > late_after, F.lit(False)),
    }
    outcome = (
        F.when(F.col("is_unreadable_entry"), F.lit("unreadable"))
        .when(~entered & arrived & F.col("gap_in_entries"), F.lit(UNDECIDED))
        .when(F.col("expected") == 0, withheld)
        .when(whole & F.col("is_repaired") & F.col("task").contains(schema.REPLAY), F.lit("replayed"))
        .when(whole & F.col("is_repaired"), F.lit("repaired"))
        # The source gave up what the host was asked to send.
        .when((F.col("is_spilled") | F.col("is_expired_letter")) & (F.size("sent_parts") > 0), absent)
        # The task's word that an earlier attempt was accepted, without the record of that attempt.
        .when(whole & (F.size(unrecorded) > 0) & (F.col("recorded_parts") < F.col("expected")), F.lit(UNDECIDED))
        .when(whole, F.lit("delivered"))
        .when(~entered & (F.size("withheld_as") == 0) & ~arrived, F.lit(UNDECIDED))
        .otherwise(absent)
    )
    named = counted.withColumn("outcome", outcome)
    kinds_found = [F.when(F.col("outcome") == kind, F.lit(kind)) for kind in ("missing", "expired-unsent")]
    kinds_found += [F.when(condition, F.lit(kind)) for kind, condition in kinds.items()]
    verdict = F.when(F.size("findings") > 0, F.element_at("findings", 1)).otherwise(F.col("outcome"))
    return (
        named.withColumn("findings", F.filter(F.array(*kinds_found), lambda each: each.isNotNull()))
        .withColumn("verdict", verdict)
        .withColumn("note", _note(is_over))
        .select(*JUDGED)
    )


def _is_first_of_target(arrival: Column, number: Column) -> Column:
    """Return whether no other of the sorted `arrivals` at the same target is before the one with this *number*."""
    before = F.get(F.col("arrivals"), F.when(number > 0, number - 1).otherwise(F.lit(0)))
    return (number == 0) | (before["target"] != arrival["target"])


def _is_proven_expiry() -> Callable[[Column], Column]:
    """Return whether the source's clock had reached the end of the life of a message when a task withheld it."""
    expires = F.col("expires")
    return lambda each: F.coalesce((expires > F.col("generation")) & (expires <= each["source_time"]), F.lit(False))


def _note(is_over: Column) -> Column:
    """Return what a reader must know besides the verdict, or null."""
    ended = F.concat(F.lit("its life ended at "), _text_of("expires"))
    idle = F.concat(
        F.coalesce(F.concat(F.lit(" from "), _text_of("worked_before")), F.lit("")),
        F.coalesce(F.concat(F.lit(" until "), _text_of("worked_after")), F.lit(" until the end of the window")),
    )
    doubt = F.when(
        F.size("unproven") > 0,
        F.lit("; the task withheld it as expired, which the times of the source do not confirm"),
    ).otherwise(F.lit(""))
    path = F.coalesce(
        F.concat(F.lit("the journals and taps of "), F.col("named_site"), F.lit(" have no record of it")),
        F.lit("that names no other site"),
    )
    return (
        F.when(
            (F.col("verdict") == "missing") & F.col("is_refuted"),
            F.concat(F.lit("the task stopped it because of its path, but "), path),
        )
        .when(
            (F.col("verdict") == "stopped") & F.col("is_own_word"),
            F.concat(F.lit("that it was at "), F.col("named_site"), F.lit(" is its own word")),
        )
        .when(F.col("verdict") == "expired-unsent", F.concat(ended, F.lit("; the task finished no message"), idle))
        .when((F.col("verdict") == "missing") & (F.size("unproven") > 0) & ~is_over, F.substring(doubt, 3, 1000))
        .when(
            (F.col("verdict") == "missing") & is_over,
            F.concat(ended, F.lit(": the source may have expired it"), doubt),
        )
    )


def _text_of(name: str) -> Column:
    return F.date_format(F.timestamp_micros(name), "yyyy-MM-dd HH:mm:ss")


def last_known() -> Column:
    """
    Return when a message was enqueued or last received, whichever was later, in microseconds since 1970.

    The clock of its task may be behind, but only so far: some sources have the times that their producers set.
    """
    seen = F.coalesce("last_entry", "first_record")
    enqueued = F.least(F.coalesce("generation", seen), seen + _CLOCK_BEHIND)
    return F.greatest(enqueued, seen)


def _altered() -> Column:
    """
    Return what changed: body, property, or content if the evidence does not show which; message_id or order_key if only
    they did; null for nothing.
    """
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
        .when(_differs("message_id", "id_received"), F.lit("message_id"))
        .when(_differs("order_key", "key_received"), F.lit("order_key"))
        .when(_is_mixed(), F.lit("content"))
    )


def _is_mixed() -> Column:
    """Return whether a tap saw the content of one part, or of another target, with the id of another one."""
    sent, seen = (F.transform(name, lambda place: place["identity"]) for name in ("due_at_tap", "copies_watched"))
    # An outcome without its `received` record may lack its id.
    has_ids = F.forall("names_sent", lambda each: each["message_id"].isNotNull())
    is_known = has_ids & (F.size(sent) > 0) & F.forall(sent, lambda each: each.isNotNull())
    unlike = F.filter(F.array_except(seen, sent), lambda each: each.isNotNull())
    return is_known & (F.size(unlike) > 0)


def _differs(name: str, received: str) -> Column:
    """Return whether a tap at the target saw another *name* than the task sent."""
    # An outcome has a name only where it is another one than that of the message as it was received.
    sent = F.transform("names_sent", lambda each: F.coalesce(each[name], F.col(received), F.lit("")))
    known = F.when(F.size(sent) > 0, sent).otherwise(F.array(F.coalesce(F.col(received), F.lit(""))))
    seen = F.transform("names_seen", lambda each: F.coalesce(each[name], F.lit("")))
    # Without the `received` record, an outcome without a name says nothing.
    return (F.col("received") > 0) & (F.size(F.array_except(seen, known)) > 0)
