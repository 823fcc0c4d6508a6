"""What every store promises, asked of each: memory, SQLite, and Azure Tables as Azurite plays it."""

import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient

from busway_clients import (
    Claim,
    ClaimLost,
    FileRoles,
    MemoryRoles,
    MemoryStore,
    SqliteStore,
    State,
    StoreRefused,
    WrongUse,
)
from busway_clients.receivers.claims import StoredClaims
from busway_clients.rows import Write
from busway_clients.sessions import Conflict
from busway_clients.sessions import SqliteStore as Rows
from busway_clients.tables import TableRoles, TablesStore
from tests.azurite import table_account
from tests.clients.applications import ENVIRONMENT

WINDOW = timedelta(minutes=10)
LEASE = timedelta(minutes=2)
NOW = 1_800_000_000.0
_numbers = itertools.count()


def remember(store: Any, identity: Any, now: Any) -> None:
    claim = store.claim(identity, now)
    assert isinstance(claim, Claim)
    store.record(claim, now)


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    with TableServiceClient.from_connection_string(table_account()) as service:
        yield service


@pytest.fixture(params=["memory", "sqlite", "tables"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryStore(WINDOW)
    elif request.param == "sqlite":
        opened = SqliteStore(tmp_path / "seen.db", WINDOW, lease=LEASE)
        yield opened
        opened.close()
    else:
        service = request.getfixturevalue("tables")
        yield TablesStore(service.create_table(f"seen{next(_numbers)}"), "orders", WINDOW, lease=LEASE)


def test_claim_is_exclusive_until_it_is_released(store: Any) -> None:
    first = store.claim("a/b\\c#d?é", NOW)
    assert isinstance(first, Claim)
    assert store.claim("a/b\\c#d?é", NOW) is State.BUSY
    assert isinstance(store.claim("other", NOW), Claim)
    store.release(first)
    second = store.claim("a/b\\c#d?é", NOW)
    assert isinstance(second, Claim)
    store.release(first)
    assert store.claim("a/b\\c#d?é", NOW) is State.BUSY


def test_recorded_message_is_done_for_the_window_and_no_longer(store: Any) -> None:
    claim = store.claim("m", NOW)
    store.record(claim, NOW)
    assert store.claim("m", NOW + 599) is State.DONE
    store.release(claim)
    assert store.claim("m", NOW + 599) is State.DONE
    assert isinstance(store.claim("m", NOW + 601), Claim)


def test_a_released_claim_cannot_be_recorded(store: Any) -> None:
    claim = store.claim("m", NOW)
    store.release(claim)
    with pytest.raises(ClaimLost, match="message m: its claim"):
        store.record(claim, NOW)
    assert isinstance(store.claim("m", NOW), Claim)


@pytest.mark.parametrize("store", ["sqlite", "tables"], indirect=True)
def test_an_expired_claim_cannot_be_written(store: Any) -> None:
    slow = store.claim("m", NOW)
    assert store.claim("m", NOW + 119) is State.BUSY
    fast = store.claim("m", NOW + 121)
    assert isinstance(fast, Claim)
    with pytest.raises(ClaimLost):
        store.record(slow, NOW + 122)
    store.release(slow)
    store.record(fast, NOW + 123)
    assert store.claim("m", NOW + 124) is State.DONE


@pytest.mark.parametrize("store", ["sqlite", "tables"], indirect=True)
def test_a_claim_that_is_renewed_lasts_for_another_lease(store: Any) -> None:
    claim = store.claim("m", NOW)
    store.renew(claim, NOW + 100)
    assert store.claim("m", NOW + 219) is State.BUSY
    other = store.claim("m", NOW + 221)
    assert isinstance(other, Claim)
    with pytest.raises(ClaimLost):
        store.renew(claim, NOW + 222)
    store.record(other, NOW + 222)
    assert store.claim("m", NOW + 821) is State.DONE


@pytest.mark.parametrize("earlier", [None, NOW - 1000])
def test_a_claim_that_was_written_without_an_answer_is_held(earlier: float | None) -> None:
    class Repeating(Rows):
        """An SDK that repeats a request finds that its first one has changed the version."""

        is_unanswered = False

        def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
            versions = super().write(partition, writes)
            if self.is_unanswered:
                self.is_unanswered = False
                raise Conflict("repeated")
            return versions

    rows = Repeating(":memory:")
    store = StoredClaims(rows, "orders", WINDOW, LEASE)
    if earlier is not None:
        store.claim("m", earlier)
    rows.is_unanswered = True
    claim = store.claim("m", NOW)
    assert isinstance(claim, Claim)
    store.record(claim, NOW)
    store.close()


def test_one_of_many_concurrent_claims_succeeds(store: Any) -> None:
    answers = []
    together = threading.Barrier(4)

    def claim() -> None:
        together.wait()
        answers.append(store.claim("m", NOW))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(answer).__name__ for answer in answers) == ["Claim", "State", "State", "State"]


def test_memory_is_bounded_by_time_and_number() -> None:
    store = MemoryStore(timedelta(seconds=10), max_ids=100)
    for number in range(1000):
        remember(store, str(number), NOW + number)
    assert len(store) == 10
    for number in range(1000):
        remember(store, f"x{number}", NOW + 2000)
    assert len(store) == 100


def test_file_deletes_expired_rows(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "seen.db", timedelta(seconds=10))
    for number in range(100):
        remember(store, str(number), NOW + number)
    assert store.purge(NOW + 1000) <= 20
    store.close()


def test_names_in_one_file_are_independent(tmp_path: Path) -> None:
    orders, same, invoices = (SqliteStore(tmp_path / "seen.db", name=name) for name in ("orders", "orders", "invoices"))
    remember(orders, "1", NOW)
    assert same.claim("1", NOW) is State.DONE
    claim = invoices.claim("1", NOW)
    assert isinstance(claim, Claim)
    orders.release(claim)
    assert invoices.claim("1", NOW) is State.BUSY
    for store in (orders, same, invoices):
        store.close()


def test_purge_deletes_expired_entities(tables: Any) -> None:
    store = TablesStore(tables.create_table("purged"), "orders", WINDOW, lease=LEASE)
    other = TablesStore(tables.get_table_client("purged"), "orders2", WINDOW, lease=LEASE)
    for number in range(3):
        remember(store, str(number), NOW + number * 1000)
    remember(other, "0", NOW)
    assert store.purge(NOW + 1000 + 601) == 2
    assert store.claim("2", NOW + 2000) is State.DONE
    assert other.claim("0", NOW + 1) is State.DONE


def test_missing_table_is_reported(tables: Any) -> None:
    store = TablesStore(tables.get_table_client("missing"), "orders")
    with pytest.raises(StoreRefused, match="expected the table to be there"):
        store.claim("m", NOW)
    with pytest.raises(StoreRefused, match="/missing, partition roles"):
        TableRoles(tables.get_table_client("missing"), "sender").read()


def test_table_with_other_contents_is_reported(tables: Any) -> None:
    table = tables.create_table("others")
    store = TablesStore(table, "orders")
    partition, key = store._keys("m")
    table.create_entity({"PartitionKey": partition, "RowKey": key, "state": "pending"})
    with pytest.raises(StoreRefused, match="has another schema"):
        store.claim("m", NOW)
    table.create_entity({"PartitionKey": "roles", "RowKey": "sender", "state": "pending"})
    roles = TableRoles(table, "sender")
    for ask in (roles.read, lambda: roles.replace(0, ("west", "east"))):
        with pytest.raises(StoreRefused, match="roles: row sender has another schema, expected order, version"):
            ask()


def test_file_is_shared_by_processes_and_survives_them(tmp_path: Path) -> None:
    path = tmp_path / "seen.db"
    script = textwrap.dedent("""
        import sys
        from busway_clients import Claim, SqliteStore
        store = SqliteStore(sys.argv[1])
        claims = [store.claim(str(number), 1000.0) for number in range(100)]
        ours = [claim for claim in claims if isinstance(claim, Claim)]
        for claim in ours:
            store.record(claim, 1000.0)
        print(len(ours))
    """)
    command = [sys.executable, "-c", script, str(path)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)  # noqa: S603 - our own script
        for _ in range(2)
    ]
    assert sum(int(process.communicate(timeout=60)[0]) for process in processes) == 100
    store = SqliteStore(path)
    assert store.claim("50", 1001.0) is State.DONE
    store.close()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(WrongUse, match="expected positive values"):
        MemoryStore(timedelta())


@pytest.fixture(params=["memory", "file", "table"])
def roles(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryRoles()
    if request.param == "file":
        return FileRoles(tmp_path / "roles.db")
    return TableRoles(request.getfixturevalue("tables").create_table(f"roles{next(_numbers)}"), "sender")


def test_roles_change_only_from_the_expected_version(roles: Any) -> None:
    assert roles.read() is None
    assert roles.replace(0, ("west", "east")) == (("west", "east"), 1)
    assert roles.replace(0, ("east", "west")) == (("west", "east"), 1)
    assert roles.replace(1, ("east", "west")) == (("east", "west"), 2)
    assert roles.replace(1, ("west", "east")) == (("east", "west"), 2)
    assert roles.read() == (("east", "west"), 2)
