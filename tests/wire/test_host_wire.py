"""The frames of the local host to Service Bus and Event Hubs: those of Microsoft's .NET libraries (C1 to C9)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubProducerClient

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.codec import plain
from shared.amqp.fields import fields_of
from shared.amqp.performatives import ACCEPTED
from shared.clock import ManualClock
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection, session_timeout
from tests.wire.recording_proxy import RecordingProxy, Sent
from tests.wire.settling import send

LOCK = timedelta(seconds=10)
_SASL_INIT = 0x41
_COMPLETED, _RELEASED, _MODIFIED = 0x24, 0x26, 0x27


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


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.payload[-1:].decode() for delivery in deliveries]


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


# C1: without prefetch, a message that arrives between two calls is released


def test_message_that_arrives_while_no_call_waits_is_released_at_once(
    broker: RunningBroker, clock: ManualClock
) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        assert bodies(await link.receive(2, 5)) == ["1"]
        await asyncio.to_thread(send, broker, "q", "2")
        # The open credit takes it again after each release: here once, as it was granted for two.
        await until(lambda: left(broker, "q") == [(0, True), (0, False)] and settled_with(proxy, _RELEASED))

    proxy = connected(broker, "q", act)
    (released,) = settled_with(proxy, _RELEASED)
    assert (released.field(1), released.field(2), released.field(3)) == (1, None, True)
    assert clock.monotonic() == 0


def test_message_is_delivered_and_released_as_often_as_there_was_credit(broker: RunningBroker) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        assert bodies(await link.receive(5, 5)) == ["1"]
        await asyncio.to_thread(send, broker, "q", "2")
        await until(lambda: len(settled_with(proxy, _RELEASED)) == 4)
        assert bodies(await link.receive(5, 5)) == ["2"]

    proxy = connected(broker, "q", act)
    assert len(settled_with(proxy, _RELEASED)) == 4
    assert left(broker, "q")[1][0] == 0


def test_order_is_lost_where_the_service_puts_released_messages_last(broker: RunningBroker) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        assert bodies(await link.receive(2, 5)) == ["1"]
        await asyncio.to_thread(send, broker, "q", "2", "3")
        await until(lambda: settled_with(proxy, _RELEASED))
        assert bodies(await link.receive(2, 5)) == ["3", "2"]

    connected(broker, "q", act)


def test_a_released_message_comes_once_although_the_function_outlives_its_lock(
    broker: RunningBroker, clock: ManualClock
) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        first = await link.receive(2, 5)
        await asyncio.to_thread(send, broker, "q", "2")
        await until(lambda: settled_with(proxy, _RELEASED))
        broker.advance(12)
        assert await connection.raw.settle(link, first, ACCEPTED) == {0: "com.microsoft:message-lock-lost"}
        second = await link.receive(5, 5)
        assert sorted(bodies(second)) == ["1", "2"]
        assert await connection.raw.settle(link, second, ACCEPTED) == {}

    connected(broker, "q", act)
    assert left(broker, "q") == []
    assert clock.monotonic() == 12


# C2: sessions drain


def test_session_drains_after_a_short_call_before_the_first_disposition(broker: RunningBroker) -> None:
    send(broker, "s", "1", "2", session_id="a")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach(session_wait=5, drains=True)
        deliveries = await link.receive(10, 5)
        assert bodies(deliveries) == ["1", "2"]
        assert link.credit == 0
        assert await connection.raw.settle(link, deliveries, ACCEPTED) == {}
        assert await link.receive(10, 0.1) == []

    proxy = connected(broker, "s", act, sessions=True)
    attach = proxy.sent(performatives.ATTACH)[-1]
    assert flows(proxy, attach.channel) == [(10, False), (8, True), (10, False), (10, True)]
    answers = [flow for flow in proxy.sent(performatives.FLOW, by_client=False) if flow.field(8)]
    assert [(flow.field(5), flow.field(6)) for flow in answers] == [(10, 0), (20, 0)]
    position = {id(frame): index for index, frame in enumerate(proxy.frames)}
    dispositions = [position[id(frame)] for frame in settled_with(proxy, _COMPLETED)]
    assert position[id(answers[0])] < min(dispositions)


def test_session_that_returned_all_it_was_asked_for_does_not_drain(broker: RunningBroker) -> None:
    send(broker, "s", "1", "2", session_id="a")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach(session_wait=5, drains=True)
        assert bodies(await link.receive(2, 5)) == ["1", "2"]

    proxy = connected(broker, "s", act, sessions=True)
    assert not any(flow.field(8) for flow in proxy.sent(performatives.FLOW))


def test_session_with_prefetch_opens_its_window_again_after_the_drain(broker: RunningBroker) -> None:
    send(broker, "s", "1", session_id="a")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach(6, session_wait=5, drains=True)
        deliveries = await link.receive(10, 5)
        await connection.raw.settle(link, deliveries, ACCEPTED)

    proxy = connected(broker, "s", act, sessions=True)
    attach = proxy.sent(performatives.ATTACH)[-1]
    assert flows(proxy, attach.channel)[:3] == [(6, False), (5, True), (5, False)]


def test_queue_without_sessions_drains_only_before_closing(broker: RunningBroker) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        deliveries = await link.receive(5, 5)
        await connection.raw.settle(link, deliveries, ACCEPTED)
        assert not any(drain for _, drain in flows(proxy, link.session.channel))
        await link.withdraw()
        assert flows(proxy, link.session.channel) == [(5, False), (4, True)]

    connected(broker, "q", act)


# C3: prefetch is a window over what is not settled


def test_prefetch_below_the_batch_size_bounds_the_batch_until_something_is_settled(broker: RunningBroker) -> None:
    send(broker, "q", *"123456789")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach(6)
        first = await link.receive(100, 5)
        assert bodies(first) == list("123456")
        assert await link.receive(100, 0.2) == []
        await connection.raw.settle(link, first[:3], ACCEPTED)  # less than two thirds: no flow yet
        assert await link.receive(100, 0.2) == []
        await connection.raw.settle(link, first[3:4], ACCEPTED)
        assert bodies(await link.receive(100, 5)) == list("789")

    proxy = connected(broker, "q", act)
    attach = proxy.sent(performatives.ATTACH)[-1]
    assert flows(proxy, attach.channel) == [(6, False), (4, False)]


# C4: how long a call waits


def test_messages_that_are_there_are_returned_without_waiting_for_more(broker: RunningBroker) -> None:
    send(broker, "q", "1", "2", "3")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach(10)
        await until(lambda: len(proxy.sent(performatives.TRANSFER, by_client=False)) == 4)  # a token's answer, too
        loop = asyncio.get_running_loop()
        await until(lambda: len(link._received) == 3)
        started = loop.time()
        assert bodies(await link.receive(2, 5)) == ["1", "2"]
        assert bodies(await link.receive(2, 5)) == ["3"]
        assert loop.time() - started < 2  # to wait for more takes 5 s

    connected(broker, "q", act)


def test_a_call_for_one_message_does_not_wait_for_a_second(broker: RunningBroker) -> None:
    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach()
        waiting = asyncio.create_task(link.receive(1, 5))
        await asyncio.to_thread(send, broker, "q", "1")
        assert bodies(await waiting) == ["1"]

    connected(broker, "q", act)


# C5, C6: settlement


@pytest.mark.parametrize("outcome", [_COMPLETED, _MODIFIED])
def test_each_message_is_settled_with_a_disposition_of_its_own(broker: RunningBroker, outcome: int) -> None:
    send(broker, "q", "1", "2", "3")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        link = await connection.attach()
        deliveries = await link.receive(3, 5)
        assert await connection.raw.settle(link, deliveries, outcome) == {}

    sent = settled_with(connected(broker, "q", act), outcome)
    assert [(frame.field(1), frame.field(2), frame.field(3)) for frame in sent] == [
        (number, None, False) for number in range(3)
    ]
    assert all(not frame.field(5) for frame in sent)  # never batchable
    assert all(plain(frame.field(4)) == [] for frame in sent)  # without a field
    assert left(broker, "q") == ([] if outcome == _COMPLETED else [(1, False)] * 3)


def test_renewal_names_the_link_that_holds_the_message(broker: RunningBroker) -> None:
    """SR16: only a request with the link's name keeps the link alive."""
    send(broker, "q", "1")
    names: list[str] = []

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        await connection.attach()
        link = await connection.attach()
        (delivery,) = await link.receive(1, 5)
        await connection.management(link).renew_locks([delivery.tag], 5)
        names.append(link.name)

    proxy = connected(broker, "q", act)
    (renewal,) = [one for one in proxy.sent(performatives.TRANSFER) if b"com.microsoft:renew-lock" in one.payload]
    assert b"associated-link-name\xa1%c%b" % (len(names[0]), names[0].encode()) in renewal.payload


