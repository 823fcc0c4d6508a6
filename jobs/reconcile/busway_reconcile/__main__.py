"""
The job as a program: `spark-submit` with this file in a cluster, `busway-reconcile` or `python -m busway_reconcile`.

It exits with 0 if all messages are accounted for, 1 with findings, 2 if the evidence is incomplete.
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

from busway_reconcile.journal.hours import hours_between
from busway_reconcile.read.files import hour_in
from busway_reconcile.read.runs import due_hours, future_hours, recent_hours
from busway_reconcile.reconciliation import Result, reconcile
from busway_reconcile.report.delta import check_delta, write_delta
from busway_reconcile.report.page import write_page
from busway_reconcile.report.repair_manifest import REPAIRABLE, write_manifest
from busway_reconcile.session import java_options, local_session
from busway_reconcile.settings import Settings, Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import CLEAN, COULD_NOT_DECIDE, FOUND

CONNECTION_SETTING = "BUSWAY_JOURNAL_STORAGE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job with command-line *arguments* and return its exit code."""
    options = _parser().parse_args(arguments)
    now = options.now or datetime.now(UTC)
    try:
        window = _window(options, now)
    except ValueError as error:
        say(f"reconcile: {error}")
        return COULD_NOT_DECIDE
    settings = Settings(
        grace=timedelta(minutes=options.grace_minutes),
        late_after=timedelta(minutes=options.late_minutes),
        writers_stopped=options.writers_stopped,
        refreeze=options.refreeze,
        removed_taps=tuple(options.removed_tap),
    )
    # The run whose failure is reported.
    current = "the closed hours" if options.hourly else window.run
    codes = []
    try:
        hours = [*hours_between(window.start - settings.open_for, window.end), *future_hours(now)]
        journal = _readable_by_spark(options.journal, Path(options.staging), hours)
        spark = _session(options, journal, window)
        if options.delta is not None:
            check_delta(spark)
        windows = due_hours(Storage(spark), options.out, now) if options.hourly else [window]
        for each in windows:
            current = each.run
            codes.append(_reconcile(spark, journal, each, options, now=now, settings=settings))
    except Exception as error:  # noqa: BLE001 - Python's exit code for an exception, 1, means findings here
        traceback.print_exc()
        say(f"reconcile: could not reconcile {current}: {_sentence(error)}")
        return COULD_NOT_DECIDE
    if not codes:
        say(f"all closed hours until {window.end:%Y-%m-%d %H:%M} are reconciled")
    return next((code for code in (FOUND, COULD_NOT_DECIDE) if code in codes), CLEAN)


def _reconcile(
    spark: SparkSession,
    journal: str,
    window: Window,
    options: argparse.Namespace,
    *,
    now: datetime,
    settings: Settings,
) -> int:
    """Reconcile one *window*, write all its results, print them, and return its exit code."""
    result = reconcile(
        spark,
        journal,
        options.out,
        window=window,
        now=now,
        settings=settings,
        progress=say,
    )
    has_losses = any(result.summary.counts.get(verdict) for verdict in REPAIRABLE)
    manifest = write_manifest(spark, result.summary, options.out) if has_losses else None
    page = write_page(spark, result.summary, options.out)
    if options.delta is not None:
        write_delta(spark, result.summary, options.out, options.delta)
    _print_result(result)
    if manifest is not None:
        say(f"manifest for busway repair: {_path(manifest)}")
    say(f"page: {_path(page)}")
    return result.exit_code


