"""The end of the demo: the nightly job reconciles the journals of the tasks."""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from busway import ROOT
from cli.output import print_problems
from cli.spark import check_spark, run_job
from shared.errors import ConfigError
from shared.stores.storage_account import container_url

_TASKS = ("events.yaml", "jobs.yaml", "payments.yaml")
_CONTAINER = "journal"
_SETTING = "AzureWebJobsStorage"
_HOUR = "%Y-%m-%dT%H"


def with_journal(logs: Path, config: Path = ROOT / "config") -> Path:
    """Return a copy of the demo's part of *config*, whose tasks write their journals to Azurite."""
    folder = (logs / "config").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tasks").mkdir(parents=True)
    shutil.copy(config / "connections.yaml", folder)
    # Not the tasks that somebody has written beside them.
    for name in _TASKS:
        shutil.copy(config / "tasks" / name, folder / "tasks")
    text = f"blob: {{setting: {_SETTING}, container: {_CONTAINER}}}\n"
    (folder / "journal.yaml").write_text(text, encoding="utf-8")
    return folder


async def reconcile_demo(storage: str, logs: Path, begun: datetime, console: Console) -> bool:
    """
    Reconcile the journals since *begun*; return whether the job has no findings.

    If Spark cannot run, print the reason and return True: the demo has counted for itself.
    """
    try:
        check_spark()
    except ConfigError as error:
        console.print("\nNot reconciled:")
        print_problems(error.problems)
        return True
    console.print("\nReconciling the journals with the nightly job, on Spark on this machine:")
    out = logs / "reconciliation"
    shutil.rmtree(out, ignore_errors=True)
    first = begun.replace(minute=0, second=0, microsecond=0)
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    options = ["--start", first.strftime(_HOUR), "--end", end.strftime(_HOUR), "--memory", "1g"]
    # Everything has arrived or is lost, and no task writes any longer.
    options += ["--grace-minutes", "0", "--writers-stopped"]
    url = container_url("storage", {"storage": storage}, _CONTAINER)
    return await asyncio.to_thread(run_job, url, out, options, storage) == 0
