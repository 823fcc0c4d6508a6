"""`busway reconcile`: the nightly job, on Spark in local mode."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import typer

from cli.output import print_problems
from cli.stack import ROOT
from shared.errors import ConfigError, Problem, TargetUnavailable

OUT = Path("build/reconcile")

_COULD_NOT_DECIDE = 2
_JAVA = 17
_STORAGE = "AzureWebJobsStorage"


def reconcile(
    *,
    day: Annotated[
        datetime | None, typer.Option("--date", formats=["%Y-%m-%d"], help="The day, UTC. [default: yesterday]")
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="A folder with task=… below it, or the URL of a container: with a SAS, or else with your identity; "
            "in Azurite, with the key in AzureWebJobsStorage. [default: where config/journal.yaml says]",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the results: one for each journal.")] = OUT,
    grace: Annotated[float, typer.Option(help="Minutes for which what has not arrived is in flight.")] = 120,
    late_after: Annotated[float, typer.Option(help="Minutes after which a message is late.")] = 15,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Nothing writes to the journal any more: count the last hour too.")
    ] = False,
    refreeze: Annotated[
        bool, typer.Option("--refreeze", help="Repeat a run with the journal as it is now, not as it was then.")
    ] = False,
    memory: Annotated[str, typer.Option(help="Memory of Spark, as Java writes it.")] = "4g",
    folder: Annotated[
        Path, typer.Option("--config", envvar="BUSWAY_CONFIG", help="The folder with journal.yaml.")
    ] = Path("config"),
) -> None:
    """
    Say of every message of a day what became of it, from the journals, and write a page that tells it.

    Exit code 0: all messages are accounted for. 1: some are missing, doubled, altered or otherwise at fault. 2: it
    could not be decided, because evidence is missing or Spark cannot run. The page, the summary, the tables and the
    manifest for `busway repair` are in DIR/runs; the log of Spark is DIR/spark.log. Example:

    busway reconcile --date 2026-11-20 --journal https://account.blob.core.windows.net/journal
    """
    when = (datetime.now(UTC) - timedelta(days=1)).date() if day is None else day.date()
    try:
        check_spark()
        source, storage = journal_at(journal, folder)
        options = ["--date", when.isoformat(), "--grace-minutes", str(grace), "--late-minutes", str(late_after)]
        options += ["--memory", memory, *["--writers-stopped"] * stopped, *["--refreeze"] * refreeze]
        code = run_job(source, out, options, storage)
    except ConfigError as error:
        _end(error.problems)
    except TargetUnavailable as error:
        _end([error])
    raise typer.Exit(code)


def journal_at(journal: str | None, folder: Path) -> tuple[str, str | None]:
    """
    Return the journal as the job takes it, and the connection string of its account where a setting has one.

    Raises ConfigError.
    """
    if journal is not None:
        if "://" not in journal and not Path(journal).is_dir():
            hint = "expected a folder with task=… below it, or the URL of a container"
            raise ConfigError([Problem(journal, "is no folder", hint)])
        return journal, os.environ.get(_STORAGE) if is_emulated(journal) else None
    from azure.storage.blob import ContainerClient

    from shared.config.files import JOURNAL, load
    from shared.stores.storage_account import BLOB_SUFFIX, account_problem

    kept = load(folder).journal
    blob = None if kept is None else kept.container
    if blob is None:
        where = str(folder / JOURNAL)
        hint = "name it (`blob`, or `capture` of an event hub), or say where the journal is by --journal"
        raise ConfigError([Problem(where, "names no container of blobs", hint)])
    problem = account_problem(blob.setting, os.environ)
    if problem is not None:
        raise ConfigError([problem])
    text = os.environ.get(blob.setting)
    if text:
        return ContainerClient.from_connection_string(text, blob.container).url, text
    return f"{os.environ[blob.setting + BLOB_SUFFIX].rstrip('/')}/{blob.container}", None


def is_emulated(journal: str) -> bool:
    """Tell whether *journal* is the URL of a container in Azurite, whose account stands in the path."""
    return urlsplit(journal).path.startswith("/devstoreaccount1/")


def check_spark() -> None:
    """Raise ConfigError with all that the job needs and this machine does not have."""
    problems = [
        Problem(package, "is not installed", "pip install -r jobs/reconcile/requirements.txt")
        for package in ("pyspark", "jinja2", "matplotlib")
        if importlib.util.find_spec(package) is None
    ]
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin/java") if home else "java")
    hint = f"install OpenJDK {_JAVA} from adoptium.net or your system's packages, or set JAVA_HOME"
    if java is None:
        problems.append(Problem("java", "is not installed" if home is None else f"is not in JAVA_HOME, {home}", hint))
    else:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - as Spark
        version = re.search(r'version "(\d+)', told.stderr)
        if version is None or int(version[1]) < _JAVA:
            found = "no version" if version is None else f"version {version[1]}"
            problems.append(Problem(java, f"has {found}, Spark needs {_JAVA} or later", hint))
    if problems:
        raise ConfigError(problems)


def run_job(journal: str, out: Path, options: Sequence[str], storage: str | None = None) -> int:
    """
    Run the job in a process of its own, which says how far it is, and return its exit code.

    Raises TargetUnavailable where it ends without one of those that the job has.
    """
    out.mkdir(parents=True, exist_ok=True)
    # Spark's Python workers have to be this interpreter, and what is said on the way to them stays on this machine.
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        # In the environment and not on the command line: other users can read that.
        **({} if storage is None else {"BUSWAY_JOURNAL_STORAGE": storage}),
    }
    folders = ["--out", str(out.resolve()), "--staging", str((out / "journal").resolve())]
    command = [sys.executable, "-m", "jobs.reconcile", "--journal", journal, *folders, *options]
    with (out / "spark.log").open("w") as log:
        code = subprocess.run(command, env=environment, stderr=log, check=False).returncode  # noqa: S603 - our own job
    if code not in (0, 1, _COULD_NOT_DECIDE):
        raise TargetUnavailable(f"the job ended with code {code}, expected 0, 1 or 2; its log is {out / 'spark.log'}")
    return code


def _end(problems: Iterable[object]) -> NoReturn:
    """Say why nothing can be decided: exit code 1 would mean findings."""
    print_problems(problems)
    raise typer.Exit(_COULD_NOT_DECIDE)
