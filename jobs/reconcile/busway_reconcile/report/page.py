"""
The page of a run: one self-contained HTML file, for the person on call.

It is made from the run's summary and tables and the summaries of earlier runs, so that it can be written again at any
time.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import TimestampType

from busway_reconcile.journal import schema
from busway_reconcile.journal.frames import frame_of, semi_join_null_safe
from busway_reconcile.judge.verdicts import BY_DESIGN, FINDINGS, UNDECIDED
from busway_reconcile.report.advice import advice_on, advice_on_problem
from busway_reconcile.report.finding import Finding, Kind, with_ends
from busway_reconcile.report.lag_chart import duration, lag_chart
from busway_reconcile.report.trace import trace
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
        charted=_charted(summary),
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


def _charted(summary: Summary) -> list[TaskSummary]:
    """Return the tasks to chart, with their lags in the hours of the window: a record may claim any time."""
    first, last = summary.start[:13], summary.end[:13]
    in_window = [
        replace(task, lag_by_hour=[hour for hour in task.lag_by_hour if first <= hour["hour"] < last])
        for task in summary.tasks
    ]
    worth = [task for task in in_window if len(task.lag_by_hour) > 1]
    return sorted(worth, key=lambda task: -sum(hour["messages"] for hour in task.lag_by_hour))[:_CHARTS]


def _by_kind(problems: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for problem in problems:
        found[problem["kind"]].append(problem)
    return dict(found)


SHOWN = 10
"""The number of messages that the page shows for each kind; the tables have all of them."""

_KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray")


def first_messages(spark: SparkSession, storage: Storage, summary: Summary, folder: str) -> list[Kind]:
    """Return each kind of finding in the run at *folder*, and undecided messages, with the first SHOWN of them."""
    counts = summary.counts
    wanted = [kind for kind in (*FINDINGS, UNDECIDED) if counts.get(kind)]
    if not wanted:
        return []
    tables = [
        spark.read.parquet(path) for name in ("findings", "explained") if storage.exists(path := f"{folder}/{name}")
    ]
    first = Window.partitionBy("verdict").orderBy(*(F.col(name) for name in ("enqueued_time", *_KEY)))
    messages = [
        row.asDict()
        for table in tables
        for row in _plain(
            table.where(F.col("verdict").isin(*wanted))
            .withColumn("nth", F.row_number().over(first))
            .where(F.col("nth") <= SHOWN)
            .orderBy("nth")
        ).collect()
    ]
    records = _records(spark, f"{folder}/evidence", messages)
    found: dict[str, list[Finding]] = defaultdict(list)
    for message in messages:
        steps = trace(records.get(_key(message, message["enqueued_time"]), []))
        found[message["verdict"]].append(with_ends(message, steps))
    return [Kind(kind, counts[kind], found[kind]) for kind in wanted]


def _records(
    spark: SparkSession, path: str, messages: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the records of *messages* by their keys."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    if not messages:
        return found
    shape = "task string, src_site string, src_entity string, src_part smallint, src_seq bigint, stray string"
    rows = [(*(message[name] for name in _KEY), message["enqueued_time"]) for message in messages]
    wanted = frame_of(spark, rows, f"{shape}, generation bigint")
    evidence = semi_join_null_safe(spark.read.parquet(path), F.broadcast(wanted), (*_KEY, "generation"))
    for row in _plain(evidence.select(*schema.COMPACTED, "generation", "stray")).collect():
        record = row.asDict()
        found[_key(record, record["generation"])].append(record)
    return found


def _plain(frame: DataFrame) -> DataFrame:
    """Return *frame* with times in microseconds: Spark returns timestamps in the process's own time zone."""
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    return frame.withColumns({name: F.unix_micros(name) for name in times}) if times else frame


def _key(row: Mapping[str, Any], generation: int | None) -> tuple[Any, ...]:
    return (*(row[name] for name in _KEY), generation)
