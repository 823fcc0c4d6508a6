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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob import BlobProperties, ContainerClient

from jobs.reconcile.__main__ import CONNECTION_SETTING, main
from jobs.reconcile.journal.address import ADDRESS_FILE
from jobs.reconcile.journal.hours import hour_of, hours_between
from jobs.reconcile.read.staging import container, stage
from jobs.reconcile.read.window import future_hours
from jobs.reconcile.settings import Settings, Window

PUBLISHED, FAILED = 0, 2

SUMMARY = "summary.json"
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_CONCURRENT = 8


class ResultsUnreachable(OSError):
    """The container with the results cannot be read or written; the message has its URL and the error."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Download, reconcile and publish; return the exit code of the container."""
    options, others = _parser().parse_known_args(arguments)
    day = options.date or datetime.now(UTC).date() - timedelta(days=1)
    window = Window.of_day(day)
    earliest = window.start - Settings().open_for
    journal, out = options.work / "journal", options.work / "out"
    connection = os.environ.get(CONNECTION_SETTING)
    try:
        client, prefix = container(options.journal, connection)
        with client:
            hours = [*hours_between(earliest, window.end), *future_hours(datetime.now(UTC))]
            count = stage(client, prefix, journal, hours=hours, progress=_print)
        _print(f"downloaded {count} journal files")
        client, prefix = container(options.results, connection)
        with client:
            results = Results(client, prefix, out)
            results.download(hour_of(earliest), without=window.run)
            where = ["--journal", str(journal), "--out", str(out), "--cores", "*"]
            main([*where, "--date", day.isoformat(), *others])
            if not (out / "runs" / window.run / SUMMARY).is_file():
                _print(f"reconcile: {window.run} has no summary; nothing is published")
                return FAILED
            results.publish()
    except OSError as error:
        _print(f"reconcile: could not reconcile {window.run}: {error}")
        return FAILED
    _print(f"published: runs/{window.run}")
    return PUBLISHED


class Results:
    """A folder, and the container that it is downloaded from and published to."""

    def __init__(self, client: ContainerClient, prefix: str, folder: Path) -> None:
        """Keep the blobs below *prefix* in *folder*."""
        self._client = client
        self._prefix = f"{prefix}/" if prefix else ""
        self._folder = folder
        self._where = client.url.split("?", maxsplit=1)[0]
        self._downloaded: dict[str, tuple[int, int] | None] = {}

    def download(self, earliest: str, *, without: str) -> None:
        """Download hours and runs since *earliest*, except the run *without*, and all summaries."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            for top in ("compacted/", "manifests/", "runs/"):
                listed = self._client.list_blobs(name_starts_with=f"{self._prefix}{top}", include=["metadata"])
                names = [str(blob.name) for blob in listed if not _is_folder(blob)]
                for name in (each.removeprefix(self._prefix) for each in names):
                    if name.startswith(f"runs/{without}/"):
                        self._downloaded[name] = None
                    elif name.endswith((f"/{SUMMARY}", f"/{ADDRESS_FILE}")) or _hour(name) >= earliest:
                        self._downloaded[name] = (0, 0)
            wanted = [name for name, state in self._downloaded.items() if state is not None]
            with ThreadPoolExecutor(_CONCURRENT) as pool:
                self._downloaded |= dict(pool.map(self._download_blob, wanted))
        except AzureError as error:
            raise ResultsUnreachable(f"{self._where}: {_code(error)}") from error

    def publish(self) -> None:
        """
        Make the container equal to the folder.

        A marker means that the tables of an hour are complete, and a summary that a run is. Changed ones are deleted
        first and uploaded last, so that a concurrent reader finds them missing, but never wrong.
        """
        local = {name: self._state(name) for name in self._names()}
        gone = [name for name in self._downloaded if name not in local]
        changed = [name for name, state in local.items() if state != self._downloaded.get(name)]
        try:
            with ThreadPoolExecutor(_CONCURRENT) as pool:
                for step in _in_order({*gone, *(name for name in changed if name in self._downloaded)}):
                    list(pool.map(self._delete, step))
                for step in reversed(_in_order(changed)):
                    list(pool.map(self._upload, step))
        except AzureError as error:
            raise ResultsUnreachable(f"{self._where}: {_code(error)}") from error

    def _names(self) -> list[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return [path.relative_to(self._folder).as_posix() for path in files]

    def _state(self, name: str) -> tuple[int, int]:
        status = (self._folder / name).stat()
        return status.st_size, status.st_mtime_ns

    def _download_blob(self, name: str) -> tuple[str, tuple[int, int]]:
        path = self._folder / name
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


def _hour(name: str) -> str:
    found = _HOUR.search(name)
    return found[0] if found else ""


def _code(error: AzureError) -> str:
    return str(getattr(error, "error_code", None) or type(error).__name__)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reconcile", description="Reconcile a day in a container without a lasting disk.", allow_abbrev=False
    )
    parser.add_argument("--journal", required=True, help="URL of the container with the journals")
    parser.add_argument("--results", required=True, help="URL of the container for the compacted hours and the results")
    parser.add_argument("--date", type=date.fromisoformat, help="the day to reconcile (UTC); default: yesterday")
    # A run remembers the addresses of its journal files: the folder must be the same every night.
    parser.add_argument("--work", type=Path, default=Path("/tmp/busway"), help="folder for the downloaded files")  # noqa: S108
    return parser


def _print(text: str) -> None:
    # Names come from the journal, which others may write.
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run())
