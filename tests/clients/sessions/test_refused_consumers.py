"""Consumers that are refused at their start: other entities, journals and settings."""

from typing import Any

import pytest

from busway_clients.sessions import Journal, JournalMismatch, JournalRefused, Settings, Source
from tests.clients.sessions.consumers import Effects, Regions
from tests.clients.sessions.region import new_store


def test_sessions_on_one_side_only_are_an_error(regions: Regions) -> None:
    regions.send(["m1"])
    regions.send(["m1"], "s")
    consumer = regions.consumer("west", new_store(), Effects(), source=Source(regions.queue("plain")))
    with pytest.raises(JournalRefused, match=rf"west: {regions.queue('plain')}: .*sessions are needed at all sites"):
        consumer.run()
    source = Source(regions.queue(), has_sessions=False)
    consumer = regions.consumer("east", new_store(), Effects(), "plain", source=source)
    with pytest.raises(JournalRefused, match=rf"east: {regions.queue()}: .*with no sessions"):
        consumer.run()
    with pytest.raises(JournalRefused, match="has no sessions, expected some"):
        regions.consumer("west", new_store(), Effects(), source=source)
    assert (regions.active()["east"], regions.active("plain")["west"]) == (1, 1)


def test_a_journal_of_another_queue_is_refused_at_the_start(regions: Regions, table_store: Any) -> None:
    Journal(table_store, Settings(application="SHIPMENTS/subscriptions/Application".lower())).open()
    source = Source("Shipments", subscription="application")
    regions.consumer("west", table_store, Effects(), source=source).journal.open()
    with pytest.raises(JournalMismatch, match="Application is 'shipments/subscriptions/application' there"):
        regions.consumer("west", table_store, Effects()).start()


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
