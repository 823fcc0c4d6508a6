"""How the local host settles, and opens links: the frames of Microsoft's .NET libraries (C5 to C9)."""

import asyncio
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubProducerClient

from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.codec import plain
from shared.amqp.performatives import ACCEPTED
from shared.ends.azure_amqp.raw_link import LinkClosed
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection, session_timeout
from tests.wire.host_frames import COMPLETED, MODIFIED, broker, clock, connected, flows, left, settled_with, until
from tests.wire.recording_proxy import RecordingProxy, Sent
from tests.wire.settling import send

__all__ = ["broker", "clock"]
_SASL_INIT = 0x41


# C5, C6: settlement


@pytest.mark.parametrize("outcome", [COMPLETED, MODIFIED])
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
    assert left(broker, "q") == ([] if outcome == COMPLETED else [(1, False)] * 3)


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
