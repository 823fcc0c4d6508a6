"""The judgement of a window: its steps in order, from compacted tables to one verdict per message."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from jobs.reconcile.compact.tables import Tables
from jobs.reconcile.compact.tap_matching import match_taps
from jobs.reconcile.journal.columns import needs_match
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.judge import selection
from jobs.reconcile.judge.buckets import Extremes, clock_problems, compare_buckets, extremes
from jobs.reconcile.judge.cache import Cache
from jobs.reconcile.judge.clocks import expiry_problems, mark_source_time
from jobs.reconcile.judge.gaps import unreliable_hours
from jobs.reconcile.judge.judge import Evidence, judge
from jobs.reconcile.judge.messages import KEYED, with_key
from jobs.reconcile.judge.ordering import mark_out_of_order, out_of_order
from jobs.reconcile.judge.paths import own_word_notes
from jobs.reconcile.judge.tap_periods import Periods, silent_taps
from jobs.reconcile.judge.tasks import TaskActivity, shared_targets, tapped_sides
from jobs.reconcile.settings import Settings

_TAPPED = "task string, role string, target string"


class Hours(NamedTuple):
    """The hours of a window, and the compacted hours before it."""

    window: Sequence[str]
    before: Sequence[str]
    changed: Sequence[str]
    """Hours before the window that got files after a run had counted them."""


class Tasks(NamedTuple):
    """The activity of the tasks of a window, their tap periods, and the source entities of earlier runs."""

    active: Mapping[str, TaskActivity]
    periods: Periods
    earlier: Sequence[TaskActivity]


class Judged(NamedTuple):
    """
    The judged messages of a window with their records, None without such messages, and the counts of clean buckets.

    Shape:   KEYED records, JUDGED verdicts, `clean` as clean_counts() returns it.
    """

    records: DataFrame | None
    verdicts: DataFrame | None
    clean: list[dict[str, Any]]
    buckets: int | None
    problems: list[Problem]
    notes: list[str]


def judge_window(
    tables: Tables,
    hours: Hours,
    tasks: Tasks,
    opened: DataFrame | None,
    problems: Sequence[Problem],
    *,
    start: datetime,
    end: datetime,
    settings: Settings,
    cache: Cache,
    progress: Callable[[str], None],
) -> Judged:
    """
    Return the verdicts of the messages of a window, counted from *start* to *end*.

    Shape:   *opened* are the open messages of the previous run as read_open() returns them, *problems* those of the
             evidence, which make messages undecided.
    """
    progress("comparing buckets")
    tapped = tables.spark.createDataFrame(tapped_sides(tasks.active), _TAPPED)
    digests = tables.load("digests", hours.window)
    buckets = None if digests is None else cache.keep(compare_buckets(digests, tapped, start, settings))
    least_lags, first_enqueued = Extremes({}, None) if buckets is None else extremes(buckets)
    progress("judging the messages of buckets that differ")
    earlier = selection.earlier_hours(hours.before, first_enqueued, start, settings)
    records, loose = tables.load("records", hours.window), tables.load("loose", hours.window)
    shared = shared_targets(tasks.active)
    sessions = tables.load("sessions", [*earlier, *hours.window])
    arrivals = out_of_order(
        tables.load("behind", hours.window), sessions, records, hours.window, shared=shared, cache=cache
    )
    foreign = selection.foreign_copies(tasks.active.values(), [*tasks.active.values(), *tasks.earlier])
    selected = selection.select_window(
        selection.Tables(buckets, records, loose, arrivals),
        tapped,
        foreign,
        start=start,
        settings=settings,
        cache=cache,
    )
    changed = None if opened is None else tables.load("records", hours.changed)
    opened = selection.open_records(opened, changed)
    found_problems = clock_problems(least_lags, settings)
    keyed, verdicts, notes = None, None, list[str]()
    parts = [*selected.records, *([] if opened is None else [opened])]
    if parts:
        found = reduce(DataFrame.unionByName, parts)
        if earlier:
            of_earlier = selection.earlier_records(found, tables.load("records", earlier), start, settings, cache)
            found = found if of_earlier is None else found.unionByName(of_earlier)
        if shared:
            found = selection.without_other_tasks(found, tables.load("records", [*earlier, *hours.window]), shared)
        if any(not frame.where(needs_match()).isEmpty() for frame in (loose, opened) if frame is not None):
            found = match_taps(found)
        watched = selection.mark_watched(with_key(found), tasks.active, tasks.periods)
        timed = mark_source_time(watched, records)
        keyed = cache.keep(mark_out_of_order(timed, arrivals).select(*KEYED))
        found_problems += silent_taps(tasks.periods, keyed, end, settings)
        unreliable = unreliable_hours([*problems, *found_problems])
        coverage = tables.load("coverage", hours.before)
        evidence = Evidence(records, tables.load("records", [*earlier, *hours.window]), coverage, tasks.active)
        verdicts = cache.keep(
            judge(keyed, loose, evidence, tasks.periods, unreliable=unreliable, end=end, settings=settings, cache=cache)
        )
        found_problems += expiry_problems(verdicts)
        notes = own_word_notes(verdicts)
    count = None if buckets is None else buckets.count()
    return Judged(keyed, verdicts, selection.clean_counts(selected), count, found_problems, notes)
