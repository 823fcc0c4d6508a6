"""Files with messages, results or serials are readable for their owner only."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from busway_clients import Outbox
from busway_clients import SqliteStore as ReceiverStore
from busway_clients.endpoints.file import SerialFile
from busway_clients.sessions import SqliteStore as JournalStore


def open_journal(path: Path) -> Any:
    store = JournalStore(path)
    store.open()
    return store


FILES: dict[str, Callable[[Path], Any]] = {
    "a journal of sessions": open_journal,
    "the memory of a receiver": ReceiverStore,
    "an outbox": Outbox,
}


@pytest.fixture(autouse=True)
def _umask_that_hides_nothing() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("opened", FILES.values(), ids=FILES)
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
