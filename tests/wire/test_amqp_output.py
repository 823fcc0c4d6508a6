"""The output for AMQP 1.0 brokers: against the project's broker, and one that answers as a test says."""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest
from azure.servicebus import ServiceBusReceivedMessage, parse_connection_string

from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.values import TRUE, uint
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.wire.amqp_calls import SECONDS, answers_of, output_to, sent, some
from tests.wire.answering_broker import (
    ACCEPTED,
    CLOSE,
    MODIFIED,
    RELEASED,
    SILENCE,
    AnsweringBroker,
    Peer,
    rejected,
)
from tests.wire.sending import kinds, outgoing

pytestmark = pytest.mark.filterwarnings("error")


def contents(messages: Sequence[Outgoing]) -> list[bytes]:
    return [message.content for message in messages]


def test_messages_arrive_in_order_with_their_bytes() -> None:
    broker, messages = AnsweringBroker(credit=3, window=2), some(50)
    assert answers_of(broker, messages[:20], messages[20:], q="queue") == [[None] * 20, [None] * 30]
    assert broker.contents == contents(messages)
    assert (broker.connections, broker.attached) == (1, [("q", "queue")])


def test_the_projects_broker_takes_them_with_a_key_as_the_password(
    broker: RunningBroker, entity: Callable[[str], str], take: Callable[..., list[ServiceBusReceivedMessage]]
) -> None:
    key = parse_connection_string(broker.connection_string("west"))
    url = f"amqp://{key.shared_access_key_name}:{key.shared_access_key}@127.0.0.1:{broker.port('west')}"
    queue = entity("plain")
    large = outgoing(2, body=b"x" * 200_000)
    assert asyncio.run(sent(url, [*some(2), large], entity=queue)) == [[None] * 3]
    arrived = take(queue, 3)
    assert [message.message_id for message in arrived] == ["m-0", "m-1", "m-2"]
    assert len(b"".join(arrived[2].body)) == 200_000
    [[missing]] = asyncio.run(sent(url, some(1), entity="no-such-queue"))
    assert isinstance(missing, TargetRefused)
    assert "amqp:not-found" in str(missing)


def test_what_a_cancelled_call_has_not_sent_is_not_sent_later() -> None:
    async def run() -> None:
        third, cancelled = asyncio.Event(), asyncio.Event()

        class Waiting(AnsweringBroker):
            async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
                self.contents.append(content)
                if len(self.contents) == 3:
                    third.set()
                    await cancelled.wait()
                if len(self.contents) >= 3:
                    peer.send(performatives.DISPOSITION, [TRUE, uint(0), uint(delivery), TRUE, ACCEPTED])
                    self.grant(peer, delivery + 1)
                return True

        broker = Waiting(credit=3)
        async with output_to(broker) as output:
            call = asyncio.create_task(output.send("q", some(9), timeout_seconds=SECONDS))
            await third.wait()
            call.cancel()
            await asyncio.wait([call])
            cancelled.set()
            other = outgoing(100)
            assert await output.send("q", [other], timeout_seconds=SECONDS) == [None]
            assert broker.contents[3:] == [other.content]

    asyncio.run(run())


def test_a_message_larger_than_a_frame_goes_in_several() -> None:
    broker, messages = AnsweringBroker(largest_frame=512, window=3), [outgoing(0, body=b"x" * 5_000), outgoing(1)]
    assert answers_of(broker, messages) == [[None, None]]
    assert broker.contents == contents(messages)


def test_a_message_over_the_brokers_limit_is_rejected_alone() -> None:
    broker = AnsweringBroker(largest_message=500)
    [answers] = answers_of(broker, [outgoing(0), outgoing(1, body=b"x" * 600), outgoing(2)])
    assert kinds(answers) == ["NoneType", "MessageRejected", "NoneType"]
    assert "bytes, expected at most 500" in str(answers[1])


