"""
The job in a container without a lasting disk: it downloads its inputs from storage and uploads its results.

A cluster reads and writes abfss itself. Hadoop's driver for abfss cannot sign in with the managed identity of Azure
Container Apps, whose endpoint requires a header that Hadoop's token provider does not send; Azure's SDK can. The
results container has the same files as with a cluster, so either can continue after the other.

It exits with 0 once the summary is uploaded, whatever the verdict: the platform retries a container that fails.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob import BlobProperties, ContainerClient

from busway_reconcile.__main__ import CONNECTION_SETTING, main, say
from busway_reconcile.journal.address import ADDRESS_FILE
from busway_reconcile.journal.hours import hour_of, hours_between
from busway_reconcile.lease import leased
from busway_reconcile.read.runs import future_hours, recent_hours
from busway_reconcile.read.staging import container, path_below, stage
from busway_reconcile.settings import Settings, Window

PUBLISHED, FAILED = 0, 2

SUMMARY = "summary.json"
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_CONCURRENT = 8
MARK = "nightly/timer.json"
"""The mark that the timer of the app leaves in the container with the results, at least every ten minutes."""
SILENT_AFTER = timedelta(minutes=45)


class ResultsUnreachable(OSError):
    """The container with the results cannot be read or written; the message has its URL and the error."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Download, reconcile and publish; return the exit code of the container."""
    options, others = _parser().parse_known_args(arguments)
    now = options.now or datetime.now(UTC)
    window = recent_hours(now) if options.hourly else Window.of_day(options.date or now.date() - timedelta(days=1))
    what = "the closed hours" if options.hourly else window.run
    earliest = window.start - Settings().open_for
    # An hourly run reads older hours as they were compacted; the run of the day reports their late files.
    oldest = window.start if options.hourly else earliest
    journal, out = options.work / "journal", options.work / "out"
    connection = os.environ.get(CONNECTION_SETTING)
    try:
        client, prefix = container(options.results, connection)
        with client, _leased(client, prefix) as check:
            if options.hourly and (text := silence(client, prefix, now)) is not None:
                say(f"reconcile: {text}")
            of_journal, prefix_of_journal = container(options.journal, connection)
            with of_journal:
                hours = [*hours_between(oldest, window.end), *future_hours(now)]
                count = stage(of_journal, prefix_of_journal, journal, hours=hours, progress=say)
            say(f"downloaded {count} journal files")
            results = Results(client, prefix, out)
            results.download(hour_of(earliest), without=None if options.hourly else window.run)
            where = ["--journal", str(journal), "--out", str(out), "--cores", "*", "--now", now.isoformat()]
            main([*where, *(["--hourly"] if options.hourly else ["--date", f"{window.start:%Y-%m-%d}"]), *others])
            is_done = (
                _is_counted(out, window.end) if options.hourly else (out / "runs" / window.run / SUMMARY).is_file()
            )
            if not is_done and not options.hourly:
                say(f"reconcile: {what} has no summary; nothing is published")
                return FAILED
            check()
            results.publish()
    except OSError as error:
        say(f"reconcile: could not reconcile {what}: {error}")
        return FAILED
    if not is_done:
        say("reconcile: not all closed hours have a summary; the others are published")
        return FAILED
    say(f"published: {'the closed hours' if options.hourly else f'runs/{window.run}'}")
    return PUBLISHED


def silence(client: ContainerClient, prefix: str, now: datetime) -> str | None:
    """
    Return what is to be said about the timer of the app if it stands still, None if it runs; raises AzureError.

    Timers of a Function app can stop for good and silently (azure-functions-host 11828, 11812), and all that watches
    the app hangs on them. The hourly job does not: what it prints is in the workspace, where an alert looks for it.
    """
    name = f"{prefix}/{MARK}" if prefix else MARK
    try:
        written = client.get_blob_client(name).get_blob_properties().last_modified
    except ResourceNotFoundError:
        return "the timer of the app has not run yet; docs/runbook.md, Alert: timer-silent"
    if now - written <= SILENT_AFTER:
        return None
    return f"the timer of the app has not run since {written:%Y-%m-%d %H:%M} UTC; docs/runbook.md, Alert: timer-silent"


@contextmanager
def _leased(client: ContainerClient, prefix: str) -> Iterator[Callable[[], None]]:
    """Hold the lease; raises ResultsUnreachable also for an error of the SDK within the context."""
    try:
        with leased(client, prefix, say) as check:
            yield check
    except AzureError as error:
        code = getattr(error, "error_code", None) or type(error).__name__
        raise ResultsUnreachable(f"{client.url.split('?', maxsplit=1)[0]}: {code}") from error


def _is_counted(out: Path, end: datetime) -> bool:
    """Return whether a run below *out* ends at *end* or later."""
    found = ((Window.of_run(path.parent.name), path) for path in out.glob(f"runs/*/{SUMMARY}"))
    return any(window is not None and window.end >= end for window, _ in found)


