"""
A run: the journals of a window and what the run before left open, in; verdicts, findings and a summary, out.

A run is a function of its frozen inputs, of the open items of the run before, and of earlier hours: to repeat it gives
the same results. It writes into a folder of its own, all at once; a folder without a summary is no run.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.reconcile import compaction, results
from jobs.reconcile.evidence import TaskEvidence, gathered, missing_sides, renamed, still_renamed, watched
from jobs.reconcile.gathering import KEPT, Gathering
from jobs.reconcile.index import class_milliseconds, micros
from jobs.reconcile.inputs import Problem, hour_of, hours_between, start_of
from jobs.reconcile.judgement import judge
from jobs.reconcile.lost import is_of_gap, lost_records
from jobs.reconcile.run import Run, latest_name
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.summary import Summary, TaskSummary, added, concluded, percentiles
from jobs.reconcile.suspects import HELD_HOURS, taken_again, told_in_other_hours
from jobs.reconcile.verdicts import VERDICTS
from jobs.reconcile.watches import all_watches

LagClasses = dict[int, int]


@dataclass(frozen=True)
class Result:
    """What a run found and where its tables are."""

    summary: Summary
    tables: dict[str, str]

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not decide."""
        return self.summary.exit_code


def reconcile(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    window: Window,
    now: datetime,
    settings: Settings | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """
    Say of every message that the *journal* tells of in *window* what became of it, and write that below *out*.

    Shape:   *journal* is a folder with task=…/date=…/hour=…/role=… below it, as Spark reads it (path or abfss address);
             *now* decides which hours are over. Tables: `Result.tables`, one folder of Parquet files each.
    Raises:  CompactionFailed where what is kept is not what was read.
    """
    run = Run(spark, journal, out, window, now, settings=settings or Settings())
    hours = run.closed_hours()
    progress(f"compacting what is new of {len(hours)} hours")
    made = run.inputs(hours)
    previous = run.previous()
    coverage, tasks = _evidence(run, hours, previous)
    end = _end(run, hours)
    looked = all_watches(run, tasks, previous, end)
    progress("comparing buckets")
    earlier = [hour for hour in made if hour < hour_of(window.start)]
    gathering = Gathering(run, hours, earlier, tasks, watches=looked, previous=previous)
    verdicts = None
    try:
        _name_clocks(run, gathering.least_lags)
        progress("looking at the messages of buckets that differ")
        rows = gathering.rows()
        if rows is not None:
            verdicts = judge(run, hours, looked, rows, end).persist(KEPT)
        figures = _Figures(gathering.counts(), verdicts)
        lags = _lags(run, hours, tasks)
        summaries = [
            _task_summary(tasks.get(name, TaskEvidence(name)), figures, lags.get(name, {}), coverage)
            for name in sorted({*tasks, *figures.verdicts})
        ]
        inputs = {"files": sum(len(made[hour].files) for hour in hours), "hours": len(hours), **figures.looked_at}
        if gathering.buckets is not None:
            inputs["buckets"] = gathering.buckets.count()
        summary = _summary(run, summaries, previous, inputs, end)
        summary.watches = {task: {target: watch.told() for target, watch in of.items()} for task, of in looked.items()}
        progress("writing")
        return Result(summary, results.write(run, summary, rows, verdicts, end))
    finally:
        gathering.close()
        if verdicts is not None:
            verdicts.unpersist()


def _end(run: Run, hours: list[str]) -> datetime:
    """Return up to when messages are counted."""
    end = start_of(hours[-1]) + timedelta(hours=1) if hours else run.window.start
    return min(end, run.now) if run.settings.writers_stopped else end


def _evidence(
    run: Run, hours: list[str], previous: Summary | None
) -> tuple[list[dict[str, Any]], dict[str, TaskEvidence]]:
    """Return who wrote what, under the names that tasks have now, and name what is missing."""
    tasks_before = previous.tasks if previous else []
    frame = compaction.load(run.spark, run.compacted, "coverage", hours)
    in_micros = {name: micros(name) for name in ("first", "last")}
    coverage = [] if frame is None else [row.asDict() for row in frame.withColumns(in_micros).collect()]
    run.renamed = still_renamed(previous.renamed if previous else {}, {row["task"] for row in coverage})
    before = {each.task: {"sources": each.sources, "last": each.last} for each in tasks_before}
    found = _successors(run, hours, renamed(gathered(coverage), before))
    run.renamed |= found
    for old, new in sorted(found.items()):
        text = f"it takes from its source under the name {new} now; counted as one task"
        run.problems.append(Problem("renamed-task", old, text))
    run.problems += lost_records(coverage, run.renamed)
    coverage = [row for row in coverage if not is_of_gap(row)]
    for row in coverage:
        row["task"] = latest_name(row["task"], run.renamed)
    run.problems += _lacking(run, hours, missing_sides(coverage))
    tasks = gathered(coverage)
    run.notes += [
        f"{each.task}: no record in this window, the last one was at {each.last}"
        for each in tasks_before
        if each.last and latest_name(each.task, run.renamed) not in tasks
    ]
    return coverage, tasks


def _successors(run: Run, hours: list[str], names: dict[str, str]) -> dict[str, str]:
    """Return those of *names*, old to new, whose new one goes on where the old one ended."""
    known = hours_between(run.window.start - run.settings.open_for, run.window.start)
    digests = run.load("digests", [*known, *hours]) if names else None
    again = set() if digests is None else taken_again(digests, names)
    return {old: new for old, new in names.items() if old not in again}


def _lacking(run: Run, hours: list[str], doubts: list[Problem]) -> list[Problem]:
    """Return those of *doubts* that are not explained by batches that were held into another hour."""
    around = {
        hour_of(start_of(each.hours[0]) + timedelta(hours=away))
        for each in doubts
        for away in range(-HELD_HOURS, HELD_HOURS + 1)
    }
    digests = run.load("digests", [hour for hour in around if hour <= hours[-1]]) if doubts else None
    told = set() if digests is None else told_in_other_hours(digests, doubts)
    return [each for each in doubts if (each.task, each.role, each.hours[0]) not in told]


def _name_clocks(run: Run, least_lags: dict[str, int]) -> None:
    tolerance = run.settings.clock_tolerance.total_seconds() * 1_000_000
    for task, lag in sorted(least_lags.items()):
        if lag < -tolerance:
            text = (
                f"messages arrived up to {-lag / 1_000_000:,.1f} s before they were enqueued: no lag can be relied on"
            )
            run.problems.append(Problem("clocks-disagree", task, text, task))


class _Figures:
    """The counts of a run by task."""

    def __init__(self, clean: list[dict[str, Any]], verdicts: DataFrame | None) -> None:
        self.verdicts: dict[str, dict[str, int]] = defaultdict(dict)
        self.findings: dict[str, dict[str, int]] = defaultdict(dict)
        self.known: dict[str, dict[str, int]] = defaultdict(lambda: {"entered": 0, "carried": 0, "reopened": 0})
        self.looked_at = {"clean_buckets": sum(row["buckets"] for row in clean), "messages_looked_at": 0}
        for row in clean:
            sums = {"delivered": row["sent"], "stopped": row["looped"]}
            sums |= {name: row[name] for name in ("filtered", "rejected", "expired")}
            found = {name: count for name, count in sums.items() if count}
            self.verdicts[row["task"]] = added([self.verdicts[row["task"]], found])
            self.known[row["task"]]["entered"] += row["received"]
        if verdicts is not None:
            self._add(verdicts)

    def _add(self, verdicts: DataFrame) -> None:
        kinds = ("task", "verdict", "findings", "is_carried", "is_reopened")
        for row in verdicts.groupBy(*kinds).count().collect():
            task, count = row["task"], row["count"]
            self.verdicts[task] = added([self.verdicts[task], {row["verdict"]: count}])
            self.findings[task] = added([self.findings[task], dict.fromkeys(row["findings"], count)])
            self.looked_at["messages_looked_at"] += count
            if row["verdict"] != "orphan":
                origin = "carried" if row["is_carried"] else "reopened" if row["is_reopened"] else "entered"
                self.known[task][origin] += count


def _task_summary(
    one: TaskEvidence, figures: _Figures, lags: dict[str, LagClasses], coverage: list[dict[str, Any]]
) -> TaskSummary:
    verdicts, findings = figures.verdicts[one.task], figures.findings[one.task]
    taps = {*one.source_taps, *one.peeks, *(tap for taps in one.target_taps.values() for tap in taps)}
    total: LagClasses = defaultdict(int)
    for classes in lags.values():
        for lag_class, count in classes.items():
            total[lag_class] += count
    return TaskSummary(
        task=one.task,
        sources=sorted(one.sources),
        targets=sorted(one.targets),
        evidence=one.kind,
        taps=sorted(taps),
        first=one.first.isoformat() if one.first else None,
        last=one.last.isoformat() if one.last else None,
        verdicts={each: verdicts[each] for each in VERDICTS if verdicts.get(each)},
        findings={each: findings[each] for each in VERDICTS if findings.get(each)},
        **figures.known[one.task],
        retries=sum(row["n"] for row in coverage if row["task"] == one.task and row["outcome"] == "retry"),
        lag_milliseconds=percentiles(total, class_milliseconds),
        lag_by_hour=[
            {"hour": hour, "messages": sum(classes.values()), **percentiles(classes, class_milliseconds)}
            for hour, classes in sorted(lags.items())
        ],
    )


def _lags(run: Run, hours: list[str], tasks: dict[str, TaskEvidence]) -> dict[str, dict[str, LagClasses]]:
    """Return task → hour of arrival → class of lag → messages, by the tap of each target where there is one."""
    frame = run.load("lags", hours)
    found: dict[str, dict[str, LagClasses]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    by_tap = {(task, target) for task, role, target in watched(tasks) if role == "target"}
    for row in [] if frame is None else frame.collect():
        if (row["observer"] == "tap") == ((row["task"], row["target"]) in by_tap):
            found[row["task"]][row["arrived"]][row["lag_class"]] += row["n"]
    return found


def _summary(
    run: Run, tasks: list[TaskSummary], previous: Summary | None, inputs: dict[str, int], end: datetime
) -> Summary:
    problems = sorted(set(run.problems), key=lambda each: (each.kind, each.where, each.text))
    code, verdict, sentence = concluded(tasks, problems)
    settings = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in asdict(run.settings).items()
        if name != "refreeze"
    }
    return Summary(
        run=run.window.run,
        start=run.window.start.isoformat(),
        end=run.window.end.isoformat(),
        counted_until=end.isoformat(),
        exit_code=code,
        verdict=verdict,
        sentence=sentence,
        settings=settings,
        tasks=tasks,
        problems=[{**each._asdict(), "hours": list(each.hours)} for each in problems],
        notes=sorted(run.notes),
        inputs=inputs,
        previous_run=previous.run if previous else None,
        renamed=run.renamed,
        tables={name: f"runs/{run.window.run}/{name}" for name in results.TABLES},
    )
