"""Consumers that are refused at their start: other entities, journals and settings."""

from typing import Any

import pytest

from busway_clients.sessions import (
    Journal,
    JournaledConsumer,
    JournalMismatch,
    JournalRefused,
    Settings,
    Source,
    SqliteStore,
)
from busway_clients.tables import TableStore
from tests.clients.sessions.consumers import QUICK, SETTINGS, Effects, Regions
from tests.clients.sessions.region import OPENED


@pytest.fixture
def store(table: tuple[str, str]) -> Any:
    made = TableStore.from_connection_string(*table)
    OPENED.append(made)
    return made


def test_sessions_on_one_side_only_are_an_error(regions: Regions, store: Any) -> None:
    regions.send(regions.queue("plain"), ["m1"])
    consumer = JournaledConsumer(
        regions.clients["west"],
        Source(regions.queue("plain")),
        store,
        Effects(),
        site="west",
        settings=SETTINGS,
        lanes=1,
    )
    with pytest.raises(JournalRefused, match=rf"west: {regions.queue('plain')}: .*sessions are needed at all sites"):
        consumer.run()
    regions.send(regions.queue(), ["m1"], "s")
    plain = Settings(lock="message", **QUICK)
    other_store = SqliteStore(":memory:")
    OPENED.append(other_store)
    consumer = JournaledConsumer(
        regions.clients["east"],
        Source(regions.queue(), has_sessions=False),
        other_store,
        Effects(),
        site="east",
        settings=plain,
        lanes=1,
    )
    with pytest.raises(JournalRefused, match=rf"east: {regions.queue()}: .*with no sessions"):
        consumer.run()
    with pytest.raises(JournalRefused, match="has no sessions, expected some"):
        JournaledConsumer(regions.clients["west"], Source("q", has_sessions=False), store, Effects(), site="west")
    assert regions.active(regions.queue())["east"] == 1
    assert regions.active(regions.queue("plain"))["west"] == 1


def test_a_journal_of_another_queue_is_refused_at_the_start(regions: Regions, store: Any) -> None:
    Journal(store, Settings(application="SHIPMENTS/subscriptions/Application".lower())).open()
    source = Source("Shipments", subscription="application")
    for names, is_refused in ((source, False), (Source(regions.queue()), True)):
        consumer = JournaledConsumer(regions.clients["west"], names, store, Effects(), site="west", settings=SETTINGS)
        if is_refused:
            with pytest.raises(JournalMismatch, match="Application is 'shipments/subscriptions/application' there"):
                consumer.start()
        else:
            consumer.journal.open()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"batch": 41}, "batch is 41, expected 1 to 40"),
        ({"batch": 5, "record_every": 6}, "record_every is 6, expected 1 to batch"),
        ({"lease_seconds": 0, "max_attempts": 0}, "lease_seconds is 0, expected more than 0; max_attempts is 0"),
        ({"lock": "row"}, "lock is 'row'"),
        ({"late": "deadletter"}, "late is 'deadletter', expected 'dead-letter' or 'process'"),
        ({"wait_for_earlier_seconds": -5}, "wait_for_earlier_seconds is -5, expected None, or 0 or more"),
        ({"retry_seconds": float("nan")}, "retry_seconds is nan, expected 0 or more"),
        ({"lock": "message", "number": "n"}, "keeps no order"),
    ],
)
def test_all_invalid_settings_are_reported_together(changes: Any, problem: str) -> None:
    with pytest.raises(JournalRefused, match=problem):
        Settings(**changes)
