"""The app settings of the nightly reconciliation."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from urllib.parse import urlsplit

from shared.errors import ConfigError, Problem

RESULTS = "BUSWAY_RECONCILIATION"
JOB = "BUSWAY_NIGHTLY_JOB"
SCHEDULE = "BUSWAY_NIGHTLY_SCHEDULE"
DUE = "BUSWAY_NIGHTLY_DUE"

MORNING = time(6)
READY = time(1, 30)
"""Time (UTC) from which the day before can be reconciled: its last hour is closed, its last messages arrived."""

MANAGEMENT = "https://management.azure.com"
_LOOPBACK = ("127.0.0.1", "localhost")
_PARTS = ("subscriptions", "resourcegroups", "providers", "jobs")


@dataclass(frozen=True)
class NightlySettings:
    """
    The settings of the nightly reconciliation.

    Shape:   *results* is the URL of a container; *job* that of a Container Apps job in Azure Resource Manager, or None
             if something else starts the job and only its results are read; *schedule* is NCRONTAB, None:
             four times an hour.
    Units:   *due* is a time of the day in UTC.
    """

    results: str
    job: str | None
    schedule: str | None
    due: time


def nightly_settings(settings: Mapping[str, str]) -> NightlySettings | None:
    """Return the settings of the reconciliation, None if it is not configured; raises ConfigError."""
    results, job, due = (settings.get(name) or None for name in (RESULTS, JOB, DUE))
    if results is None:
        if job is None:
            return None
        hint = "set it to https://ACCOUNT.blob.core.windows.net/CONTAINER, where the job writes its runs"
        raise ConfigError([Problem(RESULTS, f"the app setting is missing beside {JOB}", hint)])
    problems = []
    if not _is_safe(results) or len(urlsplit(results).path.strip("/")) == 0:
        hint = "expected https://ACCOUNT.blob.core.windows.net/CONTAINER"
        problems.append(Problem(RESULTS, "the app setting is not the URL of a container", hint))
    at = None if job is None else job if "://" in job else f"{MANAGEMENT}/{job.strip('/')}"
    if at is not None and not _is_job(at):
        hint = "expected /subscriptions/…/resourceGroups/…/providers/Microsoft.App/jobs/NAME"
        problems.append(Problem(JOB, "the app setting is not the resource id of a Container Apps job", hint))
    morning = MORNING if due is None else _time(due)
    if morning is None or morning <= READY:
        hint = f"it looks like {MORNING:%H:%M} and is later than {READY:%H:%M}"
        problems.append(Problem(DUE, "the app setting is not a time at which a result can be due", hint))
    if problems or morning is None:
        raise ConfigError(problems)
    return NightlySettings(results, at, settings.get(SCHEDULE) or None, morning)


def _is_safe(url: str) -> bool:
    """Return whether a token may be sent to *url*: over TLS, or to this machine."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


def _is_job(url: str) -> bool:
    parts = urlsplit(url)
    path = parts.path.strip("/").split("/")
    # subscriptions/ID/resourceGroups/NAME/providers/Microsoft.App/jobs/NAME; Resource Manager ignores case.
    named = tuple(each.lower() for each in path[::2]) == _PARTS and all(path)
    return _is_safe(url) and named and path[5].lower() == "microsoft.app" and not parts.query


def _time(text: str) -> time | None:
    try:
        return datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007 - a time of the day has no zone
    except ValueError:
        return None
