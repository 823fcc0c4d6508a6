"""How the local host receives from Service Bus: the frames of Microsoft's .NET libraries (C1 to C4)."""

import asyncio

from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.performatives import ACCEPTED
from shared.clock import ManualClock
from shared.ends.azure_amqp.raw_link import Delivery
from shared.ends.service_bus.connection import ServiceBusConnection
from tests.wire.host_frames import COMPLETED, RELEASED, broker, clock, connected, flows, left, settled_with, until
from tests.wire.recording_proxy import RecordingProxy
from tests.wire.settling import send

__all__ = ["broker", "clock"]


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.payload[-1:].decode() for delivery in deliveries]


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
        await until(lambda: left(broker, "q") == [(0, True), (0, False)] and settled_with(proxy, RELEASED))

    proxy = connected(broker, "q", act)
    (released,) = settled_with(proxy, RELEASED)
    assert (released.field(1), released.field(2), released.field(3)) == (1, None, True)
    assert clock.monotonic() == 0


def test_message_is_delivered_and_released_as_often_as_there_was_credit(broker: RunningBroker) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        assert bodies(await link.receive(5, 5)) == ["1"]
        await asyncio.to_thread(send, broker, "q", "2")
        await until(lambda: len(settled_with(proxy, RELEASED)) == 4)
        assert bodies(await link.receive(5, 5)) == ["2"]

    proxy = connected(broker, "q", act)
    assert len(settled_with(proxy, RELEASED)) == 4
    assert left(broker, "q")[1][0] == 0


def test_order_is_lost_where_the_service_puts_released_messages_last(broker: RunningBroker) -> None:
    send(broker, "q", "1")

    async def act(connection: ServiceBusConnection, proxy: RecordingProxy) -> None:
        link = await connection.attach()
        assert bodies(await link.receive(2, 5)) == ["1"]
        await asyncio.to_thread(send, broker, "q", "2", "3")
        await until(lambda: settled_with(proxy, RELEASED))
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
        await until(lambda: settled_with(proxy, RELEASED))
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
    dispositions = [position[id(frame)] for frame in settled_with(proxy, COMPLETED)]
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
