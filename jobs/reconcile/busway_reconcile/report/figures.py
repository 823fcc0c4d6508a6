"""The figures of a run by task: counts of verdicts and findings, and lags."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from busway_reconcile.judge.settled import Count, class_milliseconds, lags_of_reused
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.judge.verdicts import FINDINGS, VERDICTS
from busway_reconcile.summary import TaskSummary, add_counts

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}

LagClasses = dict[int, int]
"""Messages by class of lag."""


@dataclass
class Figures:
    """The counts of a run, by task."""

    verdicts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    findings: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    new: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    origins: dict[str, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: {"entered": 0, "carried": 0, "reopened": 0})
    )
    lags: dict[str, dict[str, LagClasses]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    )
    """By task and hour of arrival: by the tap of each target if it has one."""
    messages_looked_at: int = 0


def count(counted: Iterable[Count], verdicts: DataFrame | None) -> Figures:
    """Return the figures of a run: *counted* are those of its pairs, *verdicts* the messages judged one by one."""
    figures = Figures()
    for each in (*counted, *(() if verdicts is None else lags_of_reused(verdicts))):
        if each.verdict is not None:
            figures.verdicts[each.task] = add_counts([figures.verdicts[each.task], {each.verdict: each.messages}])
            figures.origins[each.task]["entered"] += each.messages
        if each.arrived is not None and each.lag_class is not None:
            figures.lags[each.task][each.arrived][each.lag_class] += each.messages
    if verdicts is None:
        return figures
    for row in (
        verdicts.groupBy("task", "verdict", "findings", "is_carried", "is_reopened", "is_found").count().collect()
    ):
        task, number = row["task"], row["count"]
        figures.verdicts[task] = add_counts([figures.verdicts[task], {row["verdict"]: number}])
        figures.findings[task] = add_counts([figures.findings[task], dict.fromkeys(row["findings"], number)])
        if row["verdict"] in FINDINGS and not row["is_found"]:
            figures.new[task] = add_counts([figures.new[task], {row["verdict"]: number}])
        figures.messages_looked_at += number
        if row["verdict"] != "orphan":
            origin = "carried" if row["is_carried"] else "reopened" if row["is_reopened"] else "entered"
            figures.origins[task][origin] += number
    return figures


def summarize_tasks(
    tasks: Mapping[str, TaskActivity],
    figures: Figures,
    coverage: Sequence[Mapping[str, Any]],
) -> list[TaskSummary]:
    """Return the summary of each task; *coverage* are the rows of COVERAGE."""
    return [
        _summarize(tasks.get(name, TaskActivity(name)), figures, coverage)
        for name in sorted({*tasks, *figures.verdicts})
    ]


def _summarize(one: TaskActivity, figures: Figures, coverage: Sequence[Mapping[str, Any]]) -> TaskSummary:
    verdicts, findings, lags = figures.verdicts[one.task], figures.findings[one.task], figures.lags[one.task]
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
        verdicts={verdict: verdicts[verdict] for verdict in VERDICTS if verdicts.get(verdict)},
        findings={verdict: findings[verdict] for verdict in VERDICTS if findings.get(verdict)},
        new={finding: figures.new[one.task][finding] for finding in FINDINGS if figures.new[one.task].get(finding)},
        **figures.origins[one.task],
        retries=sum(row["n"] for row in coverage if row["task"] == one.task and row["outcome"] == "retry"),
        lag_milliseconds=percentiles(total),
        lag_by_hour=[
            {"hour": hour, "messages": sum(classes.values()), **percentiles(classes)}
            for hour, classes in sorted(lags.items())
        ],
    )


def percentiles(classes: Mapping[int, int]) -> dict[str, float]:
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
                found[name] = round(class_milliseconds(each), 1)
                del left[name]
    return found
