"""Files of state on one machine: only their owner reads them."""

import asyncio
import stat
from pathlib import Path

from shared.stores.sqlite_stores import SqliteFile


def test_file_is_created_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    asyncio.run(SqliteFile(path, ("t (a)",), "state").do(lambda opened: opened.execute("INSERT INTO t VALUES (1)")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]
