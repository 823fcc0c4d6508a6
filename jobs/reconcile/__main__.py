"""
The job as a program: `spark-submit jobs/reconcile/__main__.py` in a cluster, `python -m jobs.reconcile` on a laptop.

It ends with 0 if all is accounted for, 1 with findings, 2 where the evidence did not do to decide.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.reconcile.inputs import hours_between
from jobs.reconcile.manifest import write_manifest
from jobs.reconcile.reconciliation import Result, reconcile
from jobs.reconcile.report import write_page
from jobs.reconcile.session import local_session
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.summary import COULD_NOT_DECIDE

CONNECTION_SETTING = "BUSWAY_JOURNAL_STORAGE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job as *arguments* say and return its exit code."""
    options = _parser().parse_args(arguments)
    now = options.now or datetime.now(UTC)
    try:
        window = _window(options, now)
    except ValueError as error:
        _say(f"reconcile: {error}")
        return COULD_NOT_DECIDE
    settings = Settings(
        grace=timedelta(minutes=options.grace_minutes),
        late_after=timedelta(minutes=options.late_minutes),
        writers_stopped=options.writers_stopped,
        refreeze=options.refreeze,
    )
    try:
        hours = hours_between(window.start - settings.open_for, window.end)
        journal = _reachable(options.journal, Path(options.staging), hours)
        spark = _session(options)
        result = reconcile(spark, journal, options.out, window=window, now=now, settings=settings, progress=_say)
        manifest = write_manifest(spark, result.summary, options.out) if result.summary.counts.get("missing") else None
        page = write_page(spark, result.summary, options.out)
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would say that something was found
        traceback.print_exc()
        _say(f"reconcile: could not decide about {window.run}: {_sentence(error)}")
        return COULD_NOT_DECIDE
    _tell(result)
    if manifest is not None:
        _say(f"manifest for busway repair: {_shown(manifest)}")
    _say(f"page: {_shown(page)}")
    return result.exit_code


def _sentence(error: Exception) -> str:
    # What py4j says of an exception of Java's begins with the call that met it, and Java's own words come after that.
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).strip().splitlines()[0]
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason is given').splitlines()[0]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reconcile", description="Prove from journals what arrived.")
    parser.add_argument(
        "--journal", required=True, help="folder or abfss address with task=… below it, or a container's URL"
    )
    parser.add_argument("--out", required=True, help="folder or abfss address for compacted hours and results")
    parser.add_argument("--date", type=date.fromisoformat, help="the day to reconcile (UTC); default: yesterday")
    parser.add_argument("--start", type=_moment, help="instead of --date: the window's first hour, 2026-11-20T00")
    parser.add_argument("--end", type=_moment, help="the hour before which the window ends")
    parser.add_argument("--grace-minutes", type=float, default=120, help="how long a message counts as in flight")
    parser.add_argument("--late-minutes", type=float, default=15, help="from which lag on a message is late")
    parser.add_argument(
        "--writers-stopped", action="store_true", help="nothing writes any more: count the open hour too"
    )
    parser.add_argument("--refreeze", action="store_true", help="take files in that came after the run was first made")
    parser.add_argument("--staging", default="build/journal", help="where a container's journal is brought to")
    parser.add_argument("--memory", default="4g", help="memory of a local session")
    parser.add_argument("--cores", default="2", help="cores of a local session; * for all that there are")
    parser.add_argument("--now", type=datetime.fromisoformat, help=argparse.SUPPRESS)
    return parser


def _window(options: argparse.Namespace, now: datetime) -> Window:
    if (options.start is None) != (options.end is None):
        raise ValueError("one of --start and --end is missing, expected both or none")
    if options.start is not None:
        if options.date is not None:
            raise ValueError("--date beside --start, expected one of them")
        return Window(options.start, options.end)
    return Window.of_day(options.date or now.astimezone(UTC).date() - timedelta(days=1))


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)


def _reachable(journal: str, staging: Path, hours: Sequence[str]) -> str:
    if urlsplit(journal).scheme not in ("http", "https"):
        return journal
    # A cluster reads abfss by itself and has no need of the storage SDK.
    from jobs.reconcile.staging import container, stage  # noqa: PLC0415

    client, prefix = container(journal, os.environ.get(CONNECTION_SETTING))
    with client:
        count = stage(client, prefix, staging, hours=hours, progress=_say)
    _say(f"{count} journal files brought to {staging}")
    return str(staging)


def _session(options: argparse.Namespace) -> SparkSession:
    # Where spark-submit or a notebook has chosen a master, that is the one.
    if SparkSession.getActiveSession() is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return SparkSession.builder.appName("busway-reconcile").getOrCreate()
    return local_session(memory=options.memory, cores=options.cores)


def _tell(result: Result) -> None:
    summary = result.summary
    _say(f"{summary.run}: {summary.verdict}. {summary.sentence}")
    for task in summary.tasks:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in task.verdicts.items())
        _say(f"  {task.task} (evidence: {task.evidence}): {counts or 'nothing'}")
    for problem in summary.problems:
        _say(f"  {problem['kind']}: {problem['where']}: {problem['text']}")


def _shown(address: str) -> str:
    """Return an address as a person opens it."""
    return address.removeprefix("file:") if address.startswith("file:/") else address


def _say(text: str) -> None:
    # Standard error is Spark's, which says much.
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