# C7, C8: opening


def test_connection_opens_with_the_values_of_dotnet(broker: RunningBroker) -> None:
    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        await connection.attach()

    proxy = connected(broker, "q", act)
    (sasl,) = proxy.sent(_SASL_INIT)
    assert sasl.field(0) == "MSSBCBS"
    (opening,) = proxy.sent(performatives.OPEN)
    assert [opening.field(number) for number in (2, 3, 4)] == [65_536, 8_191, 30_000]
    begin = proxy.sent(performatives.BEGIN)[-1]
    assert [begin.field(number) for number in (2, 3)] == [2**32 - 1, 5_000]
    attach = proxy.sent(performatives.ATTACH)[-1]
    assert [attach.field(number) for number in (3, 4)] == [0, 1]


def test_each_session_link_gets_a_token_and_an_amqp_session_of_its_own(broker: RunningBroker) -> None:
    send(broker, "s", "1", session_id="a")
    send(broker, "s", "2", session_id="b")

    async def act(connection: ServiceBusConnection, _: RecordingProxy) -> None:
        for _session in "ab":
            link = await connection.attach(session_wait=60, drains=True)
            await connection.raw.settle(link, await link.receive(1, 5), ACCEPTED)
            await connection.raw.detach(link)

    proxy = connected(broker, "s", act, sessions=True)
    attaches = [frame for frame in proxy.sent(performatives.ATTACH) if _filters(frame)]
    assert [_filters(frame) for frame in attaches] == [{"com.microsoft:session-filter": None}] * 2
    assert all(frame.channel != proxy.sent(performatives.BEGIN)[0].channel for frame in attaches)
    timeouts = [plain(frame.field(13))["com.microsoft:timeout"] for frame in attaches]  # type: ignore[index] # a map
    assert all(59_880 <= timeout <= 59_980 for timeout in timeouts)
    uncounted = (performatives.FLOW, performatives.DISPOSITION)
    kinds = [frame.code for frame in proxy.frames if frame.by_client and frame.code not in uncounted]
    # For each link: a token, a session, the link; at the end the link is closed and its session ended.
    token, begin, attach = performatives.TRANSFER, performatives.BEGIN, performatives.ATTACH
    opened = [token, begin, attach, performatives.DETACH, performatives.END]
    assert kinds[kinds.index(token) :][: 2 * len(opened)] == opened * 2
    assert all(frame.field(1) is True for frame in proxy.sent(performatives.DETACH)[:2])


