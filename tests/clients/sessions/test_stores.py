"""Both kinds of store, synchronous and awaited, keep one contract; and what else than a journal a consumer may find."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import TableSasPermissions, TableServiceClient, generate_table_sas

import busway_clients.aio.sessions as aio
from busway_clients import StoreRefused, StoreUnavailable
from busway_clients.aio.tables import TableStore as AsyncTableStore
from busway_clients.rows import ANY, Write
from busway_clients.sessions import (
    Conflict,
    Journal,
    JournalMalformed,
    JournalMismatch,
    Settings,
    SqliteStore,
)
from busway_clients.sessions.entries import Entry, State, session_partition
from busway_clients.sessions.leases import LEASE_KEY, HeldLease, Lease
from busway_clients.tables import TableStore
from tests.azurite import ACCOUNT
from tests.clients.sessions.region import closed_after, new_store

STRANGE = [
    "a/b\\c#d?e",
    "ünïcödé ☃",
    "tab\tand\nline",
    "=41",
    "A",
    "a",
    "x" * 128,
    "☃" * 128,
    "☃" * 127 + "!",
    ".",
    "'",
]


LEASED = Lease("w", "west", 1, 0, 30, is_held=True).properties()


def commit(store: Any, held: HeldLease, changes: dict[str, Any], entries: list[Entry], **options: Any) -> None:
    Journal(store, Settings(batch=40)).commit(held, changes, entries, **options)


def versions(store: Any, keys: Any) -> dict[Any, Any]:
    return {row.key: row.version for row in store.read("p", keys)}


def test_row_is_inserted_once_and_replaced_only_with_its_version(store: Any) -> None:
    [first] = store.write("p", [Write("k", {"Open": 0, "Text": "one"}, None)])
    with pytest.raises(Conflict):
        store.write("p", [Write("k", {"Open": 0, "Text": "two"}, None)])
    [second] = store.write("p", [Write("k", {"Open": 0, "Text": "two"}, first)])
    assert second != first
    with pytest.raises(Conflict):
        store.write("p", [Write("k", {"Open": 0, "Text": "three"}, first)])
    with pytest.raises(Conflict):
        store.write("p", [Write("gone", {"Open": 0}, second)])
    [row] = store.read("p", ["k"])
    assert (dict(row.properties), row.version) == ({"Open": 0, "Text": "two"}, second)


def test_transaction_is_atomic(store: Any) -> None:
    [version] = store.write("p", [Write("lease", {"Open": 0, "N": 1}, None)])
    with pytest.raises(Conflict):
        store.write("p", [Write("m.1", {"Open": 1}), Write("lease", {"Open": 0, "N": 2}, 'W/"stale"')])
    assert [row.key for row in store.read("p", ["lease", "m.1"])] == ["lease"]
    written = store.write("p", [Write("lease", {"Open": 0, "N": 2}, version), Write("m.1", {"Open": 1}, ANY)])
    assert versions(store, ["lease", "m.1"]) == dict(zip(["lease", "m.1"], written, strict=True))


def test_requested_rows_and_open_rows_of_a_partition_are_read(store: Any) -> None:
    store.write("p", [Write(f"m.{n}", {"Open": n % 2}) for n in range(40)])
    store.write("q", [Write("m.1", {"Open": 1})])
    # More than one query of a table holds.
    for count in (1, 13, 14, 30):
        asked = range(0, 2 * count, 2)
        found = {row.key for row in store.read("p", [f"m.{n}" for n in asked])}
        assert found == {f"m.{n}" for n in range(40) if n % 2 or n in asked}
    assert {row.key for row in store.read("p", [])} == {f"m.{n}" for n in range(40) if n % 2}
    assert {row.key for row in store.read("p", ["m.2", "m.3"], with_open=False)} == {"m.2", "m.3"}


def test_finished_rows_are_deleted_after_the_retention(store: Any) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(3):
        finished = (then + timedelta(days=number)).isoformat()
        store.write(f"p{number}", [Write("m.1", {"Open": 0, "Finished": finished}), Write("lease", {"Open": 0})])
    assert store.forget(then + timedelta(days=2)) == 2
    left = [(number, row.key) for number in range(3) for row in store.read(f"p{number}", ["m.1", "lease"])]
    assert sorted(left) == [(0, "lease"), (1, "lease"), (2, "lease"), (2, "m.1")]


@pytest.mark.parametrize("store", ["tables", "sqlite"], indirect=True)
def test_every_session_and_id_has_its_own_row(store: Any) -> None:
    journal = Journal(store, Settings())
    journal.open()
    for session in STRANGE:
        hold = HeldLease(session_partition(session), Lease("w", "west", 1, 0, 30, is_held=True), None)
        entries = [Entry(name, State.PENDING, reason=session, lines={"west": 2**60}) for name in STRANGE]
        commit(store, hold, {}, entries)
    for session in STRANGE:
        found = journal.record(session, STRANGE[:3]).entries
        assert {name: entry.reason for name, entry in found.items()} == dict.fromkeys(STRANGE, session)
        assert found["A"].lines == {"west": 2**60}


@pytest.mark.parametrize("store", ["tables", "sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["{}", "{:☃<128}"], ids=["short", "long"])
def test_entries_stay_in_the_lease_row_until_it_is_full(store: Any, name: str) -> None:
    journal = Journal(store, Settings(batch=40))
    journal.open()
    hold = HeldLease("s.x", Lease("w", "west", 1, 0, 30, is_held=True), None)
    names = [name.format(n) for n in range(120)]
    most = 0
    for first in range(0, 120, 40):
        batch = names[first : first + 40]
        commit(store, hold, {}, [Entry(each, State.PENDING) for each in batch])
        for each in batch:
            done = Entry(each, State.COMPLETED, attempt=1, description="d" * 100, finished="2026-01-01")
            commit(store, hold, {}, [done])
            [lease] = [row for row in store.read("s.x", [LEASE_KEY]) if row.key == LEASE_KEY]
            assert len(str(lease.properties["Recent"])) <= 30_000
            most = max(most, len(hold.lease.recent))
    assert 19 <= most <= 59
    record = journal.record("x", names[:100])
    assert {entry.state for entry in record.entries.values()} == {State.COMPLETED}
    assert record.lease == hold.lease
    commit(store, hold, {"is_held": False}, [])
    assert {row.key for row in store.read("s.x", [])} == set()
    assert len(journal.record("x", names).entries) == 120


@pytest.mark.parametrize("store", ["tables", "sqlite"], indirect=True)
def test_a_journal_of_another_version_or_with_other_settings_is_refused(store: Any) -> None:
    Journal(store, Settings()).open()
    Journal(store, Settings(lease_seconds=5, batch=3)).open()
    with pytest.raises(JournalMismatch, match="Lock is 'session' there and 'message' here"):
        Journal(store, Settings(lock="message")).open()
    with pytest.raises(JournalMismatch, match="Number is '' there and 'n' here"):
        Journal(store, Settings(number="n")).open()
    store.write("journal", [Write("schema", {"Open": 0, "Schema": 1})])
    with pytest.raises(JournalMismatch, match="has schema 1, expected 3"):
        Journal(store, Settings()).open()


def test_a_journal_belongs_to_one_application(store: Any) -> None:
    is_awaited = hasattr(store, "runner")

    def opened(application: Any = None) -> None:
        settings = Settings(application=application)
        if is_awaited:
            store.runner.run(aio.Journal(store.store, settings).open())
        else:
            Journal(store, settings).open()

    opened()
    opened("billing")
    opened()
    opened("billing")
    with pytest.raises(JournalMismatch, match="Application is 'billing' there and 'shipping' here"):
        opened("shipping")


@pytest.mark.parametrize(
    ("row", "properties", "problem"),
    [
        ("m.a", {"Id": "a", "State": "done"}, "State is 'done', expected one of pending, working"),
        ("m.a", {"Id": "a"}, "State is missing"),
        ("m.a", {"Id": "b", "State": "pending"}, "Attempt is missing"),
        (LEASE_KEY, {"Worker": 3}, "Worker is of type int"),
        (LEASE_KEY, {"Worker": "w", "Site": "s", "Token": -1}, "Token is of type int"),
        (LEASE_KEY, {**LEASED, "Recent": "["}, "Recent is of type str or not well formed, expected JSON"),
        (LEASE_KEY, {**LEASED, "Recent": "[]"}, "Recent is of type list or not well formed, expected an object of"),
        (LEASE_KEY, {**LEASED, "Recent": '{"a":{"State":"done"}}'}, "Recent, message a: State is 'done'"),
    ],
)
def test_malformed_row_is_reported_with_its_key(tmp_path: Path, row: Any, properties: Any, problem: Any) -> None:
    store = new_store(tmp_path / "journal.db")
    store.write("s.x", [Write(row, {"Open": 1, **properties})])
    with pytest.raises(JournalMalformed, match=f"journal.db, s.x, row {row}: {problem}"):
        Journal(store, Settings()).read("s.x", ["a"])


def test_concurrent_creation_of_a_file(tmp_path: Path) -> None:
    def opened(path: Any, together: Any) -> None:
        store = SqliteStore(path)
        together.wait()
        try:
            store.open()
        finally:
            store.close()

    with ThreadPoolExecutor(4) as threads:
        for number in range(20):
            together = threading.Barrier(4)
            calls = [threads.submit(opened, tmp_path / f"{number}.db", together) for _ in range(4)]
            for call in calls:
                call.result()


@pytest.mark.parametrize("is_awaited", [False, True], ids=["threads", "awaited"])
def test_existing_table_needs_no_right_to_create_one(table: tuple[str, str], is_awaited: Any) -> None:
    connection_string, name = table
    account = dict(part.split("=", 1) for part in connection_string.strip(";").split(";"))
    with TableServiceClient.from_connection_string(connection_string) as service:
        service.create_table(name)
    key = AzureNamedKeyCredential(account["AccountName"], account["AccountKey"])
    rights = TableSasPermissions(read=True, add=True, update=True, delete=True)
    until = datetime.now(UTC) + timedelta(hours=1)
    credential = AzureSasCredential(generate_table_sas(key, name, permission=rights, expiry=until))

    async def opened() -> None:
        store = AsyncTableStore.from_endpoint(account["TableEndpoint"], name, credential)
        await aio.Journal(store, Settings()).open()
        await store.close()

    if is_awaited:
        asyncio.run(opened())
        return
    store = closed_after(TableStore.from_endpoint(account["TableEndpoint"], name, credential))
    for _ in range(2):
        Journal(store, Settings()).open()


# azure-data-tables asks an element of an answer in XML for its truth.
@pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")
def test_silent_store_is_unavailable_and_refusal_is_reported(table: tuple[str, str]) -> None:
    connection_string, name = table
    nobody = f"{ACCOUNT}TableEndpoint=http://127.0.0.1:9/devstoreaccount1;"
    away = closed_after(TableStore.from_connection_string(nobody, name))
    with pytest.raises(StoreUnavailable, match="did not answer"):
        away.open()
    missing = closed_after(TableStore.from_connection_string(connection_string, name))
    with pytest.raises(StoreRefused, match="expected the table to be there"):
        missing.write("p", [Write("k", {"Open": 0})])
    stranger = closed_after(TableStore.from_connection_string(connection_string.replace("Eby8", "AAAA"), name))
    with pytest.raises(StoreRefused) as refused:
        stranger.open()
    assert "AAAA" not in str(refused.value)
