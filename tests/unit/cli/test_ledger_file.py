"""The ledger in a file: one process at a time, whole lines, and the files of earlier versions."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.letters.ledger_file import LedgerFile
from shared.errors import ConfigError
from shared.resend.ledger import Ledger

ROOT = Path(__file__).parents[3]
TO = "east/orders"

SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


def ledger(path: Path, name: str = "repair") -> Ledger:
    return Ledger(LedgerFile(path), name)


def states(path: Path, *keys: str) -> list[str | None]:
    before = path.read_bytes() if path.exists() else None
    found = asyncio.run(copied_states(path, *keys))
    assert (path.read_bytes() if path.exists() else None) == before
    return found


async def copied_states(path: Path, *keys: str) -> list[str | None]:
    """Return the states as a run sees them that writes nothing."""
    async with Ledger(LedgerFile(path).copy(), "repair") as copy:
        await copy.note("sent", ["not written"], TO)
    return [copy.state(key) for key in keys]


def test_a_run_that_writes_nothing_reads_what_is_there_and_creates_no_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert states(path, "1/1") == [None]

    async def write() -> None:
        async with ledger(path) as opened:
            await opened.note("sending", ["1/1", "2/2"], TO)
            assert await copied_states(path, "1/1") == ["sending"], "the lock is for those who write"
            await opened.note("sent", ["1/1"], TO)

    asyncio.run(write())
    assert states(path, "1/1", "2/2", "3/3") == ["sent", "sending", None]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_line_separator_in_a_key_does_not_end_a_line(tmp_path: Path, separator: str) -> None:
    path, key = tmp_path / "ledger.jsonl", f"t|west/a{separator}b|1"
    path.write_text(json.dumps({"key": key, "state": "sent"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert states(path, key) == ["sent"]


def test_the_ledger_of_an_earlier_repair_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "repaired.jsonl"
    lines = [{"key": "a", "state": "sending"}, {"key": "a", "state": "sent"}, {"key": "b", "state": "sending"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"key": "b", "sta')

    async def write() -> None:
        async with ledger(path) as opened:
            assert (opened.state("a"), opened.state("b")) == ("sent", "sending")
            await opened.note("sent", ["c"], TO)

    asyncio.run(write())
    assert states(path, "a", "b", "c") == ["sent", "sending", "sent"]


def test_a_second_run_waits_for_the_first_and_another_command_cannot_read_what_it_has_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    async def write() -> None:
        first, second = ledger(path), ledger(path)
        async with first:
            await first.note("sent", ["1/1"], TO)
            with pytest.raises(ConfigError, match="is in use by process"):
                await second.__aenter__()
        async with second:
            assert second.state("1/1") == "sent"
        with pytest.raises(ConfigError, match="is the ledger of repair"):
            await ledger(path, "west/orders").__aenter__()

    asyncio.run(write())


def test_the_lock_of_a_process_that_was_killed_is_not_stale(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    hold = "import sys, time; from pathlib import Path; from cli.files import locked\n"
    hold += "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE, cwd=ROOT)  # noqa: S603 - the text above
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"

    async def open_it() -> None:
        async with ledger(path) as opened:
            assert opened.where == str(path)

    with pytest.raises(ConfigError, match=f"process {process.pid}"):
        asyncio.run(open_it())
    process.kill()
    process.communicate()
    asyncio.run(open_it())
