"""What the app reports about hourly runs, in its log and in its status."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import ContainerClient

from shared.assembly.last_reconciliation import last_reconciliation
from shared.errors import TargetRefused
from shared.nightly.hours import Hours
from shared.nightly.night import AttentionNeeded
from shared.nightly.results import run_of_hour
from tests.wire.nightly.night import Watch, lines

NOON = datetime(2026, 11, 20, 12, 15, tzinfo=UTC)


def hour(watch: Watch, start: int, *, exit_code: int = 0, new: dict[str, int] | None = None, **verdicts: int) -> None:
    verdict = "findings" if exit_code == 1 else "clean"
    watch.write(exit_code, run=run_of_hour(NOON.replace(hour=start)), verdict=verdict, new=new, **verdicts)


class Losses:
    def __init__(self) -> None:
        self.counts: list[tuple[str, int]] = []

    def lost(self, task: str, count: int) -> None:
        self.counts.append((task, count))


def look(watch: Watch, minutes: int = 0, *, losses: Losses | None = None) -> str | None:
    watch.clock.advance(60 * minutes)
    try:
        asyncio.run(Hours(watch.settings, losses or Losses(), clock=watch.clock).look())
    except AttentionNeeded as error:
        return str(error)
    return None


def test_an_hour_is_reported_once_and_a_finding_only_in_the_hour_that_has_it_first(
    container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(container, None, NOON)
    assert look(watch) is None, "an app without hourly runs"
    hour(watch, 10)
    hour(watch, 11, exit_code=1, new={"missing": 2}, missing=2)
    found = look(watch, 15)
    assert found is not None
    assert found.startswith("hourly reconciliation of 2026-11-20T11: new findings. orders: 2 missing. Page: http")
    assert found.endswith("/runs/2026-11-20T11--2026-11-20T12/report.html")
    assert look(watch, 15) is None
    # It stays missing. Another message is lost at one, and two hours have no result until the next start.
    hour(watch, 13, exit_code=1, new={}, missing=2)
    assert look(watch, 90) is None
    hour(watch, 14, exit_code=1, new={"missing": 1}, missing=3)
    hour(watch, 15, exit_code=2)
    assert look(watch, 180) == found.replace("T11", "T14").replace("T12", "T15").replace("2 missing", "1 missing")
    assert look(watch, 15) is None
    assert [line.split(": ")[0][-13:] for line in lines(caplog, logging.ERROR)] == ["2026-11-20T11", "2026-11-20T14"]
    quiet = [line.split(". ")[0].removeprefix("hourly reconciliation of ") for line in lines(caplog, logging.INFO)]
    assert quiet == ["2026-11-20T10: clean", "2026-11-20T13: findings", "2026-11-20T15: could not decide"]


def test_newly_missing_messages_are_added_to_the_losses(container: ContainerClient) -> None:
    watch, losses = Watch(container, None, NOON), Losses()
    hour(watch, 9, exit_code=1, new={"missing": 2, "expired-unsent": 1, "late": 5}, missing=2, late=5)
    hour(watch, 10, exit_code=1, new={}, missing=2)
    hour(watch, 11, exit_code=1, new={"altered": 1}, altered=1)
    assert look(watch, losses=losses) is not None
    assert look(watch, 15, losses=losses) is not None
    assert losses.counts == [("orders", 3)]


def test_a_job_that_does_not_count_new_findings_and_a_foreign_note(container: ContainerClient) -> None:
    watch = Watch(container, None, NOON)
    hour(watch, 11, exit_code=1, altered=1)
    assert "new findings. orders: 1 altered." in str(look(watch))
    container.upload_blob("nightly/hours.json", "{}", overwrite=True)
    with pytest.raises(TargetRefused, match=r"nightly/hours.json: not a note of this app; delete it"):
        look(watch)


def test_the_status_has_the_last_night_and_the_last_hour(container: ContainerClient) -> None:
    watch = Watch(container, None)
    settings = {"BUSWAY_RECONCILIATION": watch.settings.results}
    noon = NOON + timedelta(days=1)
    assert asyncio.run(last_reconciliation(settings, noon)).hour is None
    watch.write(1, verdict="findings", missing=2)
    found = asyncio.run(last_reconciliation(settings, noon))
    assert not isinstance(found.night, str)
    assert (found.night.day, found.night.verdict, found.hour) == ("2026-11-20", "findings", None)
    assert found.findings["orders"].findings == {"missing": 2}
    watch.write(0, run="2026-11-21T10--2026-11-21T11")
    found = asyncio.run(last_reconciliation(settings, noon))
    assert found.hour is not None
    assert (found.hour.day, found.hour.verdict) == ("2026-11-21T10", "clean")
    assert found.hour.page.endswith("/runs/2026-11-21T10--2026-11-21T11/report.html")
    assert asyncio.run(last_reconciliation(settings, noon + timedelta(hours=3))).hour is None
