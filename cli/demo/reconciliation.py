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

_CONTAINER = "journal"
_SETTING = "AzureWebJobsStorage"
_HOUR = "%Y-%m-%dT%H"


def with_journal(logs: Path) -> Path:
    """Return a copy of the configuration whose tasks write their journals to Azurite."""
    folder = (logs / "config").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "config", folder, ignore=shutil.ignore_patterns("examples"))
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
