"""Peeks as the service answers them, and what is concluded from them: nothing is missing that is there."""

import asyncio
import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import EntityStatus, LinkLimits, NamespaceConfig, QueueConfig
from busway_broker.core.administration import Administration
from busway_broker.core.content import read_content
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import client_of, service_bus_client
from shared.ends.service_bus.missing import Range, dead_letters, held_numbers
from shared.ends.service_bus.peek import CannotBePeeked, peeker_opener
from shared.ends.service_bus.site import ServiceBusSite
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.waiting import Waiting
from shared.resend.peek import keys_in
from shared.resend.places import Place
from tests.messages import delivered
from tests.wire.sending import closing

PLAIN, PARTS = QueueConfig(name="plain"), QueueConfig(name="parts", enable_partitioning=True)
MANAGE = frozenset((Operation.MANAGE,))
EMPTY = Fault(effect=Effect.EMPTY_PEEK, operations=MANAGE, every=2)
SHORT = Fault(effect=Effect.SHORT_PEEK, operations=MANAGE)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="n", queues=(PLAIN, PARTS))]) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(broker: RunningBroker) -> None:
    broker.reset()


def fill(broker: RunningBroker, queue: str, count: int, *, dead: bool = False) -> None:
    def publish(namespace: "object") -> None:
        target = namespace.queue(queue)  # type: ignore[attr-defined] # the broker's own
        for number in range(count):
            content = read_content(delivered(None, message_id=f"m-{number}"))
            if dead:
                target.backlog.dead_letters.add(content)
            else:
                target.publish(content)

    broker.inspect("n", publish)


@pytest.mark.parametrize("fault", [None, EMPTY, replace(EMPTY, at=2), SHORT], ids=["none", "empty", "later", "short"])
@pytest.mark.parametrize("queue", ["plain", "parts"])
def test_nothing_is_missed_by_whoever_peeks(
    broker: RunningBroker, queue: str, fault: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.ends.service_bus.site._SECONDS", 60.0)  # also on a busy machine
    fill(broker, queue, 30)
    if fault is not None:
        broker.faults("n").add(fault)
    settings = {"N": broker.connection_string("n")}
    assert len(asyncio.run(keys_in(Place("n", "n", "N", queue), settings))) == 30
    assert asyncio.run(waiting(broker, queue)).messages == 30


@pytest.mark.parametrize("fault", [EMPTY, SHORT])
def test_the_watch_on_losses_sees_what_the_source_and_its_dead_letters_hold(
    broker: RunningBroker, fault: Fault
) -> None:
    fill(broker, "plain", 10)
    fill(broker, "plain", 10, dead=True)
    broker.faults("n").add(fault)
    settings = {"N": broker.connection_string("n")}
    opener = [
        peeker_opener(lambda: service_bus_client("N", settings), Origin("n", path))
        for path in ("plain", "plain/$DeadLetterQueue")
    ]
    held, until = asyncio.run(held_numbers(opener[0], 0, [Range(1, 4), Range(8, 10)]))
    assert {number for number, _ in held} >= {1, 2, 3, 4, 8, 9, 10}
    assert until is None
    found, is_complete = asyncio.run(dead_letters(opener[1], 0, has_own_numbers=True))
    assert (len(found), is_complete) == (10, True)


async def waiting(broker: RunningBroker, queue: str) -> Waiting:
    async with closing(site_of(broker)) as site:
        return await site.waiting(queue)


def site_of(broker: RunningBroker) -> ServiceBusSite:
    namespace = Namespace("n", broker.connection_string("n"))
    return ServiceBusSite("n", lambda: client_of(namespace))


def test_a_status_is_there_in_time_although_an_answer_has_one_message(broker: RunningBroker) -> None:
    fill(broker, "parts", 1_000)
    broker.faults("n").add(Fault(effect=Effect.DELAY, operations=MANAGE, delay=0.08))
    started = time.monotonic()
    found = asyncio.run(waiting(broker, "parts"))
    assert found.is_minimum
    assert found.messages > 2
    assert found.oldest is not None
    assert time.monotonic() - started < 10


def test_what_is_not_answered_cannot_be_peeked(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.ends.service_bus.site._SECONDS", 0.5)
    broker.faults("n").add(Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, operations=MANAGE))
    with pytest.raises(TargetUnavailable, match=r"n/plain: it cannot be peeked, .*Timeout"):
        asyncio.run(waiting(broker, "plain"))


def test_a_connection_that_stays_open_follows_an_entity_that_is_created_again(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.ends.service_bus.management._LONGEST_PEEKING_SECONDS", 0.2)
    fill(broker, "plain", 5)

    async def look() -> list[int]:
        async with closing(site_of(broker)) as site:
            before = await site.waiting("plain")
            await asyncio.to_thread(broker.inspect, "n", create_again)
            await asyncio.sleep(0.3)
            return [before.messages, (await site.waiting("plain")).messages]

    assert asyncio.run(look()) == [5, 0]


def create_again(namespace: "object") -> None:
    administration = Administration(namespace)  # type: ignore[arg-type] # the broker's own
    administration.delete("plain")
    administration.create_queue(PLAIN)


def test_the_link_of_a_deleted_entity_still_shows_what_it_was(broker: RunningBroker) -> None:
    fill(broker, "plain", 1)
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
        client.get_queue_receiver("plain") as old,
    ):
        assert len(old.peek_messages(sequence_number=1)) == 1
        broker.inspect("n", create_again)
        assert len(old.peek_messages(sequence_number=1)) == 1
        with client.get_queue_receiver("plain") as new:
            assert new.peek_messages() == []


def test_an_answer_has_fewer_messages_than_were_asked_for_or_one_of_a_partitioned_entity(broker: RunningBroker) -> None:
    fill(broker, "plain", 300)
    fill(broker, "parts", 3)
    with ServiceBusClient.from_connection_string(broker.connection_string("n")) as client:
        for queue, count in (("plain", 150), ("parts", 1)):
            with client.get_queue_receiver(queue) as receiver:
                assert len(receiver.peek_messages(300)) == count


def test_a_link_that_was_not_used_for_a_quarter_of_an_hour_finds_nothing_once() -> None:
    links = LinkLimits(link_idle=None, connection_idle=None)
    with (
        RunningBroker([NamespaceConfig(name="n", queues=(PLAIN,), links=links)], ManualClock(START)) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
        client.get_queue_sender("plain") as sender,
        client.get_queue_receiver("plain") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        found = [len(receiver.peek_messages(sequence_number=1))]
        for _ in range(15):
            broker.advance(60)
            time.sleep(0.01)  # the client's heartbeats keep the connection open
        found += [len(receiver.peek_messages(sequence_number=1)) for _ in range(2)]
    assert found == [1, 0, 1]


START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("queue", "lasts"), [("off", False), ("unsendable", False), ("forwarding", True), ("missing", True)]
)
def test_only_a_refusal_that_stays_is_one_of_an_entity_that_cannot_be_peeked(queue: str, *, lasts: bool) -> None:
    queues = (
        PLAIN,
        QueueConfig(name="off", status=EntityStatus.DISABLED),
        QueueConfig(name="unsendable", status=EntityStatus.SEND_DISABLED),
        QueueConfig(name="forwarding", forward_to="plain"),
    )

    with RunningBroker([NamespaceConfig(name="n", queues=queues)]) as broker, pytest.raises(TargetUnavailable) as error:
        asyncio.run(keys_in(Place("n", "n", "N", queue), {"N": broker.connection_string("n")}))
    assert isinstance(error.value, CannotBePeeked) is lasts
