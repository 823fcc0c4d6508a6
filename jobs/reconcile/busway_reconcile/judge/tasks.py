"""
The tasks of a window: their sources, targets and taps, when they were active, their renamings, and their gaps.

Renamed tasks are counted as one task, under the new name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.hours import Hour
from busway_reconcile.compact.records import CompactedRecords, current_name
from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import NUMBER
from busway_reconcile.journal.frames import frame_of
from busway_reconcile.journal.hours import hours_between, moment_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.gaps import hours_around, is_gap, journal_gaps, missing_sides, without_held_batches
from busway_reconcile.settings import Run
from busway_reconcile.summary import Summary


@dataclass
class TaskActivity:
    """The activity of one task in a window, by its own records and by its taps."""

    task: str
    sources: set[tuple[str, str]] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    source_taps: set[str] = field(default_factory=set)
    target_taps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    peeks: set[str] = field(default_factory=set)
    hands_over: bool = False
    """Whether it asked the host to send, through an output binding."""
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    first_sent: dict[str, datetime] = field(default_factory=dict)
    last_sent: dict[str, datetime] = field(default_factory=dict)
    first_seen: dict[str, datetime] = field(default_factory=dict)
    last_seen: dict[str, datetime] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """The evidence that messages entered and arrived: the replicator's own journal, or taps as well."""
        return self._observers + ("; the target's answers to the host are not on record" if self.hands_over else "")

    @property
    def _observers(self) -> str:
        at_source, at_target = bool(self.source_taps), bool(self.target_taps)
        if at_source and at_target:
            return "taps at both sides"
        if at_target:
            return "replicator's own, and a tap at the target"
        if at_source:
            return "replicator's own, and a tap at the source"
        return "replicator's own"

    @property
    def taps(self) -> list[str]:
        """The names of all taps, in order."""
        at_targets = (tap for taps in self.target_taps.values() for tap in taps)
        return sorted({*self.source_taps, *self.peeks, *at_targets})


def activity_by_task(coverage: Iterable[Mapping[str, Any]]) -> dict[str, TaskActivity]:
    """
    Return the activity of each task from the rows of the table coverage.

    Units:   `first` and `last` are microseconds since 1970: Spark returns timestamps in the process's own time zone.
    """
    tasks: dict[str, TaskActivity] = {}
    for row in coverage:
        one = tasks.setdefault(row["task"], TaskActivity(row["task"]))
        first, last = moment_of(row["first"]), moment_of(row["last"])
        one.sources.add((row["src_site"], row["src_entity"]))
        if row["observer"] == "task":
            one.first = first if one.first is None else min(one.first, first)
            one.last = last if one.last is None else max(one.last, last)
            # A message that an instance only remembers to have sent has no target on record.
            if row["outcome"] == "sent" and row["target"] is not None:
                one.targets.add(row["target"])
                one.hands_over |= bool(row["handed_over"])
                one.sent[row["target"]] += row["n"]
                one.first_sent[row["target"]] = min(first, one.first_sent.get(row["target"], first))
                one.last_sent[row["target"]] = max(last, one.last_sent.get(row["target"], last))
        elif row["peek"]:
            one.peeks.add(row["tap"] or "")
        elif row["role"] == "source":
            one.source_taps.add(row["tap"] or "")
        elif row["target"] is not None:  # anybody may write to a journal
            one.target_taps[row["target"]].add(row["tap"] or "")
            one.first_seen[row["target"]] = min(first, one.first_seen.get(row["target"], first))
            one.last_seen[row["target"]] = max(last, one.last_seen.get(row["target"], last))
    return tasks


def tapped_sides(tasks: Mapping[str, TaskActivity]) -> list[tuple[str, str, str | None]]:
    """Return task, role and target (None for a source) of every side with a draining tap."""
    found: list[tuple[str, str, str | None]] = []
    for one in tasks.values():
        found += [(one.task, "target", target) for target in sorted(one.target_taps)]
        if one.source_taps:
            found.append((one.task, "source", None))
    return found


def shared_targets(tasks: Mapping[str, TaskActivity]) -> list[tuple[str, str, str]]:
    """
    Return task, target and other task where a tap sees the copies of two tasks of one site at the same target.

    The stamps of a copy have its site and number, but not its task.
    """
    return [
        (one.task, target, other.task)
        for one in tasks.values()
        for other in tasks.values()
        if other is not one and {site for site, _ in one.sources} & {site for site, _ in other.sources}
        for target in sorted(other.targets)
        if target in one.target_taps or (one.peeks and target in one.targets)
    ]


def sources_as_targets(tasks: Iterable[TaskActivity]) -> set[str]:
    """Return the source entities of *tasks*, written as targets are: applications may send there themselves."""
    return {f"{site}/{entity.split('/')[0]}".lower() for one in tasks for site, entity in one.sources}


