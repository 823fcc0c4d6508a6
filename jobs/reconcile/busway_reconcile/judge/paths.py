"""
The paths of stopped messages, held against the records of the sites that they name.

A message carries its path itself. If the run has the journal of a task that reads at the named site and sends to the
entity that the message came from, or a tap there, then that has a record of the message, or the path is forged. Records
of other tasks at that site prove nothing: their messages go elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.frames import frame_of, join_null_safe
from busway_reconcile.journal.hours import micros_of, start_of
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.settings import LONGEST_HOLD

_COVERED = "named_site string, place string, observer string, since bigint"

_LONGEST_UNREAD = LONGEST_HOLD - timedelta(hours=1)
"""How long after the start of a window a message may have its first record in an hour that is not read."""


def mark_paths(
    messages: DataFrame,
    records: DataFrame | None,
    tasks: Mapping[str, TaskActivity],
    coverage: Sequence[Mapping[str, Any]],
    coverage_before: Iterable[Mapping[str, Any]],
) -> DataFrame:
    """
    Return *messages* with `named_site`, `is_refuted` and `is_own_word`, about the path of a stopped message.

    Shape:   one row per message in; *records* are those of the window and of at least the hour before it, *coverage*
             are the rows of COVERAGE of the window, *coverage_before* are those of hours before it.
    """
    stopped = messages.where("size(looped_parts) > 0")
    if records is None or stopped.isEmpty():
        return messages.withColumns(
            {
                "named_site": F.lit(None).cast("string"),
                "is_refuted": F.lit(False),
                "is_own_word": F.lit(False),
            }
        )
    source = F.lower(F.concat_ws("/", "src_site", F.substring_index("src_entity", "/", 1)))
    before = F.slice("hops", 1, F.size("hops") - 1)
    claims = (
        stopped.where("size(hops) > 1")
        .select(*schema.KEY, "hops", "message_id", "body_in", source.alias("source"), F.posexplode(before))
        .withColumnRenamed("col", "named_site")
        # From the last site it came to this source; from an earlier one, to an unknown entity of the next site.
        .withColumn("next", F.element_at("hops", F.col("pos") + 2))
        .withColumn("sent_to", F.when(F.col("pos") == F.size("hops") - 2, F.col("source")).otherwise(_any_of("next")))
        .withColumn("place", F.explode(F.array("sent_to", _tap_of("task"))))
        .drop("hops", "source", "pos", "next", "sent_to")
    )
    claim = (*schema.KEY, "named_site")
    covered = frame_of(
        messages.sparkSession, _covered(tasks.values(), _running_since(coverage, coverage_before)), _COVERED
    )
    observed = claims.join(F.broadcast(covered), ["named_site", "place"])
    journals = observed.groupBy(*claim).agg(F.min("since").alias("since"))
    id_or_none = F.explode(F.array_distinct(F.array(F.coalesce("message_id", F.lit("")), F.lit(""))))
    wanted = observed.withColumn("id", id_or_none)
    record = ["named_site", "observer", "id", "body_in"]
    # Few messages are stopped, and nearly all records are of others.
    seen = _observed(records).join(F.broadcast(wanted.select(*record).distinct()), record, "left_semi")
    found = wanted.join(seen, record, "left_semi").select(*claim).distinct()
    checked = join_null_safe(claims.select(*claim).distinct(), journals, claim, "left")
    checked = join_null_safe(checked, found.withColumn("is_found", F.lit(True)), claim, "left")
    is_unknown = F.col("is_found").isNull()
    has_journal = F.coalesce(F.col("since") <= F.col("generation"), F.lit(False))
    by_message = checked.groupBy(*schema.KEY).agg(
        F.max(F.when(is_unknown & has_journal, F.col("named_site"))).alias("refuting"),
        F.max(F.when(is_unknown & ~has_journal, F.col("named_site"))).alias("unknown"),
        F.lit(True).alias("has_path"),
    )
    marked = join_null_safe(messages, by_message, schema.KEY, "left")
    # This run may no longer read the hours that the records of the site would be in.
    is_refuted = F.col("refuting").isNotNull() | (F.col("was_refuted") & F.col("unknown").isNotNull())
    return marked.withColumns(
        {
            "named_site": F.coalesce("refuting", "unknown"),
            # Without another site on its path, nothing would have stopped it.
            "is_refuted": (F.size("looped_parts") > 0) & (is_refuted | F.col("has_path").isNull()),
            "is_own_word": ~is_refuted & F.col("unknown").isNotNull(),
        }
    ).drop("refuting", "unknown", "has_path")


def own_word_notes(verdicts: DataFrame) -> list[str]:
    """Return a note for each task and site with stopped messages whose path nothing in the run confirms."""
    rows = verdicts.where("verdict = 'stopped' and is_own_word").groupBy("task", "named_site").count().collect()
    return [
        f"{row['task']}: {row['count']} messages were stopped because they had been at {row['named_site']}; that is "
        "the word of the messages: the run has no journal and no tap of that site"
        for row in sorted(rows)
    ]


def _any_of(site: str) -> Column:
    return F.concat(F.lit("any entity of "), F.col(site))


def _tap_of(task: str) -> Column:
    return F.concat(F.lit("tap of "), F.col(task))


def _running_since(
    coverage: Sequence[Mapping[str, Any]], before: Iterable[Mapping[str, Any]]
) -> Callable[[str, datetime], datetime]:
    """
    Return since when a task, must have records, by its name and the time of its first one in the window.

    One that has records before the window was only idle until then. A message that it held may have been received in
    an hour that this run does not read, unless the window had begun an hour before.
    """
    known = {row["task"] for row in before}
    start = min((start_of(row["landed"]) for row in coverage), default=None)
    return lambda task, first: first if start is None or task not in known else min(first, start + _LONGEST_UNREAD)


def _covered(
    tasks: Iterable[TaskActivity], since_when: Callable[[str, datetime], datetime]
) -> list[tuple[str, str, str, int]]:
    """Return the sites with the places to which tasks there send, and with the tasks that have a tap there."""
    found = []
    for one in tasks:
        for target in sorted(one.targets):
            since = micros_of(since_when(one.task, one.first or one.first_sent[target]))
            for site in sorted({site for site, _ in one.sources}):
                any_entity = f"any entity of {target.partition('/')[0]}"
                found += [(site, place, one.task, since) for place in (target.lower(), any_entity)]
        for target in sorted(one.target_taps):
            if target in one.first_seen:
                tap = f"tap of {one.task}"
                found.append((target.partition("/")[0], tap, tap, micros_of(one.first_seen[target])))
    return found


def _observed(records: DataFrame) -> DataFrame:
    """Return the ids and bodies of the messages that each task, and each tap at a target, observed at each site."""
    at_source = F.col("role") == "source"
    at_target = (F.col("observer") == "tap") & (F.col("role") == "target")
    edited = (F.col("outcome") == "sent") & F.col("edited").isNotNull()
    site = F.when(at_target, F.substring_index("target", "/", 1)).otherwise(F.col("src_site"))
    return (
        records.where((at_source | at_target | edited) & F.col("body_digest").isNotNull())
        .select(
            site.alias("named_site"),
            F.when(at_target, _tap_of("task")).otherwise(F.col("task")).alias("observer"),
            F.coalesce("message_id", F.lit("")).alias("id"),
            F.col("body_digest").alias("body_in"),
        )
        .distinct()
    )
