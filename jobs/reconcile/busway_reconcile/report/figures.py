"""The figures of a run by task: counts of verdicts and findings, and lags."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from busway_reconcile.judge.settled import Count, class_milliseconds, lags_of_reused
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.judge.verdicts import FINDINGS, VERDICTS
from busway_reconcile.summary import TaskSummary

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass
class Figures:
    """The counts of a task."""

    verdicts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    """Messages by where they are from: `entered`, `carried`, `reopened`."""
    lags: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Messages by hour of arrival, by the tap of each target if it has one, and by class of lag."""
    looked_at: int = 0


def count(counted: Iterable[Count], verdicts: DataFrame | None) -> dict[str, Figures]:
    """Return the figures by task: *counted* are those of its pairs, *verdicts* the messages judged one by one."""
    figures = defaultdict[str, Figures](Figures)
    for each in (*counted, *(() if verdicts is None else lags_of_reused(verdicts))):
        one = figures[each.task]
        if each.verdict is not None:
            one.verdicts[each.verdict] += each.messages
            one.origins["entered"] += each.messages
        if each.arrived is not None and each.lag_class is not None:
            one.lags[each.arrived][each.lag_class] += each.messages
    if verdicts is None:
        return figures
    by_kind = verdicts.groupBy("task", "verdict", "findings", "is_carried", "is_reopened", "is_found")
    for row in by_kind.count().collect():
        one, verdict, number = figures[row["task"]], row["verdict"], row["count"]
        one.verdicts[verdict] += number
        one.findings.update(dict.fromkeys(row["findings"], number))
        if verdict in FINDINGS and not row["is_found"]:
            one.new[verdict] += number
        if verdict != "orphan":
            one.origins["carried" if row["is_carried"] else "reopened" if row["is_reopened"] else "entered"] += number
        one.looked_at += number
    return figures


def summarize_tasks(
    tasks: Mapping[str, TaskActivity], figures: Mapping[str, Figures], coverage: Sequence[Mapping[str, Any]]
) -> list[TaskSummary]:
    """Return the summary of each task; *coverage* are the rows of COVERAGE."""
    names = {*tasks, *(name for name, one in figures.items() if one.verdicts)}
    return [
        _summarize(tasks.get(name, TaskActivity(name)), figures.get(name, Figures()), coverage)
        for name in sorted(names)
    ]


def _summarize(one: TaskActivity, figures: Figures, coverage: Sequence[Mapping[str, Any]]) -> TaskSummary:
    return TaskSummary(
        task=one.task,
        sources=sorted(one.sources),
        targets=sorted(one.targets),
        evidence=one.evidence,
        taps=one.taps,
        first=one.first.isoformat() if one.first else None,
        last=one.last.isoformat() if one.last else None,
        verdicts={verdict: figures.verdicts[verdict] for verdict in VERDICTS if figures.verdicts[verdict]},
        findings={verdict: figures.findings[verdict] for verdict in VERDICTS if figures.findings[verdict]},
        new={finding: figures.new[finding] for finding in FINDINGS if figures.new[finding]},
        **figures.origins,
        retries=sum(row["n"] for row in coverage if row["task"] == one.task and row["outcome"] == "retry"),
        lag_milliseconds=percentiles(sum(figures.lags.values(), Counter())),
        lag_by_hour=[
            {"hour": hour, "messages": sum(classes.values()), **percentiles(classes)}
            for hour, classes in sorted(figures.lags.items())
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