class TaskHistory(NamedTuple):
    """The rows of coverage and the activity of tasks, both under current names, with problems and notes."""

    coverage: list[dict[str, Any]]
    tasks: dict[str, TaskActivity]
    renamed: dict[str, str]
    problems: list[Problem]
    notes: list[str]


def task_history(
    spark: SparkSession, run: Run, hours: Sequence[str], made: Mapping[str, Hour], previous: Summary | None
) -> TaskHistory:
    """Return the tasks of *hours*; *made* are the compacted hours, *previous* is the summary of the previous run."""
    tasks_before = previous.tasks if previous else []
    coverage = [{"landed": hour, **row} for hour in hours for row in made[hour].coverage]
    renamed = still_renamed(previous.renamed if previous else {}, {row["task"] for row in coverage})
    before = {summary.task: {"sources": summary.sources, "last": summary.last} for summary in tasks_before}
    found = possible_renames(activity_by_task(coverage), before)
    if found:
        known = hours_between(run.window.start - run.settings.open_for, run.window.start)
        records = CompactedRecords(spark, run.compacted, renamed).of([*known, *hours])
        found = without_second_readers(found, records)
    renamed |= found
    problems = [
        Problem("renamed-task", old, f"its source is now read by the task {new}; both are counted as one task")
        for old, new in sorted(found.items())
    ]
    problems += journal_gaps(coverage, renamed)
    coverage = [{**row, "task": current_name(row["task"], renamed)} for row in coverage if not is_gap(row)]
    missing = missing_sides(coverage)
    if missing:
        around = [hour for hour in hours_around(missing) if hour <= hours[-1]]
        missing = without_held_batches(missing, CompactedRecords(spark, run.compacted, renamed).of(around))
    tasks = activity_by_task(coverage)
    notes = [
        f"{summary.task}: no record in this window; the last one was at {summary.last}"
        for summary in tasks_before
        if summary.last and current_name(summary.task, renamed) not in tasks
    ]
    return TaskHistory(coverage, tasks, renamed, [*problems, *missing], notes)


def still_renamed(renamed: Mapping[str, str], tasks: Iterable[str]) -> dict[str, str]:
    """Return the entries of *renamed*, old to new, whose old name is not in use again by one of *tasks*."""
    return {old: new for old, new in renamed.items() if old not in set(tasks)}


def possible_renames(tasks: Mapping[str, TaskActivity], before: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """
    Return tasks that may have a new name, as old name to new.

    A task may be the successor of another if the other ended before it started on the same source entity, and it did
    not exist in the previous run.
    Shape:   *before* has for each task of the previous run `sources` (pairs) and `last` (ISO 8601).
    """
    ended: dict[str, tuple[set[tuple[str, str]], datetime]] = {}
    for name, known in before.items():
        if known["last"] is not None:
            ended[name] = {(site, entity) for site, entity in known["sources"]}, datetime.fromisoformat(known["last"])
    for name, one in tasks.items():
        if one.last is not None:
            ended[name] = one.sources, one.last
    found = {}
    for old, (sources, last) in sorted(ended.items()):
        successors = [
            new
            for new, one in sorted(tasks.items())
            if new != old and new not in before and one.first is not None and one.first > last and one.sources & sources
            if schema.REPLAY not in old + new
        ]
        if len(successors) == 1:
            found[old] = successors[0]
    return found


def without_second_readers(renames: Mapping[str, str], records: DataFrame | None) -> dict[str, str]:
    """
    Return the *renames* whose new task continues where the old one ended.

    A task that receives mostly messages that the old one had finished is not its successor: it reads the same hub from
    the beginning, for itself.
    """
    if records is None or not renames:
        return dict(renames)
    of_task = [(old, task, task == new) for old, new in renames.items() for task in (old, new)]
    named = frame_of(records.sparkSession, of_task, "old string, task string, is_new boolean")
    marked = records.where("observer = 'task' and src_seq is not null").join(F.broadcast(named), "task")
    finished = ~F.col("is_new") & F.col("outcome").isin("sent", *schema.WITHHELD)
    received = F.col("outcome") == "received"
    # The numbers of an entity that was created again are those of other messages.
    is_same = F.coalesce(F.col("taken") <= F.col("before"), F.col("taken").isNotNull())
    counts = (
        marked.groupBy("old", *NUMBER[1:])
        .agg(
            F.max(finished).alias("finished"),
            *(
                F.max(F.when(received & (F.col("is_new") == is_new), F.col("enqueued_time"))).alias(name)
                for name, is_new in (("before", False), ("taken", True))
            ),
        )
        .groupBy("old")
        .agg(F.count("taken").alias("taken"), F.count_if(F.col("finished") & is_same).alias("again"))
    )
    again = {row["old"] for row in counts.where("2 * again > taken").collect()}
    return {old: new for old, new in renames.items() if old not in again}
