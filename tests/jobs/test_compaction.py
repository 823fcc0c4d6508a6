"""Compaction of hours: once, completely, and only from the raw files that exist."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from azure.storage.blob import BlobClient, ContainerClient
from pyspark.sql import SparkSession

from busway_reconcile import delete_raw
from busway_reconcile.compact.hours import Hour, compact_hours, deletable_raw, update_coverage
from busway_reconcile.compact.inputs import compact_inputs
from busway_reconcile.compact.records import CompactionFailed
from busway_reconcile.read.files import journal_files
from busway_reconcile.read.staging import stage
from busway_reconcile.settings import Run, Settings, Window
from busway_reconcile.storage import Storage
from tests.azurite import well_known_account
from tests.jobs.journals import START, Journals, planted

DAWN = Window(START, START + timedelta(hours=2))
HOURS = DAWN.hours
NOW = START + timedelta(days=2)


class StorageThatLosesRecords(Storage):
    """Is no folder of this machine, and loses a file of each folder that is moved in it."""

    def is_local(self, path: str) -> bool:
        return not path

    def move(self, source: str, target: str) -> None:
        for file in self.files(source)[:1]:
            self.delete(file.path)
        super().move(source, target)


def compact(spark: SparkSession, folder: Path, storage: Storage | None = None) -> dict[str, Hour]:
    files, problems = journal_files(Storage(spark).files(str(folder / "journal")))
    assert problems == []
    return compact_hours(spark, storage or Storage(spark), files, str(folder / "compacted"), now=NOW, hours=HOURS)


def folders(folder: Path) -> tuple[str, str]:
    return str(folder / "journal"), str(folder / "compacted")


def delete(spark: SparkSession, folder: Path, hours: list[str]) -> list[str]:
    found = [file.file.path for file in deletable_raw(spark, *folders(folder), hours)]
    for each in found:
        Storage(spark).delete(each)
    return found


def state(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*") if path.is_file()}


def test_an_hour_is_compacted_once_and_again_when_its_files_change(spark: SparkSession, tmp_path: Path) -> None:
    journals, _ = planted(["delivered"] * 40, taps=True, hours=2)
    journals.write(tmp_path / "journal")
    made = compact(spark, tmp_path)
    assert sum(hour.records for hour in made.values()) == len(journals.records)
    before = state(tmp_path / "compacted")
    assert compact(spark, tmp_path) == made
    assert state(tmp_path / "compacted") == before

    # A crash before the marker: the hour is compacted again, and the attempt is deleted.
    (tmp_path / "compacted" / "hours" / f"{HOURS[0]}.json").unlink()
    (tmp_path / "compacted" / "records" / f"landed={HOURS[0]}").rename(tmp_path / "lost")
    left = tmp_path / "compacted" / "attempt-of-one-killed" / "records" / "part"
    left.parent.mkdir(parents=True)
    left.touch()
    os.utime(left, (START.timestamp(),) * 2)
    assert compact(spark, tmp_path) == made
    assert (tmp_path / "compacted" / "records" / f"landed={HOURS[0]}").is_dir()
    assert not list((tmp_path / "compacted").glob("attempt-*"))

    late = Journals(instance="wn2-1")
    late.received(900, START, START + timedelta(minutes=1))
    late.write(tmp_path / "journal", name="wn2")
    again = compact(spark, tmp_path)
    assert again[HOURS[0]].records == made[HOURS[0]].records + 1
    assert again[HOURS[1]] == made[HOURS[1]]

    # Raw files are deleted only on request, and the compacted hour stays.
    deleted = delete(spark, tmp_path, [HOURS[0]])
    assert len(deleted) == len(again[HOURS[0]].files)
    assert compact(spark, tmp_path) == again
    # It also stays when another file comes into that hour: the file is reported.
    later = Journals(instance="wn3-1")
    later.received(901, START, START + timedelta(minutes=2))
    later.write(tmp_path / "journal", name="wn3")
    assert compact(spark, tmp_path) == again
    storage = Storage(spark)
    run = Run(storage.absolute(folders(tmp_path)[0]), storage.absolute(str(tmp_path)), DAWN, NOW, Settings())
    inputs = compact_inputs(spark, storage, run, HOURS)
    assert inputs.hours == again
    (problem,) = inputs.problems
    assert (problem.kind, problem.role, problem.hours) == ("changed-input", "source", (HOURS[0],))
    assert "/wn3-" in problem.where

    # An hour that an older version compacted gets its coverage from the records, which stay.
    marker = tmp_path / "compacted" / "hours" / f"{HOURS[0]}.json"
    values = json.loads(marker.read_text())
    del values["version"], values["coverage"]
    marker.write_text(json.dumps({**values, "repeats": 0}))
    before = state(tmp_path / "compacted" / "records")
    assert (
        update_coverage(spark, Storage(spark), str(tmp_path / "compacted"), compact(spark, tmp_path).values()) == again
    )
    assert state(tmp_path / "compacted" / "records") == before
    assert compact(spark, tmp_path) == again


def test_a_raw_file_that_has_changed_since_compaction_is_not_deleted(spark: SparkSession, tmp_path: Path) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    paths = journals.write(tmp_path / "journal")
    compact(spark, tmp_path)
    grown = next(path for path in paths if "hour=00" in str(path))
    grown.write_bytes(grown.read_bytes() * 2)
    deleted = delete(spark, tmp_path, HOURS)
    assert grown.exists()
    assert len(deleted) == len(paths) - 1


def test_nothing_is_committed_if_there_are_fewer_compacted_records_than_raw_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    journals.write(tmp_path / "journal")
    with pytest.raises(CompactionFailed, match="expected"):
        compact(spark, tmp_path, StorageThatLosesRecords(spark))
    assert not (tmp_path / "compacted" / "hours").exists()
    assert not list((tmp_path / "compacted").glob("*/landed=*"))


def test_no_raw_file_is_deleted_if_a_compacted_record_has_other_content(spark: SparkSession, tmp_path: Path) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    paths = journals.write(tmp_path / "journal")
    compact(spark, tmp_path)
    for path in (tmp_path / "compacted" / "records").glob("*/*.parquet"):
        changed = duckdb.read_parquet(str(path)).project("* replace (101::integer as body_size)").to_arrow_table()
        duckdb.from_arrow(changed).write_parquet(str(path))
    with pytest.raises(CompactionFailed, match="not among the compacted ones, expected all"):
        delete(spark, tmp_path, HOURS)
    assert all(path.exists() for path in paths)


def options(folder: Path, *more: str) -> list[str]:
    day = (START + timedelta(days=1)).date().isoformat()
    return ["--journal", str(folder / "journal"), "--out", str(folder), "--before", day, *more]


def test_the_program_counts_and_then_deletes_what_is_compacted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    paths = journals.write(tmp_path / "journal")
    assert delete_raw.main(options(tmp_path)) == 0
    assert "is compacted in" in capsys.readouterr().out
    compact(spark, tmp_path)
    later = Journals(instance="wn2-1")
    later.received(900, START, START + timedelta(minutes=1))
    (kept,) = later.write(tmp_path / "journal", name="wn2")
    assert delete_raw.main(options(tmp_path)) == 0
    counted = capsys.readouterr().out
    assert f"{len(paths)} files of 2 hours" in counted
    assert "would be deleted; nothing was changed" in counted
    assert all(path.exists() for path in paths)
    assert delete_raw.main(options(tmp_path, "--yes")) == 0
    assert f"{len(paths)} files of 2 hours, 0.0 MB deleted" in capsys.readouterr().out
    assert [path for path in [*paths, kept] if path.exists()] == [kept]
    assert delete_raw.main(["--journal", "j", "--out", "o", "--before", "9999-01-01"]) == 2


def test_the_program_deletes_blobs_that_have_not_changed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journals, _ = planted(["delivered"] * 10, taps=False, hours=2)
    paths = journals.write(tmp_path / "written")
    storage = well_known_account()
    monkeypatch.setenv("BUSWAY_JOURNAL_STORAGE", storage)
    client = ContainerClient.from_connection_string(storage, "compacted-journal")
    client.create_container()
    names = [str(path.relative_to(tmp_path / "written")) for path in paths]
    for name, path in zip(names, paths, strict=True):
        client.upload_blob(name, path.read_bytes())
    stage(client, "", tmp_path / "journal")
    compact(spark, tmp_path)
    arguments = [*options(tmp_path, "--staging", str(tmp_path / "journal"))]
    arguments[1] = client.url
    assert delete_raw.main(arguments) == 0
    assert sorted(client.list_blob_names()) == sorted(names)
    get = BlobClient.get_blob_properties

    def grown(self: BlobClient) -> Any:
        found = get(self)
        if self.blob_name == names[0]:
            client.upload_blob(names[0], b"another content", overwrite=True)
        return found

    monkeypatch.setattr(BlobClient, "get_blob_properties", grown)
    assert delete_raw.main([*arguments, "--yes"]) == 0
    assert "1 files stay" in capsys.readouterr().out
    assert list(client.list_blob_names()) == [names[0]]
    client.close()
