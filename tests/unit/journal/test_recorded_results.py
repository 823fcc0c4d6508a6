"""The reading of results that are on record: its bounds, and what it does not believe."""

import asyncio
import gzip
import json
from datetime import UTC, datetime, timedelta

import pytest

from shared.clock import ManualClock
from shared.journal import recorded_results
from shared.journal.record import Role
from shared.journal.recorded_results import RecordedResults
from shared.journal.sink import Stream
from shared.protocols import Outcome, Recorded
from tests.memory_sink import SharedSink

BEGIN = datetime(2026, 3, 17, 8, 30, tzinfo=UTC)
_STREAM = Stream("copy", Role.TARGET)


class Journal:
    """A journal, and one instance that reads it."""

    def __init__(self) -> None:
        self.clock = ManualClock(BEGIN)
        self.sink = SharedSink(self.clock)
        self.results = RecordedResults(self.sink.container, "copy")

    def write(self, *identities: str, instance: str = "one", **fields: object) -> None:
        self.append(
            b"".join(
                json.dumps({"outcome": "sent", "observer": "task", "identity": identity} | fields)
                .replace(" ", "")
                .encode()
                + b"\n"
                for identity in identities
            ),
            instance,
        )

    def append(self, text: bytes, instance: str = "one") -> None:
        self.sink.instance = instance
        asyncio.run(self.sink.append(_STREAM, gzip.compress(text)))

    def read(self, since: datetime = BEGIN) -> Recorded:
        return asyncio.run(self.results.read(since, self.clock.now(), 5.0))

    def identities(self, since: datetime = BEGIN) -> list[str]:
        return [identity.hex() for identity in self.read(since).results]


def test_a_second_reading_has_only_what_has_come_since() -> None:
    journal = Journal()
    journal.write("01", "02")
    assert journal.identities() == ["01", "02"]
    journal.write("03")
    journal.write("04", instance="two")
    journal.clock.advance(45 * 60)
    journal.write("05")
    assert sorted(journal.identities()) == ["03", "04", "05"]
    assert journal.identities() == []


def test_an_earlier_hour_is_read_when_it_is_asked_for() -> None:
    journal = Journal()
    journal.write("01")
    journal.clock.advance(timedelta(hours=5).total_seconds())
    journal.write("02")
    assert journal.identities(journal.clock.now()) == ["02"]
    assert journal.identities(BEGIN) == ["01"]


def test_nothing_is_read_from_further_back_than_three_days() -> None:
    journal = Journal()
    journal.write("01")
    journal.clock.advance(timedelta(days=3, hours=1).total_seconds())
    journal.write("02")
    assert journal.identities(BEGIN - timedelta(days=400)) == ["02"]
    assert journal.sink.listings < 80


@pytest.mark.parametrize(
    "line",
    [
        b'{"outcome":"retry","observer":"task","identity":"02"}\n',
        b'{"outcome":"filtered","observer":"task","identity":"02"}\n',
        b'{"outcome":"sent","observer":"tap","identity":"02"}\n',
        b'{"outcome":"sent","observer":"task"}\n',
        b'{"outcome":"sent","observer":"task","identity":"no digits"}\n',
        b'{"outcome":"sent","observer":"task","identity":2}\n',
        b'{"identity":"' + b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_only_results_that_hold_at_every_delivery_count(line: bytes) -> None:
    journal = Journal()
    journal.write("01")
    journal.append(line)
    journal.write("03", outcome="rejected")
    assert journal.read() == Recorded({b"\x01": Outcome.SENT, b"\x03": Outcome.REJECTED})


@pytest.mark.parametrize(
    "damage", [b"no gzip", gzip.compress(b"half of a member")[:-9], b"\x1f\x8b\x08" * 3], ids=["other", "half", "false"]
)
def test_what_is_damaged_is_passed_over(damage: bytes) -> None:
    journal = Journal()
    journal.write("01")
    (name,) = journal.sink.blobs
    journal.sink.blobs[name] += damage
    journal.write("02")
    assert journal.identities() == ["01", "02"]


def test_of_a_large_journal_the_latest_part_is_read_and_the_rest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    for number in range(100):
        journal.write(f"{number:02x}")
    (content,) = journal.sink.blobs.values()
    monkeypatch.setattr(recorded_results, "READ_BYTES", len(content) // 4)
    recorded = journal.read()
    assert [*recorded.results][-1] == b"\x63"
    assert 20 <= len(recorded.results) <= 25
    assert recorded.problem == "only the latest 0 MB were read"


def test_the_text_of_a_member_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_results, "_TEXT_BYTES", 10_000)
    journal = Journal()
    journal.append(b" " * 1_000_000)
    journal.write("01")
    assert journal.identities() == []