def test_client_that_gives_up_waiting_for_a_session_detaches_and_goes_on(broker: RunningBroker) -> None:
    """SR41: without the detach the service may lock a session for nobody (azure-service-bus-java PR 115)."""
    send(broker, "s", "1", session_id="a")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        held = await connection.attach(session_wait=60, drains=True)
        waiting = asyncio.create_task(connection.attach(session_wait=60, drains=True))
        await until(lambda: len([one for one in proxy.sent(performatives.ATTACH) if _filters(one)]) == 2)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await until(lambda: proxy.sent(performatives.DETACH))
        assert proxy.sent(performatives.DETACH)[0].channel == proxy.sent(performatives.ATTACH)[-1].channel
        await until(lambda: len(proxy.sent(performatives.END, by_client=False)) == 1)
        assert await connection.raw.settle(held, await held.receive(1, 5), ACCEPTED) == {}

    connected(broker, "s", act, sessions=True)


def _filters(frame: Sent) -> Any:
    source = plain(frame.field(5))
    assert isinstance(source, list)
    return source[7] if len(source) > 7 else None


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, 59_980), (0.5, 59_930), (1.0, 59_880)])
def test_wait_for_a_session_has_the_jitter_of_dotnet(jitter: float, expected: int) -> None:
    assert session_timeout(60, jitter) == expected


# C9: event hubs


def test_reader_of_a_partition_has_epoch_0_and_cuts_the_first_off(broker: RunningBroker) -> None:
    async def act() -> RecordingProxy:
        async with RecordingProxy(broker.port("ns")) as proxy:
            address = broker.connection_string("ns").replace(f":{broker.port('ns')}", f":{proxy.port}")
            hub = EventHub(Namespace("EH", connection_string=address), "hub", "$Default")
            first = await hub.open("0", "-1", 300, epoch=0)
            second = await hub.open("0", "-1", 300, epoch=0)
            with pytest.raises(LinkClosed, match="stolen"):
                await first.link.receive(1, 5)
            async with EventHubProducerClient.from_connection_string(address, eventhub_name="hub") as producer:
                await producer.send_batch([EventData(str(number)) for number in range(250)])
            count = 0
            while count < 250:
                count += len(await second.link.receive(50, 5))
            await first.close()
            await second.close()
            await hub.close()
            return proxy

    proxy = asyncio.run(act())
    readers = [
        frame
        for frame in proxy.sent(performatives.ATTACH)
        if frame.field(2) and "com.microsoft:epoch" in str(plain(frame.field(13)) if frame.field(13) else "")
    ]
    assert [plain(frame.field(13))["com.microsoft:epoch"] for frame in readers] == [0, 0]  # type: ignore[index] # a map


def test_reader_grants_credit_again_in_steps_of_a_hundred(broker: RunningBroker) -> None:
    async def act() -> list[tuple[int, int]]:
        async with RecordingProxy(broker.port("ns")) as proxy:
            address = broker.connection_string("ns").replace(f":{broker.port('ns')}", f":{proxy.port}")
            async with EventHubProducerClient.from_connection_string(address, eventhub_name="hub") as producer:
                await producer.send_batch([EventData(str(number)) for number in range(600)])
            proxy.frames.clear()
            hub = EventHub(Namespace("EH", connection_string=address), "hub", "$Default")
            opened = await hub.open("0", "-1", 300, epoch=0)
            await until(lambda: len(opened.link._received) == 300)
            for _ in range(12):
                assert len(await opened.link.receive(50, 5)) == 50
            channel = opened.link.session.channel
            await until(lambda: len(flows(proxy, channel)) == 7)
            await opened.close()
            await hub.close()
            return [(f.field(5), f.field(6)) for f in proxy.sent(performatives.FLOW) if f.channel == channel]

    granted = asyncio.run(act())
    assert granted[0] == (0, 300)
    assert [count + credit for count, credit in granted] == [300, 400, 500, 600, 700, 800, 900]