@pytest.mark.parametrize(
    ("outcome", "error", "text"),
    [
        (RELEASED, TargetUnavailable, "released"),
        (MODIFIED, TargetUnavailable, "released"),
        (rejected(), TargetUnavailable, "without a reason"),
        (rejected("amqp:internal-error", "disk"), TargetUnavailable, "amqp:internal-error"),
        (rejected("amqp:resource-limit-exceeded"), TargetRefused, "quota"),
        (rejected("amqp:unauthorized-access"), TargetRefused, "may not send"),
        (rejected("amqp:decode-error", "bad"), MessageRejected, "refused the message"),
    ],
)
def test_an_outcome_becomes_the_error_with_its_remedy(outcome: object, error: type[BuswayError], text: str) -> None:
    [[answer]] = answers_of(AnsweringBroker(lambda _number, _content: outcome), some(1))  # type: ignore[arg-type,return-value]
    assert isinstance(answer, error)
    assert text in str(answer)
    assert "there/q" in str(answer)


def test_a_rejected_message_does_not_stop_the_others() -> None:
    broker = AnsweringBroker(lambda number, _: rejected("amqp:decode-error") if number == 1 else ACCEPTED)
    [answers] = answers_of(broker, some(4))
    assert kinds(answers) == ["NoneType", "MessageRejected", "NoneType", "NoneType"]


def test_after_a_released_message_no_later_one_of_its_session_is_sent() -> None:
    first = some(1, session_id="a")[0].content
    broker = AnsweringBroker(lambda _, content: RELEASED if content == first else ACCEPTED)
    messages = [outgoing(number, "ab"[number % 2]) for number in range(6)]
    [answers] = answers_of(broker, messages)
    assert kinds(answers)[::2] == ["TargetUnavailable"] * 3
    assert {messages[2].content, messages[4].content}.isdisjoint(broker.contents)


def test_messages_of_a_session_wait_for_each_other_and_of_many_sessions_do_not() -> None:
    waiting: list[int] = []
    broker = AnsweringBroker(lambda number, _: waiting.append(number) or SILENCE)  # type: ignore[func-returns-value]
    messages = [outgoing(number, "ab"[number % 2]) for number in range(6)]
    [answers] = answers_of(broker, messages, seconds=0.3)
    assert broker.contents == contents(messages[:2])
    assert kinds(answers) == ["TargetUnavailable"] * 6


def test_an_answer_lost_with_the_connection_is_unknown_and_the_next_call_connects_again() -> None:
    broker = AnsweringBroker(lambda number, _: CLOSE if number == 3 else ACCEPTED)
    [first, second] = answers_of(broker, some(8), some(2))
    assert kinds(first)[:3] == ["NoneType"] * 3
    assert kinds(first)[3:] == ["TargetUnavailable"] * 5
    assert "closed the connection" in str(first[3])
    assert second == [None, None]
    assert broker.connections == 2


def test_a_broker_that_grants_no_credit_is_waited_for_until_the_deadline() -> None:
    broker, started = AnsweringBroker(credit=0), time.monotonic()
    [answers] = answers_of(broker, some(3), seconds=0.3)
    assert kinds(answers) == ["TargetUnavailable"] * 3
    assert "grants no credit" in str(answers[0])
    assert time.monotonic() - started < 5
    assert not broker.contents


def test_a_missing_answer_ends_with_the_deadline() -> None:
    broker = AnsweringBroker(lambda number, _: SILENCE if number == 0 else ACCEPTED)
    [first, second] = answers_of(broker, some(1), some(1), seconds=0.4)
    assert "no answer in time" in str(first[0])
    assert second == [None]
    assert broker.connections == 2


def test_the_message_for_which_the_broker_closes_the_link_is_found() -> None:
    bad = outgoing(2).content

    class Closing(AnsweringBroker):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            self._detach = (len(self.contents) + 1, "amqp:decode-error") if content == bad else None
            return await super().take(peer, delivery, content)

    broker = Closing()
    answers = answers_of(broker, some(5), some(5)[2:], some(5)[3:])
    assert kinds(answers[0]) == ["NoneType", "NoneType", *["TargetUnavailable"] * 3]
    assert kinds(answers[1])[0] == "MessageRejected"
    assert answers[2] == [None, None]
