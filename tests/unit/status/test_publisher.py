"""When an instance writes, what it keeps, and that a storage account which fails stops nothing."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.line.item import Item, Original
from shared.line.states import State
from shared.message.arrival import Arrival, Origin
from shared.protocols import BatchReport, Outgoing
from shared.status.publisher import Identity, Publisher
from shared.status.recorder import TaskRecorder
from shared.status.report import GONE_SECONDS, Control, HourReport, InstanceReport
from shared.status.store import StatusStore, hour_of
from shared.stores.blobs import Blob, Listed, Listing

START = datetime(2026, 11, 23, 10, 58, 50, tzinfo=UTC)


class ContainerInMemory:
    """Blobs with the time of their last write by *clock*."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.blobs: dict[str, tuple[bytes, datetime]] = {}
        self.writes: list[str] = []
        self.is_down = False

    async def replace(self, name: str, content: bytes) -> None:
        if self.is_down:
            raise TargetUnavailable("journal: the storage account cannot be reached")
        self.writes.append(name)
        self.blobs[name] = content, self.clock.now()

    async def read_all(self, name: str) -> Blob | None:
        return Blob(self.blobs[name][0], "1") if name in self.blobs else None

    async def listed(self, prefix: str) -> Listing:
        found = [
            Listed(name, modified, len(content))
            for name, (content, modified) in sorted(self.blobs.items())
            if name.startswith(prefix)
        ]
        return Listing(found, self.clock.now())

    async def delete(self, name: str) -> None:
        self.blobs.pop(name, None)

    async def close(self) -> None:
        pass


class Site:
    """An instance with one task, and the store that it writes to."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.container = ContainerInMemory(self.clock)
        self.store = StatusStore(self.container)
        self.recorder = TaskRecorder("copy", self.clock)
        self.publisher = self.new_publisher()

    def new_publisher(self) -> Publisher:
        identity = Identity("WN1-xk2/7", "busway-west", "West Europe", "0.2.0")
        return Publisher(lambda: self.store, [self.recorder], identity, self.clock)

    def work(self) -> None:
        self.recorder.unwritten(1)

    def publish(self, after: float = 5) -> list[str]:
        """Return the names of the blobs that are written after some seconds."""
        self.clock.advance(after)
        self.container.writes.clear()
        asyncio.run(self.publisher.publish())
        return list(self.container.writes)


@pytest.fixture
def site() -> Site:
    return Site()


def test_an_instance_writes_one_small_blob_when_something_has_changed(site: Site) -> None:
    own = f"instances/{site.publisher.name}.json"
    assert site.publish() == [own]
    assert site.publish() == []
    site.work()
    assert site.publish() == [own]
    report = msgspec.json.decode(site.container.blobs[own][0], type=InstanceReport)
    assert (report.instance, report.app, report.region, report.busway) == (
        "WN1-xk2/7", "busway-west", "West Europe", "0.2.0",
    )  # fmt: skip
    assert [(task.task, task.unwritten) for task in report.tasks] == [("copy", 1)]


def test_an_idle_instance_is_alive_for_readers(site: Site) -> None:
    site.publish()
    seconds = 0
    while not site.publish():
        seconds += 5
        assert seconds < GONE_SECONDS / 2
    found = asyncio.run(site.store.reports(site.clock.now(), GONE_SECONDS))
    assert [instance.name for instance in found.instances] == [site.publisher.name]


def test_a_restart_has_a_blob_of_its_own(site: Site) -> None:
    site.publish()
    first, site.publisher = site.publisher, site.new_publisher()
    site.publish()
    assert first.name != site.publisher.name
    assert len(site.container.blobs) == 2


def test_a_storage_account_that_fails_is_logged_once_and_tried_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "busway.status")
    site.container.is_down = True
    for _ in range(3):
        assert site.publish() == []
    site.container.is_down = False
    assert site.publish() != []
    assert [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records] == [
        ("WARNING", "the status of this instance cannot be published"),
        ("INFO", "the status of this instance is published again"),
    ]


def test_what_is_old_is_deleted_and_what_is_recent_is_kept(site: Site) -> None:
    old = [f"instances/old-{number}.json" for number in range(3)] + ["history/2026-11-22T10/old-1.json"]
    kept = ["control/copy.json", "task=copy/date=2026-11-22/hour=10/role=source/x.jsonl.gz"]
    for name in [*old, *kept]:
        site.container.blobs[name] = b"{}", START - timedelta(hours=25)
    site.publish()
    assert set(site.container.blobs) == {*kept, f"instances/{site.publisher.name}.json"}


def test_a_blob_with_another_content_is_reported_and_hides_nothing(site: Site) -> None:
    site.publish()
    for name in ("instances/a.json", "control/b.json"):
        site.container.blobs[name] = b'{"version": "x', site.clock.now()
    asyncio.run(site.store.write_control("copy", Control(paused=True, by="ops")))
    found = asyncio.run(site.store.reports(site.clock.now(), GONE_SECONDS))
    assert [instance.name for instance in found.instances] == [site.publisher.name]
    assert found.damaged == ["instances/a.json", "control/b.json"]
    assert found.controls == {"copy": Control(paused=True, by="ops")}


def sent(clock: ManualClock) -> BatchReport:
    """Return the report of a batch with one message that was sent."""
    now = round(clock.now().timestamp() * 1000)
    item = Item(Original(b"", Arrival(Origin("west", "orders"), 1, enqueued_time=now), 0))
    item.state, item.outgoing = State.SENT, Outgoing(b"", None, None, None)
    return BatchReport(item.arrival.origin, 1, [item], clock.now(), 0.01, 0, None)


def test_the_history_of_an_hour_is_complete_after_its_end(site: Site) -> None:
    for _ in range(30):  # two and a half minutes across 11:00
        site.recorder.batch(sent(site.clock))
        site.publish()
    hour = hour_of(START)
    found = asyncio.run(site.store.history([hour, hour + 1]))
    assert [hour.name for hour in found] == [site.publisher.name] * 2
    minutes = {minute.minute: minute.sent for hours in found for minute in hours.report.minutes["copy"]}
    assert sum(count for minute, count in minutes.items() if minute < (hour + 1) * 60) == 14
    assert max(minutes) >= (hour + 1) * 60
    size = len(site.container.blobs[f"history/2026-11-23T10/{site.publisher.name}.json"][0])
    assert size < 200
    assert msgspec.json.decode(msgspec.json.encode(found[0].report), type=HourReport) == found[0].report
