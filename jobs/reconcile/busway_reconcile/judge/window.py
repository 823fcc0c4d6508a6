"""The judgement of a window: its steps in order, from compacted records to one verdict per message."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.coverage import total
from busway_reconcile.compact.records import CompactedRecords
from busway_reconcile.compact.tap_matching import SUBSCRIPTIONS_DIFFER, match_at_source, match_at_target
from busway_reconcile.journal.columns import micros, needs_match
from busway_reconcile.journal.frames import frame_of
from busway_reconcile.journal.hours import hour_of, moment_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge import selection
from busway_reconcile.judge.cache import Keep, cut
from busway_reconcile.judge.clocks import expiry_problems, mark_source_time
from busway_reconcile.judge.dead_letters import may_be_given_up
from busway_reconcile.judge.gaps import unreliable_hours
from busway_reconcile.judge.judge import Tasks, judge
from busway_reconcile.judge.messages import KEYED, complete, number_repeats, with_key
from busway_reconcile.judge.ordering import (
    arrivals_of,
    doubtful,
    first_position,
    mark_out_of_order,
    may_be_later,
    out_of_order,
)
from busway_reconcile.judge.pairs import Tapped, hashed_numbers, pair, streams
from busway_reconcile.judge.paths import own_word_notes
from busway_reconcile.judge.settled import Count, clock_problems, counts, first_enqueued
from busway_reconcile.judge.tap_periods import silent_taps, with_proven_ends
from busway_reconcile.judge.tasks import shared_targets, tapped_sides
from busway_reconcile.settings import Settings
from busway_reconcile.summary import add_counts


class Judged(NamedTuple):
    """
    The judged messages of a window with their records, None without such messages, and the counts of all others.

    Shape:   KEYED records, JUDGED verdicts.
    """

    records: DataFrame | None
    verdicts: DataFrame | None
    counts: list[Count]
    problems: list[Problem]
    notes: list[str]


class _Paired(NamedTuple):
    """The pairs of a window, and the numbers of messages to judge one by one."""

    pairs: DataFrame
    numbers: selection.Numbers


class _Kept(NamedTuple):
    """
    The number of selected records, notes about duplicate ones, and the sides at which records of taps lack a message.

    Units:   *first_seen* is when the first message was enqueued that a tap at the source newly saw without the task, in
             microseconds since 1970.
    """

    number: int
    notes: list[str]
    unmatched: set[str]
    first_seen: int | None


def judge_window(
    records: CompactedRecords,
    hours: selection.Hours,
    tasks: Tasks,
    opened: DataFrame | None,
    problems: Sequence[Problem],
    *,
    last_opened: int | None,
    start: datetime,
    end: datetime,
    settings: Settings,
    keep: Keep,
    progress: Callable[[str], None],
) -> Judged:
    """
    Return the verdicts of the messages of a window, counted from *start* to *end*.

    Shape:   *opened* are the open messages of the previous run as read_open() returns them, *last_opened* is their
             last_enqueued(), *problems* those of the evidence, which make messages undecided.
    """
    progress("pairing the records of each message")
    of_window = records.of(hours.window)
    of_streams = streams(records.spark, _streams(tasks.coverage))
    tapped = _tapped(tasks, of_streams)
    loose = _loose(of_window, tasks.coverage)
    parts: list[DataFrame] = []
    paired = None
    since = selection.settled_since(hours, tasks.coverage_before, last_opened, start, settings)
    if of_window is not None:
        handing = [name for name, one in tasks.active.items() if one.hands_over]
        paired = _pair(of_window, loose, of_streams, tapped, since=since, handing=handing, settings=settings, keep=keep)
        parts.append(selection.numbered_records(of_window, paired.numbers))
    if loose is not None:
        foreign = selection.foreign_copies(tasks.active.values(), [*tasks.active.values(), *tasks.earlier])
        parts.append(selection.unnumbered_records(loose, foreign))
    changed = None if opened is None else records.of(hours.changed)
    opened = selection.open_records(opened, changed)
    parts += [] if opened is None else [opened]
    found, counted = _select(parts, paired, of_streams)
    found_problems = clock_problems(counted, settings)
    if found is None:
        return Judged(None, None, counted, found_problems, [])
    progress("judging the messages that are not settled")
    kept = _kept(found)
    earlier = selection.earlier_hours(hours.before, [first_enqueued(counted), kept.first_seen], start, settings)
    before = records.of(earlier)
    shared = shared_targets(tasks.active)
    found = _match_at_source(found, before) if "source" in kept.unmatched else found
    of_earlier = selection.earlier_records(found, before, start, settings)
    if of_earlier is not None:
        found = cut(number_repeats(found.drop("nth").unionByName(of_earlier)))
    both = [*earlier, *hours.window]
    found = selection.without_other_tasks(found, records.of(both), shared) if shared else found
    once = found.where("nth = 1").drop("nth")
    once = match_at_target(once) if "target" in kept.unmatched else once
    watched = cut(selection.mark_watched(with_key(complete(once)), tasks.active, tasks.periods))
    behind = None
    if paired is not None:
        # This looks for the sessions of these records among all pairs.
        pair_again = partial(pair, tapped=tapped, since=since, settings=settings)
        behind = _behind(watched, paired, before, pair_again, number=kept.number)
    keyed = cut(mark_out_of_order(mark_source_time(watched, records), behind, shared).select(*KEYED))
    found_problems += silent_taps(tasks.periods, keyed, end, settings)
    unreliable = unreliable_hours([*problems, *found_problems])
    verdicts = judge(
        keyed,
        loose,
        records.of(both),
        tasks._replace(periods=with_proven_ends(tasks.periods, keyed, start)),
        partial(_letters_before, records, tasks.coverage_before),
        unreliable=unreliable,
        end=end,
        settings=settings,
    )
    return Judged(
        keyed,
        verdicts,
        counted,
        [*found_problems, *expiry_problems(verdicts)],
        [*kept.notes, *own_word_notes(verdicts)],
    )


def _letters_before(
    records: CompactedRecords, coverage_before: Sequence[Mapping[str, Any]], since: int
) -> DataFrame | None:
    """Return the records of the hours before the window, from the time *since* on, that have dead letters, or None."""
    first = hour_of(moment_of(since) - Settings.clock_tolerance)
    return records.of({row["landed"] for row in coverage_before if row["given_up"] and row["landed"] >= first})


def _select(
    parts: Sequence[DataFrame], paired: _Paired | None, of_streams: DataFrame
) -> tuple[DataFrame | None, list[Count]]:
    """Return the records of *parts* with `nth`, None without parts, and the counts of the pairs."""
    # Spark plans the one while it computes the other.
    with ThreadPoolExecutor(1) as pool:
        counting = None if paired is None else pool.submit(counts, paired.pairs, paired.numbers.rows, of_streams)
        found = cut(number_repeats(reduce(DataFrame.unionByName, parts))) if parts else None
        return found, [] if counting is None else counting.result()


def _pair(
    records: DataFrame,
    loose: DataFrame | None,
    of_streams: DataFrame,
    tapped: Tapped | None,
    *,
    since: int,
    handing: Sequence[str],
    settings: Settings,
    keep: Keep,
) -> _Paired:
    pairs = keep(pair(records, tapped, since, settings))
    numbers = pairs.where("not is_settled").select("stream", "src_seq").unionByName(doubtful(pairs))
    if loose is not None:
        without_part = loose.where("src_seq is not null and src_part is null")
        numbers = numbers.unionByName(hashed_numbers(without_part, of_streams))
        if handing:
            # Whether the host sent a message is not on record: a dead letter of it says that it did not.
            numbers = numbers.unionByName(may_be_given_up(records, loose, handing))
    return _Paired(pairs, selection.numbers_of(keep(numbers.distinct())))


def _behind(
    records: DataFrame,
    paired: _Paired,
    before: DataFrame | None,
    pair_again: Callable[[DataFrame], DataFrame],
    *,
    number: int,
) -> DataFrame:
    """
    Return the arrivals out of order in the sessions of *records*; settled messages and earlier ones are evidence.

    Units:   *number* is the number of *records*, about.
    Shape:   *before* are the records of the hours before the window; ARRIVAL out.
    """
    of_records = arrivals_of(records.where("known = 'window'"))
    sessions = of_records.groupBy("session").agg(*first_position("src_seq", F.col("enqueued")))
    others = paired.pairs.where("is_settled").join(paired.numbers.rows, ["stream", "src_seq"], "left_anti")
    earlier = None if before is None else selection.records_of_sessions(before, records, number)
    others = others if earlier is None else others.unionByName(pair_again(earlier))
    of_sessions = others.join(selection.few(sessions, number), "session")
    later = of_sessions.where(may_be_later("src_seq", F.col("enqueued"))).select(*of_records.columns)
    return cut(out_of_order(of_records.unionByName(later)))


def _streams(coverage: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, int | None]]:
    found = {(row["task"], row["src_site"], row["src_entity"], row["src_part"]) for row in coverage}
    return sorted(found, key=str)


def _tapped(tasks: Tasks, of_streams: DataFrame) -> Tapped | None:
    sides = tapped_sides(tasks.active)
    if not sides and not any(row["observer"] == "tap" for row in tasks.coverage):
        return None
    spark = of_streams.sparkSession
    copies = frame_of(spark, [(task, target) for task, _, target in sides if target], "task string, seen_at string")
    entries = frame_of(spark, [(task,) for task, role, _ in sides if role == "source"], "task string")
    return Tapped(
        of_streams.join(copies, "task").select("stream", F.xxhash64("seen_at").alias("target")).distinct(),
        of_streams.join(entries, "task").select("stream").distinct(),
    )


def _loose(records: DataFrame | None, coverage: Sequence[dict[str, Any]]) -> DataFrame | None:
    """Return the records that are no part of a pair, or that say that a queue dead-lettered a message; None if none."""
    if records is None or not total(coverage, "unnumbered") + total(coverage, "given_up"):
        return None
    return records.where(F.col("src_seq").isNull() | needs_match() | F.col("given_up_by").isNotNull())


def _kept(found: DataFrame) -> _Kept:
    repeated = F.when((F.col("nth") > 1) & (F.col("known") == "window"), F.col("landed"))
    unmatched = F.when(needs_match(), F.col("role"))
    is_new = (unmatched == "source") & (F.col("known") == "window")
    rows = (
        found.groupBy(repeated.alias("hour"), unmatched.alias("unmatched"))
        .agg(F.count("*").alias("n"), F.min(F.when(is_new, micros("enqueued_time"))).alias("first_seen"))
        .collect()
    )
    repeats = add_counts({row["hour"]: row["n"]} for row in rows if row["hour"] is not None)
    notes = [f"{hour}: {count} records exist twice and are counted once" for hour, count in sorted(repeats.items())]
    first = min((row["first_seen"] for row in rows if row["first_seen"] is not None), default=None)
    return _Kept(
        sum(row["n"] for row in rows),
        notes,
        {row["unmatched"] for row in rows if row["unmatched"] is not None},
        # Another message that the tap saw may have been enqueued a little before, and explain what the task received.
        None if first is None else first - SUBSCRIPTIONS_DIFFER,
    )


def _match_at_source(found: DataFrame, before: DataFrame | None) -> DataFrame:
    """Return *found*, with the numbers of messages that the task received in it or *before* in the records of taps."""
    if before is None:
        return cut(match_at_source(found))
    entries = selection.earlier_entries(found, before).withColumn("nth", F.lit(1))
    return cut(match_at_source(found.unionByName(entries)).where("known <> 'entry'"))
