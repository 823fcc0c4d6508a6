"""
A run: the journals of a window and the open messages of the previous run in; verdicts, findings and a summary out.

A run depends only on its frozen inputs, the open messages of the previous run, and earlier hours: repeating it gives
the same results. It writes into a folder of its own, all at once; a folder without a summary is not a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from busway_reconcile.compact.inputs import compact_inputs
from busway_reconcile.compact.records import CompactedRecords, current_name, rename_tasks
from busway_reconcile.journal.hours import hour_of
from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.judge.cache import keeping
from busway_reconcile.judge.gaps import damaged_hours
from busway_reconcile.judge.judge import Tasks
from busway_reconcile.judge.selection import Hours, last_enqueued
from busway_reconcile.judge.tap_periods import earlier_periods, observed_periods
from busway_reconcile.judge.tasks import TaskActivity, task_history
from busway_reconcile.judge.verdicts import FINDINGS, OPEN, UNDECIDED
from busway_reconcile.judge.window import judge_window
from busway_reconcile.read.runs import closed_hours, counted_until, find_previous_run, read_open
from busway_reconcile.report.figures import count, summarize_tasks
from busway_reconcile.report.tables import TABLES, tables_of_counts, tables_of_messages, write_tables
from busway_reconcile.session import configure, fit
from busway_reconcile.settings import Run, Settings, Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import CLEAN, COULD_NOT_DECIDE, FOUND, Summary, TaskSummary, add_counts


@dataclass(frozen=True)
class Result:
    """The summary of a run and the addresses of its tables."""

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
    Give every message that *journal* has in *window* a verdict, and write the results below *out*.

    Shape:   *journal* is a folder with task=…/date=…/hour=…/role=… below it, as Spark reads it (path or abfss address);
             *now* decides which hours are over. Tables: `Result.tables`, one folder of Parquet files each.
    Raises:  CompactionFailed if the compacted records differ from the raw ones, WrongJournal.
    """
    storage = Storage(configure(spark))
    run = Run(storage.absolute(journal), storage.absolute(out), window, now, settings or Settings())
    # Read
    hours, hour_problems = closed_hours(run)
    previous, previous_problems, previous_notes = find_previous_run(storage, run)
    # Compact
    progress(f"compacting the new files of {len(hours)} hours")
    inputs = compact_inputs(spark, storage, run, hours)
    # Judge
    opened = read_open(spark, storage, run, previous)
    # What a small window lacks is looked for in the hours before it, of which one may be large.
    sizes = {hour: sum(file.size for file in found.files) for hour, found in inputs.hours.items()}
    fit(spark, max([sum(sizes[hour] for hour in hours), *sizes.values()]))
    history = task_history(spark, run, hours, inputs.hours, previous)
    end = counted_until(run, hours)
    before = earlier_periods(previous.watches if previous else {}, history.renamed)
    observed = observed_periods(history.tasks, before, end, run.settings)
    problems = [*hour_problems, *inputs.problems, *previous_problems, *history.problems, *observed.problems]
    problems += _lost_open_messages(run, previous, is_there=opened is not None)
    earlier_tasks = [
        TaskActivity(task.task, sources=set(task.sources)) for task in (previous.tasks if previous else [])
    ]
    before_window = [hour for hour in inputs.hours if hour < hour_of(window.start)]
    damaged = damaged_hours(inputs.hours[hour] for hour in before_window)
    coverage_before = [
        {**row, "task": current_name(row["task"], history.renamed), "landed": hour}
        for hour in before_window
        for row in inputs.hours[hour].coverage
    ]
    with keeping() as keep:
        judged = judge_window(
            CompactedRecords(spark, run.compacted, history.renamed),
            Hours(hours, before_window, inputs.changed_before, damaged),
            Tasks(observed.tasks, history.coverage, coverage_before, observed.periods, earlier_tasks),
            None if opened is None else rename_tasks(opened, history.renamed),
            problems,
            last_opened=last_enqueued(opened),
            start=window.start,
            end=end,
            settings=run.settings,
            keep=keep,
            progress=progress,
        )
        # Report
        figures = count(judged.counts, judged.verdicts)
        summary = _summarize(
            run,
            summarize_tasks(observed.tasks, figures, history.coverage),
            [*problems, *judged.problems],
            end,
            previous,
        )
        summary.notes = sorted([*judged.notes, *previous_notes, *history.notes, *observed.notes])
        summary.renamed = history.renamed
        summary.watches = {
            task: {target: period.to_dict() for target, period in by_target.items()}
            for task, by_target in observed.periods.items()
        }
        summary.inputs = {
            "files": sum(len(inputs.hours[hour].files) for hour in hours),
            "hours": len(hours),
            "messages_looked_at": sum(one.looked_at for one in figures.values()),
        }
        progress("writing the results")
        frames = tables_of_counts(spark, summary)
        if judged.records is not None and judged.verdicts is not None:
            frames |= tables_of_messages(run, summary, judged.records, judged.verdicts, end)
        return Result(summary, write_tables(storage, run, summary, frames))


