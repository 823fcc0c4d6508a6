"""
A day's journals reconciled, from raw files to the verdict: by the job, and by one query of DuckDB.

Both read the same gzip files of JSON lines, with two cores and 4 GB, and write the findings. The time of the job is
that of its process as an operator starts it, Spark's start included. DuckDB runs before and after the job, so that a
busy moment of the machine does not decide.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from benchmarks.journal_of_a_day import EVERY, KINDS, MILLION, START, make
from benchmarks.measurement import Measurement, report
from tests.jobs import twin

HOT_SHARE = 30  # percent of all messages, in one session
RATIO_FROM = 20 * MILLION
"""With fewer messages the start of Spark takes the time, and there is no bar for the ratio."""

SECONDS = {2_000: 30, MILLION: 45}
"""The bars for the whole time, by number of messages."""


def run_job(folder: Path, *, memory: str = "4g", hour: int | None = None, continues: bool = False) -> dict[str, float]:
    """
    Reconcile *folder*/journal, or one *hour* of it, in a process of its own; return seconds and counts.

    It removes the results of earlier runs unless it *continues* after them.
    """
    hours = [START + timedelta(hours=nth) for nth in ((0, 24) if hour is None else (hour, hour + 1))]
    window = ["--start", f"{hours[0]:%Y-%m-%dT%H}", "--end", f"{hours[1]:%Y-%m-%dT%H}"]
    out = folder / "out"
    if not continues:
        shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "busway_reconcile", "--journal", str(folder / "journal"), "--out", str(out)]
    options = ["--grace-minutes", "60", "--memory", memory, "--now", f"{START + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"]
    scratch = {"SPARK_LOCAL_DIRS": str(folder / "scratch")}
    started = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, *window, *options], stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **scratch}
    )
    wall = time.monotonic() - started
    summary = out / "runs" / f"{window[1]}--{window[3]}" / "summary.json"
    if not summary.is_file():
        raise SystemExit(f"the job made no summary:\n{done.stdout}")
    found: dict[str, int] = {}
    for task in json.loads(summary.read_text(encoding="utf-8"))["tasks"]:
        for verdict, count in task["verdicts"].items():
            found[verdict] = found.get(verdict, 0) + count
    size = sum(path.stat().st_size for path in (out / "compacted").rglob("*.parquet"))
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    return {"wall": wall, "bytes": size, **_named(found)}


def run_duckdb(folder: Path) -> dict[str, float]:
    """Judge *folder*/journal by the query of DuckDB in a process of its own, and write the findings."""
    command = [sys.executable, "-m", "benchmarks.reconcile", "--duckdb", str(folder)]
    started = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"wall": time.monotonic() - started, **found}


def _duckdb(folder: Path, memory: str) -> None:
    database = twin.connect(memory)
    database.execute(f"set temp_directory = '{folder / 'duckdb'}'")
    twin.judge(database, raw=folder / "journal", end=START + timedelta(days=1))
    database.execute(f"copy (from verdicts where verdict <> 'delivered') to '{folder}/twin.parquet' (format parquet)")
    rows = database.execute("select verdict, count(*) from verdicts group by all").fetchall()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, **_named(dict(rows))}))


def _named(counts: dict[str, int]) -> dict[str, float]:
    return {f"count_{name}": count for name, count in counts.items()}


def differences(found: dict[str, float], pairs: int) -> int:
    """Return how many messages have not the verdict that was planted."""
    planted = {f"count_{kind}": len(range(500 + 1000 * nth, pairs, EVERY)) for nth, kind in enumerate(KINDS)}
    planted["count_delivered"] = pairs - sum(planted.values())
    names = {name for name in (*found, *planted) if name.startswith("count_")}
    return round(sum(abs(found.get(name, 0) - planted.get(name, 0)) for name in names))


def measure(scratch: Path, pairs: int, *, memory: str = "4g", hot: int = 0, twin_too: bool = True) -> list[Measurement]:
    """Return the figures of a day of *pairs* messages."""
    folder = scratch / f"{pairs}-{hot}"
    shutil.rmtree(folder, ignore_errors=True)
    make(folder / "journal", pairs, hot=hot)
    oracles = [run_duckdb(folder)] if twin_too else []
    found = run_job(folder, memory=memory)
    oracles += [run_duckdb(folder)] if twin_too else []
    shutil.rmtree(folder)
    name = f"{pairs / MILLION:g} million messages" if pairs >= MILLION / 10 else f"{pairs:,} messages"
    figures = [
        Measurement(f"{name}, raw journals to verdict", found["wall"], "s", SECONDS.get(pairs)),
        Measurement("same, compacted records", found["bytes"] / MILLION, "MB"),
        Measurement("same, verdicts that were not planted", differences(found, pairs), "messages", 0),
    ]
    if oracles:
        twin_wall = fmean(oracle["wall"] for oracle in oracles)
        figures += [
            Measurement("same, one query of DuckDB", twin_wall, "s"),
            Measurement("same, processor time of DuckDB", fmean(oracle["cpu"] for oracle in oracles), "s"),
            Measurement(
                "same, in times of DuckDB", found["wall"] / twin_wall, "times", 1.5 if pairs >= RATIO_FROM else None
            ),
            Measurement(
                "same, DuckDB's that were not planted",
                sum(differences(oracle, pairs) for oracle in oracles),
                "messages",
                0,
            ),
        ]
    return figures


def one_hour(scratch: Path) -> list[Measurement]:
    """Return the figures of an hour of a million messages after such an hour, and of the run of their day."""
    folder = scratch / "hour"
    # The last hour is quiet.
    make(folder / "journal", 2 * MILLION, hours=3)
    run_job(folder, hour=0)
    found = run_job(folder, hour=1, continues=True)
    run_job(folder, hour=2, continues=True)
    day = run_job(folder, continues=True)
    shutil.rmtree(folder)
    return [
        Measurement("1 million messages in an hour, raw journals to verdict", found["wall"], "s", 30),
        Measurement("2 million messages of a day whose hours are reconciled", day["wall"], "s"),
        Measurement("same, verdicts that were not planted", differences(day, 2 * MILLION), "messages", 0),
    ]


def short(scratch: Path) -> Iterator[list[Measurement]]:
    """Yield the figures of few messages and of a million."""
    yield measure(scratch, 2_000, twin_too=False)
    yield measure(scratch, MILLION)


def full(scratch: Path) -> Iterator[list[Measurement]]:
    """Yield the figures of up to 20 million messages, of one hour, of little memory and of a large session."""
    yield measure(scratch, 2_000, twin_too=False)
    yield measure(scratch, MILLION // 10)
    yield measure(scratch, MILLION)
    yield one_hour(scratch)
    five = measure(scratch, 5 * MILLION)
    yield five
    twenty = measure(scratch, 20 * MILLION)
    yield [*twenty, Measurement("growth from 5 to 20 million", twenty[0].value / five[0].value, "times", 4.2)]
    for words, options in (("with 1 GB", {"memory": "1g"}), ("30 % of them in one session", {"hot": HOT_SHARE})):
        found = measure(scratch, 20 * MILLION, twin_too=False, **options)
        yield [found[0]._replace(name=f"20 million messages, {words}"), *found[1:]]


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--duckdb", type=Path)
    arguments.add_argument("--memory", default="4GB")
    arguments.add_argument("--full", action="store_true")
    options = arguments.parse_args()
    if options.duckdb is not None:
        _duckdb(options.duckdb, options.memory)
        return
    with tempfile.TemporaryDirectory(prefix="busway-reconcile-") as name:
        for figures in full(Path(name)) if options.full else short(Path(name)):
            report(figures)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
