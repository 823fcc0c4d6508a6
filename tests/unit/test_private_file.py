"""Files with keys, messages or state are for their owner only, whatever the umask and the mode of an earlier file."""

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.children import Child
from cli.dry_run.messages import RecordedMessage, save
from cli.files import free_folder
from cli.letters.ledger_file import LedgerFile
from host.checkpoints import Checkpoints, Partition
from shared.private_file import open_private, write_private
from shared.resend.ledger import Ledger


@pytest.fixture(autouse=True)
def _anybody_may_read_what_is_created() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def ledger(file: Path) -> None:
    async def note() -> None:
        async with Ledger(LedgerFile(file), "orders") as opened:
            await opened.note("sent", ["1/2"], "east/orders")

    asyncio.run(note())


def checkpoints(file: Path) -> None:
    Checkpoints(file).set(Partition("a", "b", "c", "0"), "1")


WRITERS: dict[str, Callable[[Path], object]] = {
    "a text": lambda file: write_private(file, "x"),
    "messages of a dry run": lambda file: save(file, [RecordedMessage(b"x", None)]),
    "a ledger": ledger,
    "checkpoints of the local host": checkpoints,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_new_file_is_private(kind: str, tmp_path: Path) -> None:
    WRITERS[kind](tmp_path / "file")
    assert mode(tmp_path / "file") == 0o600


def test_file_is_private_before_its_first_byte(tmp_path: Path) -> None:
    with open_private(tmp_path / "file"):
        assert mode(tmp_path / "file") == 0o600


def test_file_that_is_written_anew_becomes_private_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with open_private(tmp_path / "file"):
        assert mode(tmp_path / "file") == 0o600
        assert (tmp_path / "file").read_text() == ""


def test_log_and_files_of_a_child_process_are_private(tmp_path: Path) -> None:
    async def run() -> None:
        program = "import pathlib; pathlib.Path('made').write_text('x'); pathlib.Path('folder').mkdir(); print('ready')"
        child = await Child.start("child", [sys.executable, "-c", program], tmp_path / "logs" / "a.log", tmp_path, {})
        await child.matches("ready", 1, 20)
        await child.stop()

    asyncio.run(run())
    assert mode(tmp_path / "logs" / "a.log") == 0o600
    for name, expected in (("made", 0o600), ("folder", 0o700)):
        assert mode(tmp_path / name) == expected


def test_folder_of_a_run_is_private(tmp_path: Path) -> None:
    with free_folder(tmp_path / "build" / "start") as folder:
        assert mode(folder) == 0o700
