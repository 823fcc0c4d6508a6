"""`busway reconcile`: the nightly job, on Spark in local mode."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.options import RECONCILIATIONS, JournalFolder, SparkMemory
from shared.errors import ConfigError, Problem


def reconcile(
    *,
    day: Annotated[
        datetime | None,
        typer.Option("--date", formats=["%Y-%m-%d"], help="The day to reconcile, in UTC. [default: yesterday]"),
    ] = None,
    hourly: Annotated[
        bool,
        typer.Option(
            "--hourly",
            help="Instead of a day, reconcile each closed hour of the last day that no run has counted yet. Start it "
            "every hour; the run of the day then reads no raw file again.",
        ),
    ] = False,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="A folder with task=… below it, or the URL of a blob container. A URL without a SAS uses your Azure "
            "identity, and a container in Azurite the key in AzureWebJobsStorage. [default: the container in "
            "config/journal.yaml]",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for the results. Use a folder of its own for each journal.")
    ] = RECONCILIATIONS,
    grace_minutes: Annotated[
        float, typer.Option(help="How long a message that has not arrived counts as in flight.")
    ] = 120,
    late_minutes: Annotated[float, typer.Option(help="The lag from which a message counts as late.")] = 15,
    writers_stopped: Annotated[
        bool,
        typer.Option(
            "--writers-stopped", help="Count the current hour too, because nothing writes to the journal any longer."
        ),
    ] = False,
    refreeze: Annotated[
        bool,
        typer.Option(
            "--refreeze",
            help="Repeat a run with the journal as it is now, including files that came after the first time.",
        ),
    ] = False,
    removed_tap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK=TARGET",
            help="A tap that was removed on purpose, besides those in `removed_taps` of config/journal.yaml: it is not "
            "reported as silent. Can be repeated.",
        ),
    ] = None,
    memory: SparkMemory = "4g",
    folder: JournalFolder = Path("config"),
) -> None:
    """
    Reconcile the journals of a day, or of each closed hour: a verdict for every message, and a page with the findings.

    Exit code 0: all messages are accounted for. 1: findings, for example missing, duplicated or altered messages. 2:
    could not decide, because evidence is missing or Spark cannot run. DIR/runs has the page, the summary, the tables
    and the manifest for `busway repair`; DIR/spark.log has the log of Spark. Example:

    busway reconcile --date 2026-11-20 --journal https://account.blob.core.windows.net/journal
    """
    for name, is_used in (("--date", day is not None), ("--writers-stopped", writers_stopped)):
        if hourly and is_used:
            raise ConfigError([Problem(f"--hourly and {name}", "exclude each other", "use only one of them")])

    from cli.journal import check_answers, journal_at, removed_taps
    from cli.spark import check_spark, run_job

    check_spark()
    source, storage = journal_at(journal, folder)
    check_answers(source, storage)
    when = datetime.now(UTC) - timedelta(days=1) if day is None else day
    options = ["--hourly"] if hourly else ["--date", f"{when:%Y-%m-%d}"]
    options += ["--grace-minutes", str(grace_minutes), "--late-minutes", str(late_minutes)]
    options += [f"--removed-tap={tap}" for tap in [*(removed_tap or []), *removed_taps(folder)]]
    options += ["--memory", memory, *["--writers-stopped"] * writers_stopped, *["--refreeze"] * refreeze]
    raise typer.Exit(run_job(source, out, options, storage))
