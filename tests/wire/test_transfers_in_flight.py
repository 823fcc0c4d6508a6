"""The output for Service Bus with several batches in flight on one link, against the broker and its faults."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from broker.tests import broker_of_a_module
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.sending import Answers, closing, service_bus

broker = broker_of_a_module.broker
broker_clock = broker_of_a_module.broker_clock
running_broker = broker_of_a_module.running_broker

type Send = Callable[..., Coroutine[Any, Any, Answers]]

SENDS = frozenset((Operation.SEND,))
DELAY_SECONDS = 0.3
LARGE_BYTES = 10 << 20
SOMEWHERE = Origin("west", "s")
SESSIONS = QueueConfig(name="s", requires_session=True, max_message_size=LARGE_BYTES)

# The SDK forgets to close the socket of a connection that broke.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def broker_namespaces() -> list[NamespaceConfig]:
    return [
        NamespaceConfig(
            name="west",
            queues=(QueueConfig(name="q"), SESSIONS),
        )
    ]


def batch(*names: str, session_id: str | None = None) -> list[Outgoing]:
    return [
        Outgoing(delivered(None, message_id=name, session_id=session_id, body=name.encode()), name, session_id, None)
        for name in names
    ]


def run[T](broker: RunningBroker, use: Callable[[Send], Awaitable[T]], fault: Fault | None = None) -> T:
    """Return the result of *use*, which is called with a function that sends; the *fault* begins with the link open."""

    async def body() -> T:
        async def send(messages: Sequence[Outgoing], seconds: float = 20) -> Answers:
            queue = "q" if messages[0].session_id is None else "s"
            return await output.send(queue, messages, timeout_seconds=seconds)

        async with closing(service_bus(broker.connection_string("west"))) as output:
            try:
                assert await send(batch("first")) == [None]
                if fault is not None:
                    broker.faults("west").add(fault)
                return await use(send)
            finally:
                broker.faults("west").clear()

    return asyncio.run(body())


def arrived(broker: RunningBroker, session_id: str | None = None) -> list[str]:
    """Return what the queue has in its order, without the message that opened the link, or what a session has."""
    queue = "q" if session_id is None else "s"
    left = broker.counts("west")[queue].active
    bodies: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("west")) as client,
        client.get_queue_receiver(
            queue, session_id=session_id, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while len(bodies) < left and (messages := receiver.receive_messages(left, max_wait_time=0.5)):
            bodies += [b"".join(message.body).decode() for message in messages]
    return [body for body in bodies if body != "first"]


def test_calls_share_the_round_trip(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.DELAY, entity="q", operations=SENDS, delay=DELAY_SECONDS)

    async def use(send: Send) -> tuple[list[Answers], float]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        answers = await asyncio.gather(*(send(batch(f"{number:04}")) for number in range(20)))
        return answers, loop.time() - started

    answers, seconds = run(broker, use, fault)
    assert answers == [[None]] * 20
    assert seconds < 20 * DELAY_SECONDS / 2  # one after the other would take 20 delays
    assert arrived(broker) == [f"{number:04}" for number in range(20)]


def test_a_call_that_comes_while_an_answer_is_awaited_is_sent_at_once(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity="q", operations=SENDS, times=1)

    async def use(send: Send) -> float:
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(send(batch("lost"), 1.5))
        took = []
        for number in range(10):
            await asyncio.sleep(0.02)  # the link reads, and there is nothing to read
            started = loop.time()
            assert await send(batch(f"{number:04}")) == [None]
            took.append(loop.time() - started)
        (answer,) = await waiting
        assert isinstance(answer, TargetUnavailable)
        return sorted(took)[5]

    # A read of the SDK that is not interrupted takes 0.2 s.
    assert run(broker, use, fault) < 0.1


def test_a_batch_without_an_answer_does_not_harm_the_others(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity="q", operations=SENDS, containing="0003")

    async def use(send: Send) -> list[Answers]:
        answers = await asyncio.gather(*(send(batch(f"{number:04}"), 1.0) for number in range(8)))
        return [*answers, await send(batch("0008"))]

    answers = run(broker, use, fault)
    assert [number for number, (answer,) in enumerate(answers) if answer is not None] == [3]
    assert isinstance(answers[3][0], TargetUnavailable)


def test_a_broken_connection_is_reported_to_all_calls_and_the_next_one_opens_another(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.DROP_CONNECTION, entity="q", operations=SENDS, at=4, times=1)

    async def use(send: Send) -> tuple[list[Answers], Answers]:
        together = await asyncio.gather(*(send(batch(f"{number:04}")) for number in range(8)))
        return together, await send(batch("next"))

    together, afterwards = run(broker, use, fault)
    failed = [answer for (answer,) in together if answer is not None]
    assert failed
    assert {type(answer) for answer in failed} == {TargetUnavailable}
    accepted = [f"{number:04}" for number, (answer,) in enumerate(together) if answer is None]
    assert set(accepted) <= set(arrived(broker))
    assert afterwards == [None]


def test_a_message_that_closes_the_link_is_found_and_the_others_are_sent(broker: RunningBroker) -> None:
    """The service names no batch when it closes the link: all in flight are suspect, and are sent one by one."""
    fault = Fault(
        effect=Effect.CLOSE_LINK,
        entity="q",
        operations=SENDS,
        containing="0013",
        condition="amqp:link:message-size-exceeded",
    )
    batches = [batch(*(f"{number:04}" for number in range(start, start + 5))) for start in range(0, 30, 5)]

    async def use(send: Send) -> list[Answers]:
        answers: list[Answers] = await asyncio.gather(*map(send, batches))
        for _ in range(3):
            again = [number for number, answer in enumerate(answers) if any(map(_is_unavailable, answer))]
            for number, each in zip(again, await asyncio.gather(*(send(batches[n]) for n in again)), strict=True):
                answers[number] = each
        return answers

    answers = list(itertools.chain(*run(broker, use, fault)))
    refused = [number for number, answer in enumerate(answers) if answer is not None]
    assert refused == [13]
    assert isinstance(answers[13], MessageRejected)
    assert set(arrived(broker)) == {f"{number:04}" for number in range(30)} - {"0013"}


def test_a_busy_target_answers_each_batch_and_keeps_the_link(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.THROTTLE, entity="q", operations=SENDS, at=2, times=3)

    async def use(send: Send) -> list[Answers]:
        return await asyncio.gather(*(send(batch(f"{number:04}")) for number in range(8)))

    answers = run(broker, use, fault)
    busy = [answer for (answer,) in answers if answer is not None]
    assert len(busy) == 3
    assert all(isinstance(answer, TargetUnavailable) and answer.retry_after is not None for answer in busy)
    assert len(arrived(broker)) == 5


def test_sessions_side_by_side_keep_their_order(broker: RunningBroker) -> None:
    async def use(send: Send) -> None:
        async def session(name: str) -> None:
            for start in range(0, 30, 3):
                names = [f"{name}{number:03}" for number in range(start, start + 3)]
                assert await send(batch(*names, session_id=name)) == [None] * 3

        await asyncio.gather(*map(session, "abcdefgh"))

    run(broker, use)
    for name in "abcdefgh":
        assert arrived(broker, name) == [f"{name}{number:03}" for number in range(30)]


def test_a_call_is_answered_in_its_own_time(broker: RunningBroker) -> None:
    fault = Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity="q", operations=SENDS)

    async def use(send: Send) -> tuple[tuple[Answers, float], tuple[Answers, float]]:
        loop = asyncio.get_running_loop()

        async def one(seconds: float) -> tuple[Answers, float]:
            started = loop.time()
            return await send(batch("one"), seconds), loop.time() - started

        return await asyncio.gather(one(1.5), one(0.2))

    (first, first_took), (second, second_took) = run(broker, use, fault)
    assert isinstance(first[0], TargetUnavailable)
    assert isinstance(second[0], TargetUnavailable)
    assert second_took < first_took


def test_a_message_larger_than_a_batch_is_sent_alone_and_unchanged(broker: RunningBroker) -> None:
    """Premium namespaces may take messages of up to 100 MB, and batches of 1 MB."""
    large = delivered(None, message_id="large", session_id="s", body=bytes(range(256)) * 20_000)
    too_large = delivered(None, message_id="too-large", session_id="s", body=bytes(LARGE_BYTES))

    async def use(send: Send) -> Answers:
        small = batch("before", "behind", session_id="s")
        alone = [Outgoing(content, None, "s", None) for content in (large, too_large)]
        return await send([small[0], *alone, small[1]])

    answers = run(broker, use)
    assert [type(answer) for answer in answers] == [type(None), type(None), MessageRejected, type(None)]
    assert f"expected at most {LARGE_BYTES}" in str(answers[2])
    stored = broker.inspect("west", lambda west: [message.content.bare for message in west.store("s").peek(0)])
    sections = Message.received(large, SOMEWHERE).sections
    assert stored[1] == sections.properties + sections.application_properties + sections.body
    assert len(stored) == 3


def _is_unavailable(answer: BuswayError | None) -> bool:
    return isinstance(answer, TargetUnavailable)
