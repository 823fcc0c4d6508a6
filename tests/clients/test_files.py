"""Files with messages, results or serials: readable for their owner only, and of the right kind."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from busway_clients import FileRoles, Outbox, StoreRefused, UnusableFile
from busway_clients import SqliteStore as ReceiverStore
from busway_clients.endpoints.file import SerialFile
from busway_clients.sessions import SqliteStore as JournalStore


def open_journal(path: Path) -> Any:
    store = JournalStore(path)
    store.open()
    return store


OPENED: list[Callable[[Path], Any]] = [open_journal, ReceiverStore, FileRoles, Outbox]


@pytest.fixture(autouse=True)
def _umask_that_hides_nothing() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("opened", OPENED)
def test_file_of_state_is_created_for_its_owner_only(opened: Callable[[Path], Any], tmp_path: Path) -> None:
    store = opened(tmp_path / "state.sqlite")
    assert modes(tmp_path) == {0o600}
    store.close()
    assert modes(tmp_path) == {0o600}


def test_serial_file_is_created_for_its_owner_only(tmp_path: Path) -> None:
    SerialFile(tmp_path / "serials.sqlite").accept("document", 1)
    assert modes(tmp_path) == {0o600}


def test_mode_of_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.touch(0o640)
    open_journal(path).close()
    assert modes(tmp_path) == {0o640}


@pytest.mark.parametrize("opened", OPENED)
def test_file_of_another_kind_or_version_is_refused_and_not_changed(
    opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    kind = "an outbox" if opened is Outbox else "rows of busway_clients"
    page, other, later = tmp_path / "page.html", tmp_path / "other.db", tmp_path / "later.db"
    page.write_text("<html>" * 1000)
    opened(later).close()
    for path, change in ((other, "CREATE TABLE t (x)"), (later, "PRAGMA user_version = 9")):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(change)
    before = [path.read_bytes() for path in (page, other, later)]
    for path, problem in {
        page: r"page\.html: file is not a database",
        other: rf"other\.db: is a database of another kind, expected {kind}",
        later: rf"later\.db: has version 9 of {kind}, expected 1",
    }.items():
        with pytest.raises(UnusableFile, match=problem):
            opened(path)
    with pytest.raises(StoreRefused, match="unable to open"):
        opened(tmp_path / "missing" / "state.db")
    assert before == [path.read_bytes() for path in (page, other, later)]
