"""The nightly job over the journal of a test that has just run."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from azure.storage.blob import ContainerClient

from cli.spark import run_job

_HOUR = timedelta(hours=1)


def reconciled(storage: str, out: Path, begun: datetime, *options: str) -> tuple[int, dict[str, Any]]:
    """Reconcile the container `journal` from the hour of *begun* on; return the exit code and the summary."""
    start, end = (each.replace(minute=0, second=0, microsecond=0) for each in (begun, datetime.now(UTC) + _HOUR))
    hours = ["--start", start.strftime("%Y-%m-%dT%H"), "--end", end.strftime("%Y-%m-%dT%H")]
    url = ContainerClient.from_connection_string(storage, "journal").url
    code = run_job(url, out, [*hours, "--grace-minutes", "0", "--writers-stopped", "--memory", "1g", *options], storage)
    (path,) = out.glob("runs/*/summary.json")
    return code, json.loads(path.read_text())
