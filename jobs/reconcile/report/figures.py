"""The figures of a run by task: counts of verdicts and findings, and lags."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from jobs.reconcile.compact.index import class_milliseconds
from jobs.reconcile.judge.tasks import TaskActivity, tapped_sides
from jobs.reconcile.judge.verdicts import VERDICTS
from jobs.reconcile.summary import TaskSummary, add_counts

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}

LagClasses = dict[int, int]
"""Messages by class of lag."""


@dataclass
class Figures:
    """The counts of a run, by task."""

    verdicts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    findings: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    origins: dict[str, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: {"entered": 0, "carried": 0, "reopened": 0})
    )
    clean_buckets: int = 0
    messages_looked_at: int = 0


def count(clean: Iterable[Mapping[str, Any]], verdicts: DataFrame | None) -> Figures:
    """Return the figures of *clean*, the counts of clean buckets and messages, and of judged *verdicts*."""
    figures = Figures()
    for row in clean:
        sums = {"delivered": row["sent"], "stopped": row["looped"]}
        sums |= {name: row[name] for name in ("filtered", "rejected", "expired")}
        found = {name: number for name, number in sums.items() if number}
        figures.verdicts[row["task"]] = add_counts([figures.verdicts[row["task"]], found])
        figures.origins[row["task"]]["entered"] += row["received"]
        figures.clean_buckets += row["buckets"]
    if verdicts is None:
        return figures
    for each in verdicts.groupBy("task", "verdict", "findings", "is_carried", "is_reopened").count().collect():
        task, number = each["task"], each["count"]
        figures.verdicts[task] = add_counts([figures.verdicts[task], {each["verdict"]: number}])
        figures.findings[task] = add_counts([figures.findings[task], dict.fromkeys(each["findings"], number)])
        figures.messages_looked_at += number
        if each["verdict"] != "orphan":
            origin = "carried" if each["is_carried"] else "reopened" if each["is_reopened"] else "entered"
            figures.origins[task][origin] += number
    return figures


def lags_by_task(lags: DataFrame | None, tasks: Mapping[str, TaskActivity]) -> dict[str, dict[str, LagClasses]]:
    """Return task → hour of arrival → class of lag → messages, by the tap of each target if it has one."""
    found: dict[str, dict[str, LagClasses]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    by_tap = {(task, target) for task, role, target in tapped_sides(tasks) if role == "target"}
    for row in [] if lags is None else lags.collect():
        if (row["observer"] == "tap") == ((row["task"], row["target"]) in by_tap):
            found[row["task"]][row["arrived"]][row["lag_class"]] += row["n"]
    return found


def summarize_tasks(
    tasks: Mapping[str, TaskActivity],
    figures: Figures,
    lags: Mapping[str, Mapping[str, LagClasses]],
    coverage: Sequence[Mapping[str, Any]],
) -> list[TaskSummary]:
    """Return the summary of each task; *coverage* are the rows of the table coverage."""
    return [
        _summarize(tasks.get(name, TaskActivity(name)), figures, lags.get(name, {}), coverage)
        for name in sorted({*tasks, *figures.verdicts})
    ]


def _summarize(
    one: TaskActivity, figures: Figures, lags: Mapping[str, LagClasses], coverage: Sequence[Mapping[str, Any]]
) -> TaskSummary:
    verdicts, findings = figures.verdicts[one.task], figures.findings[one.task]
    total: LagClasses = defaultdict(int)
    for classes in lags.values():
        for lag_class, number in classes.items():
            total[lag_class] += number
    return TaskSummary(
        task=one.task,
        sources=sorted(one.sources),
        targets=sorted(one.targets),
        evidence=one.evidence,
        taps=one.taps,
        first=one.first.isoformat() if one.first else None,
        last=one.last.isoformat() if one.last else None,
        verdicts={each: verdicts[each] for each in VERDICTS if verdicts.get(each)},
        findings={each: findings[each] for each in VERDICTS if findings.get(each)},
        **figures.origins[one.task],
        retries=sum(row["n"] for row in coverage if row["task"] == one.task and row["outcome"] == "retry"),
        lag_milliseconds=percentiles(total, class_milliseconds),
        lag_by_hour=[
            {"hour": hour, "messages": sum(classes.values()), **percentiles(classes, class_milliseconds)}
            for hour, classes in sorted(lags.items())
        ],
    )


def percentiles(classes: Mapping[int, int], milliseconds: Callable[[int], float]) -> dict[str, float]:
    """Return the usual percentiles of counts by class of lag; nothing for no counts."""
    total = sum(classes.values())
    if not total:
        return {}
    found, passed = {}, 0
    left = dict(PERCENTILES)
    for each in sorted(classes):
        passed += classes[each]
        for name, share in list(left.items()):
            if passed >= share * total:
                found[name] = round(milliseconds(each), 1)
                del left[name]
    return found
