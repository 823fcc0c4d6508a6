"""Hours made compact: once, whole, and from what lies there."""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import compaction
from jobs.reconcile.filling import compacted
from jobs.reconcile.inputs import journal_files
from jobs.reconcile.run import Run
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.storage import Storage
from jobs.reconcile.verification import CompactionFailed
from tests.jobs.journals import START, Journals, planted

DAWN = Window(START, START + timedelta(hours=2))
HOURS = DAWN.hours
NOW = START + timedelta(days=2)


def compact(spark, folder: Path):
    files, problems = journal_files(Storage(spark).files(str(folder / "journal")))
    assert problems == []
    return compaction.compact(spark, files, str(folder / "compacted"), now=NOW, hours=HOURS)


def folders(folder: Path) -> tuple[str, str]:
    return str(folder / "journal"), str(folder / "compacted")


def state(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*") if path.is_file()}


def test_hours_are_made_once_whole_and_again_when_their_files_change(spark, tmp_path: Path) -> None:
    journals, _ = planted(["delivered"] * 40, taps=True, hours=2)
    journals.write(tmp_path / "journal")
    made = compact(spark, tmp_path)
    assert sum(hour.records for hour in made.values()) == len(journals.records)
    before = state(tmp_path / "compacted")
    assert compact(spark, tmp_path) == made
    assert state(tmp_path / "compacted") == before

    # A crash before the marker: the hour is made again, and nothing of the attempt stays.
    (tmp_path / "compacted" / "hours" / f"{HOURS[0]}.json").unlink()
    (tmp_path / "compacted" / "digests" / f"landed={HOURS[0]}").rename(tmp_path / "lost")
    left = tmp_path / "compacted" / "attempt-of-one-killed" / "records" / "part"
    left.parent.mkdir(parents=True)
    left.touch()
    os.utime(left, (START.timestamp(),) * 2)
    assert compact(spark, tmp_path) == made
    assert (tmp_path / "compacted" / "digests" / f"landed={HOURS[0]}").is_dir()
    assert not list((tmp_path / "compacted").glob("attempt-*"))

    late = Journals(instance="wn2-1")
    late.received(900, START, START + timedelta(minutes=1))
    late.write(tmp_path / "journal", name="wn2")
    again = compact(spark, tmp_path)
    assert again[HOURS[0]].records == made[HOURS[0]].records + 1
    assert again[HOURS[1]] == made[HOURS[1]]

    # Raw files go only when asked, and what was made of them stays.
    deleted = compaction.delete_raw(spark, *folders(tmp_path), [HOURS[0]])
    assert len(deleted) == len(again[HOURS[0]].files)
    assert compact(spark, tmp_path) == again
    # Not even where another file comes into that hour: that one is named.
    later = Journals(instance="wn3-1")
    later.received(901, START, START + timedelta(minutes=2))
    later.write(tmp_path / "journal", name="wn3")
    assert compact(spark, tmp_path) == again
    run = Run(spark, folders(tmp_path)[0], str(tmp_path), DAWN, NOW, settings=Settings())
    assert run.inputs(HOURS) == again
    (problem,) = run.problems
    assert (problem.kind, problem.role, problem.hours) == ("changed-input", "source", (HOURS[0],))
    assert "/wn3-" in problem.where

    # An index that an older version has made is made anew of the records.
    marker = tmp_path / "compacted" / "hours" / f"{HOURS[0]}.json"
    told = json.loads(marker.read_text())
    del told["version"]
    marker.write_text(json.dumps(told))
    digests = tmp_path / "compacted" / "digests" / f"landed={HOURS[0]}"
    rows = spark.read.parquet(str(digests)).count()
    shutil.rmtree(digests)
    before = state(tmp_path / "compacted" / "digests")
    compaction.index_again(spark, str(tmp_path / "compacted"), compact(spark, tmp_path).values())
    assert spark.read.parquet(str(digests)).count() == rows
    assert state(tmp_path / "compacted" / "digests").items() >= before.items()
    assert compact(spark, tmp_path) == again


def test_a_raw_file_that_has_changed_since_is_not_deleted(spark, tmp_path: Path) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    paths = journals.write(tmp_path / "journal")
    compact(spark, tmp_path)
    grown = next(path for path in paths if "hour=00" in str(path))
    grown.write_bytes(grown.read_bytes() * 2)
    deleted = compaction.delete_raw(spark, *folders(tmp_path), HOURS)
    assert grown.exists()
    assert len(deleted) == len(paths) - 1


def test_nothing_is_committed_when_what_was_written_is_not_what_was_read(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    journals.write(tmp_path / "journal")
    write_index = compaction.write_index
    spoilt: list[tuple[str, Any]] = [
        ("compacted", lambda raw: compacted(raw).where("src_seq <> 3")),
        ("compacted", lambda raw: compacted(raw).withColumn("body_size", F.lit(101))),
        ("write_index", lambda kept, folder: write_index(kept.where("src_seq <> 3"), folder)),
    ]
    for name, wrong in spoilt:
        with monkeypatch.context() as patched:
            patched.setattr(compaction, name, wrong)
            with pytest.raises(CompactionFailed, match="expected"):
                compact(spark, tmp_path)
    assert not (tmp_path / "compacted" / "hours").exists()
    assert not list((tmp_path / "compacted").glob("*/landed=*"))