def _lost_open_messages(run: Run, previous: Summary | None, *, is_there: bool) -> list[Problem]:
    """Return a problem if *previous* left messages open and its table of them no longer *is_there*."""
    left = 0 if previous is None else sum(previous.counts.get(verdict, 0) for verdict in OPEN)
    if previous is None or is_there or not left:
        return []
    text = f"the table of the {left} messages that this run left open is gone: no later run looks for them"
    return [Problem("not-reconciled", f"{run.out}/runs/{previous.run}/open", text)]


def _summarize(
    run: Run, tasks: list[TaskSummary], problems: list[Problem], end: datetime, previous: Summary | None
) -> Summary:
    problems = sorted(set(problems), key=lambda problem: (problem.kind, problem.where, problem.text))
    code, verdict, sentence = conclude(tasks, problems)
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
        problems=[{**problem._asdict(), "hours": list(problem.hours)} for problem in problems],
        notes=[],
        inputs={},
        previous_run=previous.run if previous else None,
        renamed={},
        tables={name: f"runs/{run.window.run}/{name}" for name in TABLES},
    )


def conclude(tasks: Sequence[TaskSummary], problems: Sequence[Problem]) -> tuple[int, str, str]:
    """Return the exit code, the verdict in a few words, and the verdict in a sentence."""
    verdicts = add_counts(task.verdicts for task in tasks)
    found = {kind: verdicts[kind] for kind in FINDINGS if verdicts.get(kind)}
    undecided = verdicts.get(UNDECIDED, 0)
    messages = _messages(sum(verdicts.values()) - verdicts.get("orphan", 0))
    doubts = []
    # If an empty file hides records, messages are undecided; if nothing is undecided, it hides nothing.
    if serious := [problem for problem in problems if problem.kind != EMPTY]:
        doubts.append(f"{len(serious)} {'problem' if len(serious) == 1 else 'problems'} with the evidence")
    if undecided:
        doubts.append(f"{_messages(undecided)} undecided")
    if not tasks and not doubts:
        return COULD_NOT_DECIDE, "could not decide", "No journal has a record of these hours."
    but = f"; {' and '.join(doubts)}" if doubts else ""
    if found:
        named = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.items())
        return FOUND, "findings", f"{messages}: {named}{but}."
    if doubts:
        return COULD_NOT_DECIDE, "could not decide", f"{messages}, no findings{but}."
    unusual = {"in_flight": "still in flight", "repaired": "repaired", "replayed": "replayed"}
    others = "".join(f", {verdicts[kind]} {text}" for kind, text in unusual.items() if verdicts.get(kind))
    return CLEAN, "clean", f"{messages}, all accounted for{others}."


def _messages(count: int) -> str:
    return f"{count} {'message' if count == 1 else 'messages'}"
