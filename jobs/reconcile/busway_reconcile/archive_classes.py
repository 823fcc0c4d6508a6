"""
Write the archive of Spark's classes: `python -m busway_reconcile.archive_classes`.

A process reconciles a small journal: Java loads the classes that a run needs, and writes them when it ends.
If an archive of the same Java and the same Spark exists, nothing is done.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from busway_reconcile.class_archive import ARCHIVE, LABEL, archive_in_use, archive_to_write

_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_TARGET = "east/orders"
_MESSAGES = 20


def run(arguments: Sequence[str] | None = None) -> int:
    """Write the archive unless it is current; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments:
        _reconcile_small_journal(Path(arguments[0]))
        return 0
    made_for = _made_for()
    if archive_in_use() and json.loads(LABEL.read_text(encoding="utf-8"))["made_for"] == made_for:
        return 0
    sys.stdout.write(
        "Archiving the classes of Spark, once for this Java: a run of the nightly job then starts faster\n"
    )
    sys.stdout.flush()
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    for outdated in (LABEL, ARCHIVE):
        outdated.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        command = [sys.executable, "-m", "busway_reconcile.archive_classes", folder]
        # The first calls of PySpark import 900 modules: they shall be found compiled too.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - this module
        made = Path(folder) / ARCHIVE.name
        if done.returncode or not made.is_file():
            sys.stderr.write(f"{done.stdout}{done.stderr}\n{ARCHIVE}: not written; see the output of Spark above\n")
            return 1
        made.replace(ARCHIVE)
    label = {"size": ARCHIVE.stat().st_size, "made_for": made_for}
    LABEL.write_text(json.dumps(label, indent=2) + "\n", encoding="utf-8")
    return 0


def _made_for() -> list[str]:
    """Return what an archive depends on: the versions of Spark and of the Java that Spark finds."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else (shutil.which("java") or "java")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - as Spark
    return [f"Spark {version('pyspark')}", java, *done.stderr.splitlines()]


def _reconcile_small_journal(folder: Path) -> None:
    """Reconcile a small journal below *folder* with a Java that then writes its classes there."""
    # Imported here: the check for a current archive needs no Spark.
    from pyspark import SparkContext  # noqa: PLC0415

    from busway_reconcile.__main__ import main  # noqa: PLC0415
    from busway_reconcile.session import QUICK_START, local_session  # noqa: PLC0415

    options = f"{QUICK_START} {archive_to_write(folder / ARCHIVE.name)}"
    spark = local_session(memory="1g", scratch=folder, java_options=options)
    for role in ("source", "target"):
        path = (
            folder / f"journal/task=t/date={_DAY:%Y-%m-%d}/hour=00/role={role}/i-{_microseconds(_DAY) // 1000}.jsonl.gz"
        )
        path.parent.mkdir(parents=True)
        lines = (json.dumps(record) for record in _records() if record["role"] == role)
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    where = ["--journal", str(folder / "journal"), "--out", str(folder / "out")]
    code = main([*where, "--date", f"{_DAY:%Y-%m-%d}", "--now", (_DAY + timedelta(days=2)).isoformat()])
    if code != 1:
        raise SystemExit(f"the run of the small journal ended with {code}, expected 1: one message is missing")
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark does not wait for the end of Java
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _records() -> Iterator[dict[str, Any]]:
    """Yield the records of messages that a task received and a tap saw at the target; the last was never sent."""
    shared = {"v": 1, "task": "t", "src_site": "west", "src_entity": "orders", "src_part": 0, "instance": "i"}
    for number in range(1, _MESSAGES + 1):
        at = _microseconds(_DAY) + number * 1_000_000
        content = {"message_id": f"m-{number}", "body_digest": f"{number:032x}", "property_digest": f"{number:016x}"}
        of_task = {**shared, "src_seq": number, "batch_id": number, "journal_time": at, "observer": "task"}
        yield {**of_task, **content, "role": "source", "outcome": "received", "enqueued_time": at, "hops": ["west"]}
        if number < _MESSAGES:
            yield {**of_task, "role": "target", "outcome": "sent", "target": _TARGET, "check": "0" * 16}
            seen = {"role": "target", "observer": "tap", "tap": "w", "outcome": "seen", "target": _TARGET}
            place = {"tgt_part": 0, "tgt_seq": number, "tgt_enqueued_time": at, "enqueued_time": at, "hops": ["west"]}
            yield {**of_task, **content, **seen, **place}


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


if __name__ == "__main__":
    sys.exit(run())
