"""
Deletion of raw journal files whose hours are compacted, as a program: `python -m busway_reconcile.delete_raw`.

Each file is deleted only after its records were compared with the compacted ones. It exits with 0 if it did what it was
asked to do, 2 if not.
"""

import argparse
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from busway_reconcile.__main__ import CONNECTION_SETTING, say
from busway_reconcile.compact.hours import compacted_hours, deletable_raw
from busway_reconcile.read.files import JournalFile
from busway_reconcile.session import QUICK_START, configure, local_session
from busway_reconcile.storage import Storage

_COULD_NOT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line *arguments* and return its exit code."""
    options = _parser().parse_args(arguments)
    if options.before >= datetime.now(UTC).date():
        say(f"delete-raw: --before {options.before} is not over, expected a day before today")
        return _COULD_NOT
    try:
        _run(options)
    except Exception as error:  # noqa: BLE001 - Python's exit code for an exception, 1, means findings elsewhere
        traceback.print_exc()
        say(f"delete-raw: {type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
        return _COULD_NOT
    return 0


def _run(options: argparse.Namespace) -> None:
    spark = configure(SparkSession.getActiveSession() or _session(options))
    storage = Storage(spark)
    compacted = f"{storage.absolute(options.out)}/compacted"
    hours = sorted(hour for hour in compacted_hours(storage, compacted) if hour < options.before.isoformat())
    if not hours:
        say(f"no hour before {options.before} is compacted in {options.out}: run busway reconcile for its day first")
        return
    folder, delete = _journal(options.journal, Path(options.staging), hours)
    by_day: dict[str, list[JournalFile]] = defaultdict(list)
    changed = 0
    for file in deletable_raw(spark, storage.absolute(folder), compacted, hours):
        if options.yes:
            if delete is not None and not delete(file):
                changed += 1
                continue
            storage.delete(file.file.path)
        by_day[file.hour[:10]].append(file)
    for day, files in sorted(by_day.items()):
        say(f"{day}: {_amount(files)}")
    every = [file for files in by_day.values() for file in files]
    verb = "deleted" if options.yes else "would be deleted; nothing was changed, --yes does it"
    say(f"{_amount(every)} {verb}")
    if changed:
        say(f"{changed} files stay: they have changed since they were downloaded")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delete-raw", description="Delete raw journal files whose records are compacted."
    )
    parser.add_argument("--journal", required=True, help="as that of the reconciliation")
    parser.add_argument("--out", required=True, help="as that of the reconciliation")
    parser.add_argument("--before", type=date.fromisoformat, required=True, help="only hours before this day (UTC)")
    parser.add_argument("--yes", action="store_true", help="delete; without it, only count")
    parser.add_argument("--staging", default="build/journal", help="folder to which a container is downloaded")
    parser.add_argument("--memory", default="4g", help="memory of a local session")
    return parser


def _journal(journal: str, staging: Path, hours: Sequence[str]) -> tuple[str, Callable[[JournalFile], bool] | None]:
    """Return the journal as Spark reads it, and what deletes a file of the container that it was downloaded from."""
    if urlsplit(journal).scheme not in ("http", "https"):
        return journal, None
    # Imported here: a cluster reads abfss without the storage SDK.
    from busway_reconcile.read.staging import container, delete_unchanged, stage  # noqa: PLC0415

    client, prefix = container(journal, os.environ.get(CONNECTION_SETTING))
    stage(client, prefix, staging, hours=hours, progress=say)
    return str(staging), (lambda each: delete_unchanged(client, prefix, each.state.path, each.file))


def _session(options: argparse.Namespace) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return SparkSession.builder.appName("busway-delete-raw").getOrCreate()
    return local_session(memory=options.memory, java_options=QUICK_START)


def _amount(files: Sequence[JournalFile]) -> str:
    hours = len({file.hour for file in files})
    return f"{len(files):,} files of {hours:,} hours, {sum(file.file.size for file in files) / 1e6:,.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
