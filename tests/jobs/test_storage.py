"""Files by Hadoop's file systems, whose names Spark and Python must read in the same way."""

import os
import time
from hashlib import sha256
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.storage import Storage

NAMES = ("a b", "100%25", "grün", "task=x", "[1]{2}*?")


def tree(folder: Path) -> None:
    for nth, name in enumerate(NAMES):
        file = folder / name / f"{name}.jsonl.gz"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(range(256)) * 8192 * nth)
        os.utime(file, ns=(time.time_ns(), 1_763_600_000_123_456_789 + nth))


def test_files_are_listed_with_their_names_sizes_and_times(spark: SparkSession, tmp_path: Path) -> None:
    tree(tmp_path / "journal")
    (tmp_path / "journal" / "a b" / ".x.json.crc").write_bytes(b"crc")
    storage = Storage(spark)
    for address in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}", f"{tmp_path}/", os.path.relpath(tmp_path)):
        assert storage.absolute(address) == f"file:{tmp_path}"
    # A folder of another disk, by a link.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.jsonl.gz").write_bytes(b"linked")
    (tmp_path / "journal" / "a b" / "link").symlink_to(tmp_path / "elsewhere")
    folder = f"file:{tmp_path}/journal"
    found = storage.files(folder)
    paths = [*(tmp_path / "journal").glob("*/*.gz"), tmp_path / "journal" / "a b" / "link" / "linked.jsonl.gz"]
    expected = [(f"file:{path}", path.stat().st_size, path.stat().st_mtime_ns // 1_000_000) for path in paths]
    assert found == sorted(expected)
    assert storage.folders(folder) == sorted(NAMES)
    for file in found:
        content = Path(file.path.removeprefix("file:")).read_bytes()
        for size in (0, 1, 1_500_000, file.size, file.size + 1):
            assert storage.digest(file.path, size) == sha256(content[:size]).hexdigest()


def test_what_is_missing_is_empty_or_an_error(spark: SparkSession, tmp_path: Path) -> None:
    storage, missing = Storage(spark), f"file:{tmp_path}/missing"
    assert storage.files(missing) == []
    assert storage.folders(missing) == []
    assert not storage.exists(missing)
    storage.delete(missing)
    with pytest.raises(Exception, match="missing"):
        storage.read(missing)
    with pytest.raises(Exception, match="missing"):
        storage.move(missing, f"file:{tmp_path}/other")


def test_a_file_is_written_as_a_whole_and_a_folder_takes_the_place_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage, file = Storage(spark), tmp_path / "out" / "hours" / "x.json"
    for text in ("{}\r\n", '{"grün": "\u2028"}\n', ""):
        storage.write(str(file), text)
        assert storage.read(f"file:{file}") == file.read_bytes().decode() == text
        assert [path.name for path in file.parent.iterdir()] == ["x.json"]
    storage.write(f"{tmp_path}/other/hours/x.json", "other")
    # Not into the folder that is there, but in its place.
    storage.move(f"{tmp_path}/other", f"{tmp_path}/out")
    assert storage.read(f"{tmp_path}/out/hours/x.json") == "other"
    assert storage.folders(str(tmp_path)) == ["out"]
    storage.delete(f"{tmp_path}/out")
    assert not storage.exists(f"{tmp_path}/out")
