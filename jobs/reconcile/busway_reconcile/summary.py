"""The result of a run in one object: for the exit code, the page, the command, and the next run."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CLEAN, FOUND, COULD_NOT_DECIDE = 0, 1, 2
"""Exit codes."""


@dataclass
class TaskSummary:
    """
    The figures of one task.

    entered + carried + reopened = the sum of verdicts without orphans: messages that entered in this window, that
    earlier runs left open, and that earlier runs had decided before another record of them came. Units: lags in
    milliseconds.
    """

    task: str
    sources: list[tuple[str, str]]
    targets: list[str]
    evidence: str
    taps: list[str]
    first: str | None
    last: str | None
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    """Of the verdicts, the findings that the previous run did not have: a missing message is one until it arrives."""
    entered: int = 0
    carried: int = 0
    reopened: int = 0
    retries: int = 0
    lag_milliseconds: dict[str, float] = field(default_factory=dict)
    lag_by_hour: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Summary:
    """The result of a run; to_json() is the content of summary.json."""

    run: str
    start: str
    end: str
    counted_until: str
    exit_code: int
    verdict: str
    sentence: str
    settings: dict[str, Any]
    tasks: list[TaskSummary]
    problems: list[dict[str, Any]]
    notes: list[str]
    inputs: dict[str, int]
    previous_run: str | None
    renamed: dict[str, str]
    tables: dict[str, str]
    watches: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By task and target, what the next run needs to know about the taps there."""
    version: int = 1

    def to_json(self) -> str:
        """Return the summary as JSON, equal for equal results."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """Return the summary that to_json() wrote."""
        values = json.loads(text)
        values["tasks"] = [
            TaskSummary(**{**each, "sources": [(site, entity) for site, entity in each["sources"]]})
            for each in values["tasks"]
        ]
        return cls(**values)

    @property
    def counts(self) -> dict[str, int]:
        """The messages of all tasks by verdict."""
        return add_counts(task.verdicts for task in self.tasks)


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of several counts by name."""
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(total)