class Results:
    """A folder, and the container that it is downloaded from and published to."""

    def __init__(self, client: ContainerClient, prefix: str, folder: Path) -> None:
        """Keep the blobs below *prefix* in *folder*."""
        self._client = client
        self._prefix = f"{prefix}/" if prefix else ""
        self._folder = folder
        self._downloaded: dict[str, tuple[int, int] | None] = {}

    def download(self, earliest: str, *, without: str | None) -> None:
        """
        Download hours and runs since *earliest*, except the run *without*, and all summaries.

        Of the runs of hours, only what later runs read; what an attempt without a summary left is to be deleted.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for top in ("compacted/", "manifests/", "runs/"):
            listed = self._client.list_blobs(name_starts_with=f"{self._prefix}{top}", include=["metadata"])
            names = [str(blob.name) for blob in listed if not _is_folder(blob)]
            found = {name.removeprefix(self._prefix) for name in names}
            for name in found:
                run, _, rest = name.removeprefix(top).partition("/")
                is_torn = top == "runs/" and f"{top}{run}/{SUMMARY}" not in found
                if is_torn or name.startswith(f"runs/{without}/"):
                    self._downloaded[name] = None
                elif top == "runs/" and _is_hour(run) and not rest.startswith((SUMMARY, "open/")):
                    continue
                elif name.endswith((f"/{SUMMARY}", f"/{ADDRESS_FILE}")) or _hour(name) >= earliest:
                    self._downloaded[name] = (0, 0)
        wanted = [name for name, state in self._downloaded.items() if state is not None]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            self._downloaded |= dict(pool.map(self._download_blob, wanted))

    def publish(self) -> None:
        """
        Make the container equal to the folder.

        A marker means that the tables of an hour are complete, and a summary that a run is. Changed ones are deleted
        first and uploaded last, so that a concurrent reader finds them missing, but never wrong.
        """
        local = {name: self._state(name) for name in self._names()}
        gone = [name for name in self._downloaded if name not in local]
        changed = [name for name, state in local.items() if state != self._downloaded.get(name)]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            for step in _in_order({*gone, *(name for name in changed if name in self._downloaded)}):
                list(pool.map(self._delete, step))
            for step in reversed(_in_order(changed)):
                list(pool.map(self._upload, step))

    def _names(self) -> list[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return [path.relative_to(self._folder).as_posix() for path in files]

    def _state(self, name: str) -> tuple[int, int]:
        status = (self._folder / name).stat()
        return status.st_size, status.st_mtime_ns

    def _download_blob(self, name: str) -> tuple[str, tuple[int, int]]:
        path = path_below(self._folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._client.download_blob(f"{self._prefix}{name}").readall())
        return name, self._state(name)

    def _upload(self, name: str) -> None:
        with (self._folder / name).open("rb") as content:
            self._client.upload_blob(f"{self._prefix}{name}", content, overwrite=True)

    def _delete(self, name: str) -> None:
        try:
            self._client.delete_blob(f"{self._prefix}{name}")
        except ResourceNotFoundError:
            return  # an earlier attempt deleted it


def _is_folder(blob: BlobProperties) -> bool:
    # Accounts with a hierarchical namespace list folders as blobs; other empty blobs are Spark's.
    return (blob.metadata or {}).get("hdi_isfolder") == "true"


def _in_order(names: Iterable[str]) -> list[list[str]]:
    """Return *names* in the order in which to delete them: summaries, markers, all others."""
    steps: list[list[str]] = [[], [], []]
    for name in names:
        step = 0 if name.endswith(f"/{SUMMARY}") else 1 if name.startswith(("compacted/hours/", "manifests/")) else 2
        steps[step].append(name)
    return steps


def _is_hour(run: str) -> bool:
    window = Window.of_run(run)
    return window is not None and window.end - window.start == timedelta(hours=1)


def _hour(name: str) -> str:
    found = _HOUR.search(name)
    return found[0] if found else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reconcile",
        description="Reconcile a day, or the closed hours, in a container without a lasting disk.",
        allow_abbrev=False,
    )
    parser.add_argument("--journal", required=True, help="URL of the container with the journals")
    parser.add_argument("--results", required=True, help="URL of the container for the compacted hours and the results")
    windows = parser.add_mutually_exclusive_group()
    windows.add_argument("--date", type=date.fromisoformat, help="the day to reconcile (UTC); default: yesterday")
    windows.add_argument(
        "--hourly", action="store_true", help="instead of a day: each closed hour that no run has counted yet"
    )
    parser.add_argument("--now", type=datetime.fromisoformat, help=argparse.SUPPRESS)
    # A run remembers the addresses of its journal files: the folder must be the same every night.
    parser.add_argument("--work", type=Path, default=Path("/tmp/busway"), help="folder for the downloaded files")  # noqa: S108
    return parser


if __name__ == "__main__":
    sys.exit(run())
