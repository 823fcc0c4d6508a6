"""The reader of a hub at the local broker, with checkpoints in Azurite: positions, retries, two readers."""

import asyncio
import datetime as dt
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.storage.blob.aio import ContainerClient

from busway_broker.config import HubConfig, LinkLimits, NamespaceConfig
from busway_broker.core.event import EventContent
from busway_broker.thread import RunningBroker
from shared.amqp.codec import encode
from shared.amqp.scan import join_map
from shared.amqp.values import string
from shared.clock import ManualClock
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.errors import TargetUnavailable
from shared.line.hub_reader import HubReader, Run
from shared.line.shutdown import Shutdown
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.stores.host_checkpoints import CONTAINER, HostCheckpoints
from tests.wire.sending import closing

SECONDS = 30


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="hubs", hubs=(HubConfig(name="h"),))]) as running:
        yield running


class Line:
    """Collects bodies; a call fails as often as *failures* says."""

    def __init__(self, failures: int = 0) -> None:
        self.bodies: list[str] = []
        self._failures = failures

    async def __call__(self, batch: Sequence[bytes], partition: str | None = None) -> None:
        assert partition == "0"
        if self._failures:
            self._failures -= 1
            raise TargetUnavailable("the target is down")
        self.bodies += [(Message.received(each, Origin("", "")).body or b"").decode() for each in batch]


def send(broker: RunningBroker, *bodies: str) -> None:
    with EventHubProducerClient.from_connection_string(broker.connection_string("hubs"), eventhub_name="h") as producer:
        producer.send_batch([EventData(body) for body in bodies])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what another thread does has no event
            await asyncio.sleep(0.05)


class Site:
    """What readers of one hub need."""

    def __init__(self, broker: RunningBroker, storage: str) -> None:
        self.checkpoints = HostCheckpoints(
            ContainerClient.from_connection_string(storage, CONTAINER), "localhost", "h", f"group-{uuid.uuid4().hex}"
        )
        self.hub = EventHub(Namespace("HUBS", broker.connection_string("hubs")), "h", "$Default")

    async def read(self, line: Run, condition: Callable[[], bool], also: Callable[[], None] = lambda: None) -> None:
        """Read until *condition* holds; *also* happens meanwhile."""
        shutdown = Shutdown()
        reading = asyncio.create_task(HubReader("t", self.hub, self.checkpoints, line, shutdown).read(SECONDS))
        await asyncio.to_thread(also)
        await until(lambda: condition() or reading.done())
        shutdown.request()
        await reading


def run(broker: RunningBroker, storage: str, scenario: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        site = Site(broker, storage)
        async with closing(site.checkpoints):
            await scenario(site)

    asyncio.run(within())


def test_a_batch_that_fails_comes_again_and_the_next_reader_goes_on_after_it(
    broker: RunningBroker, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.line.hub_reader._SHORTEST_PAUSE", 0.1)

    async def scenario(site: Site) -> None:
        send(broker, "a", "b")
        line = Line(failures=2)
        await site.read(line, lambda: line.bodies == ["a", "b"])
        send(broker, "c")
        other = Line()
        await site.read(other, lambda: bool(other.bodies))
        assert (line.bodies, other.bodies) == (["a", "b"], ["c"])

    run(broker, storage, scenario)


def test_a_checkpoint_behind_the_last_event_stops_the_partition_and_is_reported(
    broker: RunningBroker, storage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(site: Site) -> None:
        await site.checkpoints.write("0", "100000", 1000, None)
        send(broker, "a")
        line = Line()
        await site.read(line, lambda: "partition 0 cannot be read" in caplog.text)
        assert not line.bodies

    run(broker, storage, scenario)
    assert "argument-error" in caplog.text


def test_events_that_the_hub_has_deleted_before_they_were_read_are_reported(
    storage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """EH18: the position is not refused, the reader starts with the oldest event."""
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    # The SDK leaks the socket of a connection that ends while it is idle.
    links = LinkLimits(publisher_idle=None, connection_idle=None)
    hub = HubConfig(name="h", message_retention=dt.timedelta(hours=1))
    with RunningBroker([NamespaceConfig(name="hubs", hubs=(hub,), links=links)], clock) as running:

        async def scenario(site: Site) -> None:
            send(running, "a", "b")
            line = Line()
            await site.read(line, lambda: line.bodies == ["a", "b"])
            send(running, "c", "d")
            running.advance(5_400)
            send(running, "e")
            await site.read(line, lambda: line.bodies == ["a", "b", "e"])

        run(running, storage, scenario)
    assert "partition 0 were not read, and are no longer in the hub: sequence numbers 2 to 3" in caplog.text


def test_a_malformed_event_at_the_end_of_a_batch_is_passed_on_once(broker: RunningBroker, storage: str) -> None:
    twice = join_map(b"\x00\x53\x74", [encode(string("a")) + encode(string("b"))] * 2, 2)
    broker.inspect("hubs", lambda hubs: hubs.hub("h").partition("0").append([EventContent(b"", 0, twice, None)]))

    async def scenario(site: Site) -> None:
        batches: list[int] = []

        async def line(batch: Sequence[bytes], partition: str | None = None) -> None:  # noqa: ARG001 - of one hub
            batches.append(len(batch))

        await site.read(line, lambda: bool(batches))
        found = await site.checkpoints.read("0")
        assert (batches, found and found.number) == ([1], 0)

    run(broker, storage, scenario)


def test_after_a_promotion_it_goes_on_by_number(broker: RunningBroker, storage: str) -> None:
    async def scenario(site: Site) -> None:
        send(broker, "a", "b")
        line = Line()
        await site.read(line, lambda: line.bodies == ["a", "b"])
        broker.faults("hubs").fail_over()
        send(broker, "c")
        await site.read(line, lambda: line.bodies == ["a", "b", "c"])

    run(broker, storage, scenario)


def test_a_second_reader_disconnects_the_first(
    broker: RunningBroker, storage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(site: Site) -> None:
        send(broker, "a")
        first, second = Line(), Line()
        shutdown = Shutdown()
        reader = HubReader("t", site.hub, site.checkpoints, first, shutdown)
        reading = asyncio.create_task(reader.read(SECONDS))
        await until(lambda: first.bodies == ["a"])
        await site.read(second, reading.done)
        await reading
        assert not second.bodies

    run(broker, storage, scenario)
    assert "another reader has partition 0" in caplog.text


@pytest.mark.parametrize(("offset", "expected"), [("", ["b"]), ("placeholder", ["b"]), ("0", ["b"])])
def test_the_number_counts_if_the_offset_is_a_placeholder(
    broker: RunningBroker, storage: str, offset: str, expected: list[str]
) -> None:
    # EH12: versions 6.1 to 6.4 of the extension (azure-sdk-for-net 43642)
    async def scenario(site: Site) -> None:
        await site.checkpoints.write("0", offset, 0, None)
        send(broker, "a", "b")
        line = Line()
        await site.read(line, lambda: bool(line.bodies))
        assert line.bodies == expected

    run(broker, storage, scenario)
