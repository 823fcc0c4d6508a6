"""
The job in a container that keeps nothing: what it needs is brought from storage, what it made is brought back.

A cluster reads and writes abfss by itself. Spark's own driver for that cannot sign in with the managed identity of
Azure Container Apps, whose endpoint wants a header that Hadoop's token provider does not send; Azure's SDK can. So the
results container has the same files as a cluster would have there, and either may take over from the other.

It ends with 0 once the summary is in the container, whatever it says: the platform tries again what ends otherwise.
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
from jobs.reconcile.inputs import hour_of, hours_between
from jobs.reconcile.origin import NOTE
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.staging import container, stage

PUBLISHED, FAILED = 0, 2

SUMMARY = "summary.json"
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_AT_ONCE = 8


class ResultsUnreachable(OSError):
    """The container with the results cannot be read or written; the message says where and what was answered."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Bring, reconcile and publish as *arguments* say; return the exit code of the container."""
    options, others = _parser().parse_known_args(arguments)
    day = options.date or datetime.now(UTC).date() - timedelta(days=1)
    window = Window.of_day(day)
    earliest = window.start - Settings().open_for
    journal, out = options.work / "journal", options.work / "out"
    connection = os.environ.get(CONNECTION_SETTING)
    try:
        client, prefix = container(options.journal, connection)
        with client:
            count = stage(client, prefix, journal, hours=hours_between(earliest, window.end), progress=_say)
        _say(f"{count} journal files brought")
        client, prefix = container(options.results, connection)
        with client:
            results = Results(client, prefix, out)
            results.bring(hour_of(earliest), but=window.run)
            where = ["--journal", str(journal), "--out", str(out), "--cores", "*"]
            main([*where, "--date", day.isoformat(), *others])
            if not (out / "runs" / window.run / SUMMARY).is_file():
                _say(f"reconcile: there is no summary of {window.run}; nothing is published")
                return FAILED
            results.publish()
    except OSError as error:
        _say(f"reconcile: could not decide about {window.run}: {error}")
        return FAILED
    _say(f"published: runs/{window.run}")
    return PUBLISHED


class Results:
    """A folder, and the container that it is brought from and published to."""

    def __init__(self, client: ContainerClient, prefix: str, folder: Path) -> None:
        """Keep in *folder* what lies below *prefix*."""
        self._client = client
        self._prefix = f"{prefix}/" if prefix else ""
        self._folder = folder
        self._where = client.url.split("?", maxsplit=1)[0]
        self._brought: dict[str, tuple[int, int] | None] = {}

    def bring(self, earliest: str, *, but: str) -> None:
        """Fill the folder with what a run needs: hours and runs since *earliest* but the run *but*, all summaries."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            for top in ("compacted/", "manifests/", "runs/"):
                listed = self._client.list_blobs(name_starts_with=f"{self._prefix}{top}", include=["metadata"])
                names = [str(blob.name) for blob in listed if not _is_folder(blob)]
                for name in (each.removeprefix(self._prefix) for each in names):
                    if name.startswith(f"runs/{but}/"):
                        self._brought[name] = None
                    elif name.endswith((f"/{SUMMARY}", f"/{NOTE}")) or _hour(name) >= earliest:
                        self._brought[name] = (0, 0)
            wanted = [name for name, there in self._brought.items() if there is not None]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                self._brought |= dict(pool.map(self._download, wanted))
        except AzureError as error:
            raise ResultsUnreachable(f"{self._where}: {_code(error)}") from error

    def publish(self) -> None:
        """
        Make the container what the folder is.

        A marker says that an hour's tables are whole, and a summary that a run is. They go first where they are to
        change and come last, so that whoever reads meanwhile finds them missing and not wrong.
        """
        local = {name: self._state(name) for name in self._names()}
        gone = [name for name in self._brought if name not in local]
        changed = [name for name, state in local.items() if state != self._brought.get(name)]
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for step in _in_order({*gone, *(name for name in changed if name in self._brought)}):
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

    def _download(self, name: str) -> tuple[str, tuple[int, int]]:
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
            return  # an earlier attempt got as far as this


def _is_folder(blob: BlobProperties) -> bool:
    # Accounts with real folders list them as blobs; other blobs without content are files of Spark's.
    return (blob.metadata or {}).get("hdi_isfolder") == "true"


def _in_order(names: Iterable[str]) -> list[list[str]]:
    """Return *names* in the order in which they are to be deleted: summaries, markers, all else."""
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
        prog="reconcile", description="Reconcile a day where no disk outlives the job.", allow_abbrev=False
    )
    parser.add_argument("--journal", required=True, help="URL of the container with the journals")
    parser.add_argument("--results", required=True, help="URL of the container for compacted hours and results")
    parser.add_argument("--date", type=date.fromisoformat, help="the day to reconcile (UTC); default: yesterday")
    # The addresses of journal files are part of what a run has seen: the folder has to be the same every night.
    parser.add_argument("--work", type=Path, default=Path("/tmp/busway"), help="a folder of its own")  # noqa: S108
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run())
