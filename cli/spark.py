"""The nightly job on this machine: what it needs to be installed, and its run on Spark in local mode."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from busway import IS_CHECKOUT, PACKAGES
from cli.output import waits_for
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.private_file import PRIVATE_UMASK, open_private

_JAVA = 17
_INSTALL = "pip install -r jobs/reconcile/requirements.txt" if IS_CHECKOUT else "pip install 'busway[night]'"
_EXIT_CODES = (0, 1, 2)


def check_spark() -> None:
    """Raise ConfigError with every package and program that the job needs and this machine lacks."""
    problems = [
        Problem(package, "is not installed", _INSTALL)
        for package in ("pyspark", "jinja2")
        if importlib.util.find_spec(package) is None
    ]
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin/java") if home else "java")
    hint = f"install OpenJDK {_JAVA} from adoptium.net or your system's packages, or set JAVA_HOME"
    if java is None:
        found = "is not installed" if home is None else f"not found in JAVA_HOME ({home})"
        problems.append(Problem("java", found, hint))
    else:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - as Spark
        version = re.search(r'version "(\d+)', output.stderr)
        if version is None or int(version[1]) < _JAVA:
            found = "an unknown version" if version is None else f"version {version[1]}"
            problems.append(Problem(java, f"has {found}, but Spark needs {_JAVA} or later", hint))
    if problems:
        raise ConfigError(problems)


def run_job(
    journal: str, out: Path, options: Sequence[str], storage: str | None = None, *, program: str = "busway_reconcile"
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
        "PYTHONPATH": os.pathsep.join([PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]),
        # In the environment, because other users can read the command line.
        **({} if storage is None else {"BUSWAY_JOURNAL_STORAGE": storage}),
    }
    folders = ["--out", str(out.resolve()), "--staging", str((out / "journal").resolve())]
    command = [sys.executable, "-m", program, "--journal", journal, *folders, *options]
    waits_for("the job on Spark")
    with open_private(out / "spark.log") as log:
        # Its results name messages.
        code = subprocess.run(command, env=environment, stderr=log, umask=PRIVATE_UMASK, check=False).returncode  # noqa: S603 - our own job
    if code not in _EXIT_CODES:
        raise TargetUnavailable(
            f"the job ended with exit code {code}, expected 0, 1 or 2; see its log, {out / 'spark.log'}"
        )
    return code
