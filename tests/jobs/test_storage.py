"""Folders of this machine without Spark: everything must be as it is with Hadoop's file systems."""

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.storage import LocalStorage, Storage

NAMES = ("a b", "100%25", "grün", "task=x", "[1]{2}*?")


def tree(folder: Path) -> None:
    for nth, name in enumerate(NAMES):
        file = folder / name / f"{name}.jsonl.gz"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(range(256)) * 8192 * nth)
        os.utime(file, ns=(time.time_ns(), 1_763_600_000_123_456_789 + nth))


def test_folders_of_this_machine_are_the_same_with_and_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    tree(tmp_path / "journal")
    (tmp_path / "journal" / "a b" / ".x.json.crc").write_bytes(b"crc")
    hadoop, local = Storage(spark), LocalStorage()
    for address in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}", f"{tmp_path}/", os.path.relpath(tmp_path)):
        assert local.absolute(address) == hadoop.absolute(address) == f"file:{tmp_path}"
    # A folder of another disk, by a link.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.jsonl.gz").write_bytes(b"linked")
    (tmp_path / "journal" / "a b" / "link").symlink_to(tmp_path / "elsewhere")
    folder = f"file:{tmp_path}/journal"
    assert local.files(folder) == hadoop.files(folder)
    assert len(local.files(folder)) == len(NAMES) + 1
    assert local.folders(folder) == hadoop.folders(folder) == sorted(NAMES)
    for file in local.files(folder):
        for size in (0, 1, 1_500_000, file.size, file.size + 1):
            assert local.digest(file.path, size) == hadoop.digest(file.path, size)
    for storage in (local, hadoop):
        assert storage.files(f"{folder}/missing") == []
        assert storage.folders(f"{folder}/missing") == []
        assert not storage.exists(f"{folder}/missing")
        storage.delete(f"{folder}/missing")
        with pytest.raises(Exception, match="missing"):
            storage.read(f"{folder}/missing")
        with pytest.raises(Exception, match="missing"):
            storage.move(f"{folder}/missing", f"{folder}/other")


@pytest.mark.parametrize("writes_without_spark", [True, False])
def test_what_one_writes_the_other_reads(spark: SparkSession, tmp_path: Path, *, writes_without_spark: bool) -> None:
    writer, reader = (LocalStorage(), Storage(spark)) if writes_without_spark else (Storage(spark), LocalStorage())
    for text in ("{}\r\n", '{"grün": "\u2028"}\n', ""):
        writer.write(f"{tmp_path}/out/hours/x.json", text)
        assert reader.read(f"file:{tmp_path}/out/hours/x.json") == text
        assert [Path(file.path).name for file in reader.files(str(tmp_path))] == ["x.json"]
    writer.write(f"{tmp_path}/other/hours/x.json", "other")
    # Not into the folder that is there, but in its place.
    writer.move(f"{tmp_path}/other", f"{tmp_path}/out")
    assert reader.read(f"{tmp_path}/out/hours/x.json") == "other"
    assert reader.folders(str(tmp_path)) == ["out"]
    writer.delete(f"{tmp_path}/out")
    assert not reader.exists(f"{tmp_path}/out")


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scandir(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    tree(tmp_path)
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError):
        LocalStorage().files(str(tmp_path))
