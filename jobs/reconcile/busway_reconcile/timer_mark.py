"""
Whether the timer of the app still runs: it leaves a mark in the container with the results, at least every ten minutes.

Timers of a Function app can stop for good and silently (azure-functions-host 11828, 11812), and all that watches the
app hangs on them. The hourly job does not: what it prints is in the workspace, where an alert looks for these words.
"""

from datetime import datetime, timedelta

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient

MARK = "nightly/timer.json"
SILENT_AFTER = timedelta(minutes=45)


def silence(client: ContainerClient, prefix: str, now: datetime) -> str | None:
    """Return what is to be said about a timer that stands still, None about one that runs; raises AzureError."""
    name = f"{prefix}/{MARK}" if prefix else MARK
    try:
        written = client.get_blob_client(name).get_blob_properties().last_modified
    except ResourceNotFoundError:
        return "the timer of the app has not run yet; docs/runbook.md, Alert: timer-silent"
    if now - written <= SILENT_AFTER:
        return None
    return f"the timer of the app has not run since {written:%Y-%m-%d %H:%M} UTC; docs/runbook.md, Alert: timer-silent"
