"""Stores in a dry run: they are never written, and a writer reads its own writes."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from shared.stores.blobs import Blob, TooLarge, Unchanged
from shared.stores.documents import Changed
from shared.stores.dry_run import DryRunBlobs, DryRunDocuments
from shared.stores.sqlite_stores import FileBlobs


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return asyncio.run


def test_documents_are_as_they_would_be_and_stay_as_they_are(
    run: Callable[[Coroutine[Any, Any, Any]], Any], tmp_path: Path
) -> None:
    kept = FileBlobs(tmp_path / "kept.db", "folder")
    version = run(kept.write_version("a", b"1", None))
    dry_run = DryRunDocuments(kept)
    assert run(dry_run.read_all("a")).content == b"1"
    for stale in (None, "7"):
        with pytest.raises(Changed):
            run(dry_run.write_version("a", b"2", stale))
    new = run(dry_run.write_version("a", b"2", version))
    with pytest.raises(Changed):
        run(dry_run.write_version("a", b"3", version))
    assert new != run(dry_run.write_version("a", b"3", new))
    first = run(dry_run.write_version("b", b"4", None))
    assert (run(dry_run.read_all("a")).content, run(dry_run.read_all("b"))) == (b"3", (b"4", first))
    assert (run(kept.read_all("a")), run(kept.read_all("b"))) == ((b"1", version), None)


def test_blobs_are_as_they_would_be_and_stay_as_they_are(
    run: Callable[[Coroutine[Any, Any, Any]], Any], tmp_path: Path
) -> None:
    kept = FileBlobs(tmp_path / "kept.db", "folder")
    run(kept.write("a", b"1"))
    run(kept.append("log", b"x"))
    dry_run = DryRunBlobs(kept)
    run(dry_run.write("b", b"22"))
    run(dry_run.write("c", b"3"))
    run(dry_run.delete("a"))
    run(dry_run.delete("c"))
    assert run(dry_run.append("log", b"y"))
    assert run(dry_run.names("")) == ["b", "log"]
    assert run(dry_run.read("a", limit=9)) is None
    assert run(dry_run.read("b", limit=1)) == TooLarge(2)
    found = run(dry_run.read("b", limit=9))
    assert isinstance(found, Blob)
    assert run(dry_run.read("b", limit=9, known_version=found.version)) == Unchanged()
    assert run(dry_run.tail("log", 0)).content == b"x"
    assert (run(kept.names("")), run(kept.read("a", limit=9)).content) == (["a", "log"], b"1")


def test_reading_makes_no_file(run: Callable[[Coroutine[Any, Any, Any]], Any], tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "b.db", "folder")
    assert (run(blobs.read("a", limit=9)), run(blobs.names("")), run(blobs.tail("a", 0)).content) == (None, [], b"")
    assert run(blobs.read_all("a")) is None
    assert list(tmp_path.iterdir()) == []
