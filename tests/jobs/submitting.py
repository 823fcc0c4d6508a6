"""The job as `spark-submit` runs it: the zip, its main file, and nothing else of the repository."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyspark

from busway_reconcile.summary import Summary

JOB = Path(__file__).parents[2] / "jobs/reconcile"
SPARK = Path(pyspark.__file__).parent

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")


class Submitted(NamedTuple):
    """What a submitted job returned and printed."""

    code: int
    output: str
    log: str


class Cluster(NamedTuple):
    """A standalone cluster: its address, and the folders of its workers."""

    master: str
    workers: list[Path]


def submit(folder: Path, options: Sequence[str], arguments: Sequence[str]) -> Submitted:
    """Submit the job from *folder* with the *options* of Spark and the *arguments* of the job."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.make_archive(str(folder / "busway_reconcile"), "zip", JOB, "busway_reconcile")
    main = str(shutil.copy(JOB / "busway_reconcile/__main__.py", folder))
    command = [str(SPARK / "bin" / "spark-submit"), *options, "--conf", "spark.ui.enabled=false"]
    command += ["--py-files", "busway_reconcile.zip", main, *arguments]
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)  # noqa: S603 - PySpark's own program
    return Submitted(done.returncode, done.stdout, done.stderr)


@contextmanager
def running_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a master and *workers*, each a process with one core; give the cluster."""
    local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    processes: list[subprocess.Popen[bytes]] = []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        master = _start("master.Master", local, folder / "master.log", processes, _MASTER)
        folders = [folder / f"worker-{number}" for number in range(workers)]
        for each in folders:
            own = ["--cores", "1", "--memory", "1g", "--work-dir", str(each)]
            _start("worker.Worker", [*local, *own, master[1]], each.with_suffix(".log"), processes, _WORKER)
        yield Cluster(master[1], folders)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def results(out: Path) -> tuple[Summary, list[tuple[Any, ...]]]:
    """Return the summary of the only run below *out*, and its findings."""
    (folder,) = (out / "runs").iterdir()
    rows = duckdb.read_parquet(f"{folder}/findings/*.parquet").select("src_seq", "verdict", "copies")
    return Summary.from_json((folder / "summary.json").read_text(encoding="utf-8")), sorted(rows.fetchall())


def _start(
    name: str, options: Sequence[str], log: Path, processes: list[subprocess.Popen[bytes]], ready: re.Pattern[str]
) -> re.Match[str]:
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    with log.open("w") as file:
        process = subprocess.Popen(command, env=_environment(), stdout=file, stderr=subprocess.STDOUT)  # noqa: S603 - PySpark's own program
    processes.append(process)
    for _ in range(1200):
        if found := ready.search(log.read_text()):
            return found
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"{name} is not ready: {log.read_text()}")


def _environment() -> dict[str, str]:
    """Return the environment without a path to this repository: the zip must be enough."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK)}
