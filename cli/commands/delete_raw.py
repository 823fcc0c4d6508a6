"""`busway delete-raw`: raw journal files that are not needed any more."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.options import RECONCILIATIONS, JournalFolder, SparkMemory, Yes


def delete_raw(
    *,
    before: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="Only hours before this day, in UTC. It must be over.")
    ],
    yes: Yes = False,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL", help="As for `busway reconcile`. [default: the container in config/journal.yaml]"
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of the reconciliations, which has the compacted hours.")
    ] = RECONCILIATIONS,
    memory: SparkMemory = "4g",
    folder: JournalFolder = Path("config"),
) -> None:
    """
    Delete raw journal files whose records the reconciliation has compacted.

    A file is deleted only after all its records were found among the compacted ones in DIR, and only if it has not
    changed since. Hours that no reconciliation has read, and hours with problems, stay. `busway trace` reads raw
    files: it no longer finds messages of deleted hours.

    Exit code 0: done. 2: not done; what was compared before is deleted. Repeat it then. Example:

    busway delete-raw --before 2026-10-01 --yes
    """
    from cli.journal import check_answers, journal_at
    from cli.spark import check_spark, run_job

    check_spark()
    source, storage = journal_at(journal, folder)
    check_answers(source, storage)
    options = ["--before", f"{before:%Y-%m-%d}", "--memory", memory, *["--yes"] * yes]
    raise typer.Exit(run_job(source, out, options, storage, program="busway_reconcile.delete_raw"))
