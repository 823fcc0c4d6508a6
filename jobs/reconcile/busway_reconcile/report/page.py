"""
The page of a run: one self-contained HTML file, for the person on call.

It is made from the run's summary and tables and the summaries of earlier runs, so that it can be written again at any
time.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pyspark.sql import SparkSession

from busway_reconcile.judge.verdicts import BY_DESIGN, FINDINGS, UNDECIDED
from busway_reconcile.report.advice import advice_on, advice_on_problem
from busway_reconcile.report.finding import Kind
from busway_reconcile.report.first_messages import first_messages
from busway_reconcile.report.lag_chart import duration, lag_chart
from busway_reconcile.report.trend import NIGHTS, Trend, read_trend
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary, TaskSummary

PAGE = "report.html"

_CHARTS = 6
_PROBLEMS = 10

_OWN = "replicator's own"

# Unicode's categories of characters that change how others are shown, or are not shown: controls, formats, separators.
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
_KEPT = "\n\t"


def write_page(spark: SparkSession, summary: Summary, out: str) -> str:
    """Write the page of a run into its folder below *out* and return its address."""
    storage = Storage(spark)
    runs = f"{storage.absolute(out)}/runs"
    folder = f"{runs}/{summary.run}"
    kinds = first_messages(spark, storage, summary, folder)
    path = f"{folder}/{PAGE}"
    storage.write(path, render(summary, kinds, read_trend(storage, runs, summary)))
    return path


def render(summary: Summary, kinds: Sequence[Kind], trend: Trend) -> str:
    """Return the page as HTML."""
    # Imported here: the workers do not need it.
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def shown(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    template = resources.files("busway_reconcile.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    environment.filters |= {"words": words, "duration": duration, "number": "{:,}".format, "grouped": grouped}
    environment.filters["chart"] = lambda hours: Markup(lag_chart(hours))  # noqa: S704 - it has numbers and fixed text
    environment.filters["bars"] = lambda values: Markup(trend.bars(values))  # noqa: S704 - likewise
    # Entity names are long: they wrap at their slashes.
    environment.filters["breakable"] = lambda text: Markup("/<wbr>").join(visible(str(text)).split("/"))
    return environment.from_string(template).render(
        summary=summary,
        kinds=[(kind, advice_on(kind, summary), trend.earlier(kind.verdict, summary)) for kind in kinds],
        trend=trend,
        trend_length=NIGHTS,
        tasks=summary.tasks,
        columns=_columns(summary),
        charted=_charted(summary.tasks),
        problems=[(kind, advice_on_problem(kind), each) for kind, each in _by_kind(summary.problems).items()],
        problems_shown=_PROBLEMS,
        blind=[task.task for task in summary.tasks if task.evidence.partition(";")[0] == _OWN],
        half_blind=[task for task in summary.tasks if task.evidence.startswith(f"{_OWN},")],
        period=f"{summary.start[:16].replace('T', ' ')} to {summary.end[:16].replace('T', ' ')} UTC",
    )


def words(name: str) -> str:
    """Return the name of a verdict in words."""
    return name.replace("_", " ").replace("-", " ")


def grouped(text: str) -> str:
    """Return *text* with commas in its long numbers."""
    return re.sub(r"\b\d{4,}\b", lambda found: f"{int(found[0]):,}", text)


def visible(text: str) -> str:
    """Return *text* with an escape in place of each character that is not shown, or changes how others are shown."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in _UNSEEN and each not in _KEPT else each
        for each in text
    )


def _columns(summary: Summary) -> list[tuple[str, str]]:
    """Return the verdicts of this run in the order of a sum, with the kind of each: good, by-design, bad or unsure."""
    kinds = {
        "delivered": "good",
        **dict.fromkeys(BY_DESIGN, "by-design"),
        **dict.fromkeys(FINDINGS, "bad"),
        UNDECIDED: "unsure",
    }
    return [(name, kind) for name, kind in kinds.items() if name == "delivered" or summary.counts.get(name)]


def _charted(tasks: Sequence[TaskSummary]) -> list[TaskSummary]:
    worth = [task for task in tasks if len(task.lag_by_hour) > 1]
    return sorted(worth, key=lambda task: -sum(hour["messages"] for hour in task.lag_by_hour))[:_CHARTS]


def _by_kind(problems: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for problem in problems:
        found[problem["kind"]].append(problem)
    return dict(found)