def _sentence(error: Exception) -> str:
    # py4j puts the failing call before the message of a Java exception.
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).strip().splitlines()[0]
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reconcile",
        description="Reconcile journals: one verdict for every message of a day or of a window of hours.",
    )
    parser.add_argument(
        "--journal", required=True, help="folder or abfss address with task=… below it, or the URL of a container"
    )
    parser.add_argument("--out", required=True, help="folder or abfss address for the compacted hours and the results")
    windows = parser.add_mutually_exclusive_group()
    windows.add_argument("--date", type=date.fromisoformat, help="the day to reconcile (UTC); default: yesterday")
    windows.add_argument(
        "--start", type=_moment, help="instead of --date: the first hour of the window, for example 2026-11-20T00"
    )
    parser.add_argument("--end", type=_moment, help="with --start: the hour after the last one of the window")
    windows.add_argument(
        "--hourly",
        action="store_true",
        help="instead of --date: each closed hour that no run has counted yet, each as a run of its own",
    )
    parser.add_argument(
        "--grace-minutes", type=float, default=120, help="how long a message that has not arrived counts as in flight"
    )
    parser.add_argument("--late-minutes", type=float, default=15, help="the lag from which a message counts as late")
    parser.add_argument(
        "--writers-stopped",
        action="store_true",
        help="nothing writes to the journal any longer: count the current hour too",
    )
    parser.add_argument(
        "--refreeze",
        action="store_true",
        help="repeat a run with the journal as it is now, including files that came later",
    )
    parser.add_argument(
        "--removed-tap",
        action="append",
        default=[],
        metavar="TASK=TARGET",
        help="a tap that was removed on purpose, for example copy=east/orders: it is not reported as silent",
    )
    parser.add_argument(
        "--staging", default="build/journal", help="folder to which the journal of a container is downloaded"
    )
    parser.add_argument(
        "--delta",
        metavar="FOLDER",
        help="also write the tables of the run into the Delta tables below this folder or abfss address",
    )
    parser.add_argument("--memory", default="4g", help="memory of a local session")
    parser.add_argument("--cores", default="2", type=_cores, help="cores of a local session; * for all cores")
    parser.add_argument("--now", type=datetime.fromisoformat, help=argparse.SUPPRESS)
    return parser


def _window(options: argparse.Namespace, now: datetime) -> Window:
    """Return the window to reconcile, or with --hourly the one that has all hours which may be due."""
    if (options.start is None) != (options.end is None):
        raise ValueError("--start and --end: use both or neither")
    if options.hourly:
        if options.writers_stopped:
            raise ValueError("--hourly and --writers-stopped: use only one of them, a run of hours counts closed hours")
        return recent_hours(now)
    if options.start is not None:
        return Window(options.start, options.end)
    return Window.of_day(options.date or now.astimezone(UTC).date() - timedelta(days=1))


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)


def _cores(text: str) -> str:
    if text != "*" and not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"got {text}, expected a number of cores, or * for all")
    return text


def _readable_by_spark(journal: str, staging: Path, hours: Sequence[str]) -> str:
    if urlsplit(journal).scheme not in ("http", "https"):
        return journal
    # Imported here: a cluster reads abfss without the storage SDK.
    from busway_reconcile.read.staging import container, stage  # noqa: PLC0415

    client, prefix = container(journal, os.environ.get(CONNECTION_SETTING))
    with client:
        count = stage(client, prefix, staging, hours=hours, progress=say)
    say(f"downloaded {count} journal files to {staging}")
    return str(staging)


def _session(options: argparse.Namespace, journal: str, window: Window) -> SparkSession:
    # spark-submit and notebooks configure the session themselves.
    if SparkSession.getActiveSession() is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return SparkSession.builder.appName("busway-reconcile").getOrCreate()
    sizes = dict.fromkeys(window.hours, 0)
    for path in Path(_path(journal)).rglob("*.jsonl.gz"):
        hour = hour_in(path.as_posix())
        if hour in sizes:
            sizes[hour] += path.stat().st_size
    size = max(sizes.values()) if options.hourly else sum(sizes.values())
    return local_session(memory=options.memory, cores=options.cores, java_options=java_options(size))


def _print_result(result: Result) -> None:
    summary = result.summary
    say(f"{summary.run}: {summary.verdict}. {summary.sentence}")
    for task in summary.tasks:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in task.verdicts.items())
        say(f"  {task.task} (evidence: {task.evidence}): {counts or 'no messages'}")
    for problem in summary.problems:
        say(f"  {problem['kind']}: {problem['where']}: {problem['text']}")


def _path(address: str) -> str:
    """Return a local address as a path."""
    return address.removeprefix("file:") if address.startswith("file:/") else address


def say(text: str) -> None:
    """Print *text*."""
    # Spark writes its log to standard error.
    # Names come from the journal, which others may write.
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
