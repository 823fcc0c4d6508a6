"""
The page of a run: one self-contained HTML file, for the person on call.

It is made from the run's summary and tables alone, so that it can be written again at any time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import TimestampType

from jobs.reconcile.journal import schema
from jobs.reconcile.judge.verdicts import BY_DESIGN, FINDINGS, UNDECIDED
from jobs.reconcile.report.lag_chart import duration, lag_chart
from jobs.reconcile.report.trace import Step, moment, source_of, trace
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary, TaskSummary

PAGE = "report.html"

SHOWN = 10
"""The number of messages that the page shows for each kind; the tables have all of them."""

_FIRST_SHOWN, _LAST_SHOWN = 10, 30  # records of one message: a message that is retried for hours has thousands
_ID_SHOWN = 200
_CHARTS = 6
_PROBLEMS = 10

_OWN = "replicator's own"
_KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray")


@dataclass(frozen=True)
class Finding:
    """A message with a finding, or an undecided one, and its records."""

    row: Mapping[str, Any]
    steps: Sequence[Step]
    left_out: int = 0
    last_steps: Sequence[Step] = ()

    @property
    def name(self) -> str:
        """The message id, shortened if it is very long."""
        name: str = self.row["message_id"] or "(no message id)"
        return name if len(name) <= _ID_SHOWN else f"{name[:_ID_SHOWN]}\u2026 ({len(name):,} characters)"

    @property
    def source(self) -> str:
        """The entity that it entered."""
        return source_of(self.row)

    @property
    def target(self) -> str:
        """The target at which it arrived, or to which it should have been sent, or a dash."""
        return self.row["arrived_at"] or self.row["meant_for"] or "-"

    @property
    def entered(self) -> str:
        """The time at which it entered."""
        return moment(self.row["enqueued_time"])

    @property
    def detail(self) -> str:
        """The detail that explains its verdict, if there is one."""
        row = self.row
        match row["verdict"]:
            case "duplicated":
                return f"{row['copies']} copies arrived, {row['expected']} expected"
            case "altered":
                return f"{row['altered']} changed"
            case "late":
                return f"took {duration(row['lag_milliseconds'])}"
            case "missing" if (row["expected"] or 1) > 1:
                return f"{row['copies']} of {row['expected']} copies arrived"
            case "missing" | "undecided" if row["last_reason"]:
                return f"last error: {row['last_reason']}"
        return ""

    @property
    def also(self) -> list[str]:
        """Its other findings."""
        return [words(kind) for kind in self.row["findings"] if kind != self.row["verdict"]]


@dataclass(frozen=True)
class Kind:
    """A verdict, its number of messages, and the first of them."""

    verdict: str
    count: int
    findings: Sequence[Finding]


def write_page(spark: SparkSession, summary: Summary, out: str) -> str:
    """Write the page of a run into its folder below *out* and return its address."""
    storage = Storage(spark)
    folder = f"{storage.absolute(out)}/runs/{summary.run}"
    kinds = _kinds(spark, storage, summary, folder)
    path = f"{folder}/{PAGE}"
    storage.write(path, render(summary, kinds))
    return path


def render(summary: Summary, kinds: Sequence[Kind]) -> str:
    """Return the page as HTML."""
    # Imported here: the workers do not need it.
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    template = resources.files("jobs.reconcile.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"words": words, "duration": duration, "number": "{:,}".format, "chart": lag_chart}
    # Entity names are long: they wrap at their slashes.
    environment.filters["breakable"] = lambda text: Markup("/<wbr>").join(str(text).split("/"))
    return environment.from_string(template).render(
        summary=summary,
        kinds=kinds,
        shown=SHOWN,
        tasks=[_line(task) for task in summary.tasks],
        charted=_charted(summary.tasks),
        problems=_by_kind(summary.problems),
        problems_shown=_PROBLEMS,
        blind=[task.task for task in summary.tasks if task.evidence == _OWN],
        half_blind=[task for task in summary.tasks if task.evidence.startswith(f"{_OWN},")],
        meanings=_MEANINGS,
        period=f"{summary.start[:16].replace('T', ' ')} to {summary.end[:16].replace('T', ' ')} UTC",
    )


def words(name: str) -> str:
    """Return the name of a verdict in words."""
    return name.replace("_", " ")


def _line(task: TaskSummary) -> dict[str, Any]:
    """Return the figures of a task, which add up: messages = delivered + withheld or open + findings + undecided."""
    verdicts = task.verdicts
    found = {kind: verdicts[kind] for kind in FINDINGS if verdicts.get(kind) and kind != "orphan"}
    by_design = {kind: verdicts[kind] for kind in BY_DESIGN if verdicts.get(kind)}
    return {
        "task": task,
        "messages": task.entered + task.carried + task.reopened,
        "delivered": verdicts.get("delivered", 0),
        "by_design": by_design,
        "found": found,
        "undecided": verdicts.get(UNDECIDED, 0),
        "orphans": verdicts.get("orphan", 0),
    }


def _charted(tasks: Sequence[TaskSummary]) -> list[TaskSummary]:
    worth = [task for task in tasks if len(task.lag_by_hour) > 1]
    return sorted(worth, key=lambda task: -sum(hour["messages"] for hour in task.lag_by_hour))[:_CHARTS]


def _by_kind(problems: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for problem in problems:
        found[problem["kind"]].append(problem)
    return dict(found)


def _kinds(spark: SparkSession, storage: Storage, summary: Summary, folder: str) -> list[Kind]:
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


def with_ends(message: Mapping[str, Any], steps: Sequence[Step]) -> Finding:
    """Return *message* with its first and its last steps."""
    left_out = len(steps) - _FIRST_SHOWN - _LAST_SHOWN
    if left_out <= 0:
        return Finding(message, steps)
    return Finding(message, steps[:_FIRST_SHOWN], left_out, steps[-_LAST_SHOWN:])


def _records(
    spark: SparkSession, path: str, messages: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the records of *messages* by their keys."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    if not messages:
        return found
    shape = "task string, src_site string, src_entity string, src_part smallint, src_seq bigint, stray string"
    wanted = spark.createDataFrame(
        [(*(each[name] for name in _KEY), each["enqueued_time"]) for each in messages], f"{shape}, generation bigint"
    )
    evidence = spark.read.parquet(path)
    keys = [*_KEY, "generation"]
    right = wanted.select(*(F.col(name).alias(f"wanted_{name}") for name in keys))
    is_wanted: Column = F.lit(True)
    for name in keys:
        is_wanted = is_wanted & F.col(name).eqNullSafe(F.col(f"wanted_{name}"))
    columns = [*schema.compacted().names, *(name for name in ("generation", "stray"))]
    for row in _plain(evidence.join(F.broadcast(right), is_wanted, "left_semi").select(*columns)).collect():
        record = row.asDict()
        found[_key(record, record["generation"])].append(record)
    return found


def _plain(frame: DataFrame) -> DataFrame:
    """Return *frame* with times in microseconds: Spark returns timestamps in the process's own time zone."""
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    return frame.withColumns({name: F.unix_micros(name) for name in times}) if times else frame


def _key(row: Mapping[str, Any], generation: int | None) -> tuple[Any, ...]:
    return (*(row[name] for name in _KEY), generation)


_MEANINGS = {
    "missing": "The message entered, but did not arrive, and no rule or editor withheld it. If a copy still exists, "
    "busway repair can send it.",
    "orphan": "The message arrived, but no record shows that it entered. Another sender uses the target, or records of "
    "the source are lost.",
    "looped": "The message came back to a site that it had left.",
    "altered": "The message arrived with another body or other properties, and no editor changed it.",
    "duplicated": "More copies of the message arrived than expected.",
    "out_of_order": "The message arrived after a later message of its session or partition key.",
    "late": "The message arrived later than the limit allows.",
    "undecided": "The evidence is incomplete: it does not show whether the message arrived.",
}
