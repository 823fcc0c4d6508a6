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

from cli.options import JournalFolder, SparkMemory
from cli.output import print_problems
from cli.stack import ROOT
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.private_file import PRIVATE_UMASK, open_private

OUT = Path("build/reconcile")

_COULD_NOT_DECIDE = 2
_JAVA = 17
_STORAGE = "AzureWebJobsStorage"


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
    ] = OUT,
    grace: Annotated[
        float, typer.Option(help="Minutes for which a message that has not arrived counts as in flight.")
    ] = 120,
    late_after: Annotated[float, typer.Option(help="Minutes after which an arriving message counts as late.")] = 15,
    stopped: Annotated[
        bool,
        typer.Option("--stopped", help="Count the current hour too, because nothing writes to the journal any longer."),
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
    for name, is_used in (("--date", day is not None), ("--stopped", stopped)):
        if hourly and is_used:
            _end([Problem(f"--hourly and {name}", "exclude each other", "use only one of them")])
    when = (datetime.now(UTC) - timedelta(days=1)).date() if day is None else day.date()
    try:
        check_spark()
        source, storage = journal_at(journal, folder)
        options = ["--hourly"] if hourly else ["--date", when.isoformat()]
        options += ["--grace-minutes", str(grace), "--late-minutes", str(late_after)]
        options += [f"--removed-tap={each}" for each in [*(removed_tap or []), *removed_taps(folder)]]
        options += ["--memory", memory, *["--writers-stopped"] * stopped, *["--refreeze"] * refreeze]
        code = run_job(source, out, options, storage)
    except ConfigError as error:
        _end(error.problems)
    except TargetUnavailable as error:
        _end([error])
    raise typer.Exit(code)


def journal_at(journal: str | None, folder: Path) -> tuple[str, str | None]:
    """
    Return the address of the journal, and the connection string of its account if a setting has one.

    Raises ConfigError.
    """
    if journal is not None:
        if "://" not in journal and not Path(journal).is_dir():
            hint = "expected a folder with task=… below it, or the URL of a container"
            raise ConfigError([Problem(journal, "folder not found", hint)])
        return journal, os.environ.get(_STORAGE) if is_emulated(journal) else None
    from azure.storage.blob import ContainerClient

    from shared.config.files import JOURNAL, load
    from shared.stores.storage_account import BLOB_SUFFIX, account_problem

    kept = load(folder).journal
    blob = None if kept is None else kept.container
    if blob is None:
        where = str(folder / JOURNAL)
        hint = "add `blob`, or `capture` to the event hub, or use --journal PATH|URL"
        raise ConfigError([Problem(where, "names no blob container", hint)])
    problem = account_problem(blob.setting, os.environ)
    if problem is not None:
        raise ConfigError([problem])
    text = os.environ.get(blob.setting)
    if text:
        return ContainerClient.from_connection_string(text, blob.container).url, text
    return f"{os.environ[blob.setting + BLOB_SUFFIX].rstrip('/')}/{blob.container}", None


def removed_taps(folder: Path) -> list[str]:
    """Return the taps that journal.yaml in *folder* lists as removed, if there is one; raises ConfigError."""
    from shared.config.files import JOURNAL, load

    kept = load(folder).journal if (folder / JOURNAL).is_file() else None
    return [] if kept is None else list(kept.removed_taps)


def is_emulated(journal: str) -> bool:
    """Return whether *journal* is the URL of a container in Azurite, which has the account in its path."""
    return urlsplit(journal).path.startswith("/devstoreaccount1/")


def check_spark() -> None:
    """Raise ConfigError with every package and program that the job needs and this machine lacks."""
    problems = [
        Problem(package, "is not installed", "pip install -r jobs/reconcile/requirements.txt")
        for package in ("pyspark", "jinja2")
        if importlib.util.find_spec(package) is None
    ]
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin/java") if home else "java")
    hint = f"install OpenJDK {_JAVA} from adoptium.net or your system's packages, or set JAVA_HOME"
    if java is None:
        problems.append(
            Problem("java", "is not installed" if home is None else f"not found in JAVA_HOME ({home})", hint)
        )
    else:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - as Spark
        version = re.search(r'version "(\d+)', output.stderr)
        if version is None or int(version[1]) < _JAVA:
            found = "an unknown version" if version is None else f"version {version[1]}"
            problems.append(Problem(java, f"has {found}, but Spark needs {_JAVA} or later", hint))
    if problems:
        raise ConfigError(problems)


def run_job(
    journal: str, out: Path, options: Sequence[str], storage: str | None = None, *, program: str = "jobs.reconcile"
) -> int:
    """
    Run the job in a process of its own, which prints its progress, and return its exit code.

    Raises TargetUnavailable if the process ends with another code than 0, 1 or 2.
    """
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Spark's Python workers must be this interpreter, and are reached over the loopback address.
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        # In the environment, because other users can read the command line.
        **({} if storage is None else {"BUSWAY_JOURNAL_STORAGE": storage}),
    }
    folders = ["--out", str(out.resolve()), "--staging", str((out / "journal").resolve())]
    command = [sys.executable, "-m", program, "--journal", journal, *folders, *options]
    with open_private(out / "spark.log") as log:
        # Its results name messages.
        code = subprocess.run(command, env=environment, stderr=log, umask=PRIVATE_UMASK, check=False).returncode  # noqa: S603 - our own job
    if code not in (0, 1, _COULD_NOT_DECIDE):
        raise TargetUnavailable(
            f"the job ended with exit code {code}, expected 0, 1 or 2; see its log, {out / 'spark.log'}"
        )
    return code


def _end(problems: Iterable[object]) -> NoReturn:
    """Print *problems* and end with exit code 2: 1 would mean findings."""
    print_problems(problems)
    raise typer.Exit(_COULD_NOT_DECIDE)
