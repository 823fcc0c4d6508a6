"""
The page of a run: one HTML file that needs nothing else, for whoever is called at night.

It is made of the run's summary and tables only, so that it can be made again at any time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import TimestampType

from jobs.reconcile import schema
from jobs.reconcile.charts import duration, lag_chart
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary, TaskSummary
from jobs.reconcile.trace import Step, moment, source_of, trace
from jobs.reconcile.verdicts import BY_DESIGN, FINDINGS, UNDECIDED

PAGE = "report.html"

SHOWN = 10
"""Messages of each kind that the page shows; the tables have them all."""

_FIRST_SHOWN, _LAST_SHOWN = 10, 30  # records of one message: one that comes back for hours has thousands
_ID_SHOWN = 200
_CHARTS = 6
_PROBLEMS = 10

_OWN = "replicator's own"
_KEY = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray")


@dataclass(frozen=True)
class Finding:
    """A message at fault, or one that the evidence does not decide."""

    row: Mapping[str, Any]
    steps: Sequence[Step]
    left_out: int = 0
    last_steps: Sequence[Step] = ()

    @property
    def name(self) -> str:
        """The message id, as much of it as can be read, or what can be said in its place."""
        name: str = self.row["message_id"] or "(no message id)"
        return name if len(name) <= _ID_SHOWN else f"{name[:_ID_SHOWN]}\u2026 ({len(name):,} characters)"

    @property
    def source(self) -> str:
        """Where it entered."""
        return source_of(self.row)

    @property
    def target(self) -> str:
        """Where it arrived or was meant to, if anything tells."""
        return self.row["arrived_at"] or self.row["meant_for"] or "-"

    @property
    def entered(self) -> str:
        """When the source took it."""
        return moment(self.row["enqueued_time"])

    @property
    def told(self) -> str:
        """What is special about it, as the kind of its verdict has it."""
        row = self.row
        match row["verdict"]:
            case "duplicated":
                return f"{row['copies']} copies, {row['expected']} due"
            case "altered":
                return f"{row['altered']} differs"
            case "late":
                return f"after {duration(row['lag_milliseconds'])}"
            case "missing" if (row["expected"] or 1) > 1:
                return f"{row['copies']} of {row['expected']} copies arrived"
            case "missing" | "undecided" if row["last_reason"]:
                return f"last tried: {row['last_reason']}"
        return ""

    @property
    def also(self) -> list[str]:
        """The other kinds of findings that hold of it."""
        return [words(kind) for kind in self.row["findings"] if kind != self.row["verdict"]]


@dataclass(frozen=True)
class Kind:
    """All messages of a verdict: how many, and the first of them."""

    verdict: str
    count: int
    findings: Sequence[Finding]


def write_page(spark: SparkSession, summary: Summary, out: str) -> str:
    """Write the page of the run that *summary* is of beside its tables below *out*; return its address."""
    storage = Storage(spark)
    folder = f"{storage.absolute(out)}/runs/{summary.run}"
    kinds = _kinds(spark, storage, summary, folder)
    path = f"{folder}/{PAGE}"
    storage.write(path, rendered(summary, kinds))
    return path


def rendered(summary: Summary, kinds: Sequence[Kind]) -> str:
    """Return the page as HTML."""
    # Imported here: the workers need no templates.
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    template = resources.files("jobs.reconcile").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"words": words, "duration": duration, "number": "{:,}".format, "chart": lag_chart}
    # Names of entities are long, and read best where they break at their parts.
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
    """Return a name of the tables as a person writes it."""
    return name.replace("_", " ")


def _line(task: TaskSummary) -> dict[str, Any]:
    """Return the figures of a task so that they add up: messages = delivered + by design + at fault + undecided."""
    verdicts = task.verdicts
    at_fault = {kind: verdicts[kind] for kind in FINDINGS if verdicts.get(kind) and kind != "orphan"}
    by_design = {kind: verdicts[kind] for kind in BY_DESIGN if verdicts.get(kind)}
    return {
        "task": task,
        "messages": task.entered + task.carried + task.reopened,
        "delivered": verdicts.get("delivered", 0),
        "by_design": by_design,
        "at_fault": at_fault,
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
        told = records.get(_key(message, message["enqueued_time"]), [])
        steps = trace(told)
        found[message["verdict"]].append(with_ends(message, steps))
    return [Kind(kind, counts[kind], found[kind]) for kind in wanted]


def with_ends(message: Mapping[str, Any], steps: Sequence[Step]) -> Finding:
    """Return *message* with its first steps and its last ones, which tell what became of it."""
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
    """Return *frame* with times in microseconds: Spark hands over a time in the zone of whoever asks."""
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    return frame.withColumns({name: F.unix_micros(name) for name in times}) if times else frame


def _key(row: Mapping[str, Any], generation: int | None) -> tuple[Any, ...]:
    return (*(row[name] for name in _KEY), generation)


_MEANINGS = {
    "missing": "Entered, and neither arrived nor was withheld by rule. The copies that are left can be sent again.",
    "orphan": "Arrived, and never entered: somebody else sends to the target, or records of the source are lost.",
    "looped": "Came back to a site that it had left.",
    "altered": "Did not arrive as it entered.",
    "duplicated": "Arrived more often than it should.",
    "out_of_order": "Arrived after a later message of its session or key.",
    "late": "Arrived, later than is promised.",
    "undecided": "The evidence does not tell what became of it.",
}
