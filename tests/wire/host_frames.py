"""The connection of the local host to a queue, through a proxy that records its frames."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.fields import fields_of
from shared.clock import ManualClock
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection
from tests.wire.recording_proxy import RecordingProxy, Sent

LOCK = timedelta(seconds=10)
COMPLETED, RELEASED, MODIFIED = 0x24, 0x26, 0x27


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[RunningBroker]:
    queues = (
        QueueConfig(name="q", lock_duration=LOCK),
        QueueConfig(name="s", lock_duration=LOCK, requires_session=True),
    )
    config = NamespaceConfig(name="ns", queues=queues, hubs=(HubConfig(name="hub"),), released_go_last=True)
    with RunningBroker([config], clock) as running:
        yield running


def connected(
    broker: RunningBroker,
    queue: str,
    act: Callable[[ServiceBusConnection, RecordingProxy], Awaitable[None]],
    *,
    sessions: bool = False,
) -> RecordingProxy:
    """Run *act* with a connection to a queue through a recording proxy, and return the proxy."""

    async def run() -> RecordingProxy:
        async with RecordingProxy(broker.port("ns")) as proxy:
            address = broker.connection_string("ns").replace(f":{broker.port('ns')}", f":{proxy.port}")
            entity = {"queue_name": queue}
            connection = await ServiceBusConnection.open(
                Namespace("SB", connection_string=address), entity, sessions=sessions
            )
            try:
                await act(connection, proxy)
            finally:
                await connection.close()
            return proxy

    return asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - another thread or the peer makes it true
            await asyncio.sleep(0.01)


def settled_with(proxy: RecordingProxy, outcome: int) -> list[Sent]:
    """Return the dispositions of the client with an outcome."""
    sent = proxy.sent(performatives.DISPOSITION)
    return [frame for frame in sent if fields_of(frame.field(4), "state")[0] == outcome]


def flows(proxy: RecordingProxy, channel: int) -> list[tuple[int, bool]]:
    """Return credit and drain of the client's flows on a channel."""
    return [
        (frame.field(6), bool(frame.field(8))) for frame in proxy.sent(performatives.FLOW) if frame.channel == channel
    ]


def left(broker: RunningBroker, queue: str) -> list[tuple[int, bool]]:
    """Return delivery count and whether it is locked of each message."""
    return broker.inspect(
        "ns", lambda each: [(one.delivery_count, one.lock_token is not None) for one in each.store(queue).peek(0)]
    )
