"""The link to an AMQP 1.0 broker: what the broker may do with its attach, its flows and its dispositions."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.amqp.values import NULL, TRUE, Value, uint
from shared.azure.senders import amqp_frames as frames
from shared.azure.senders.amqp import AmqpOutput
from shared.azure.senders.amqp_endpoint import amqp_endpoint
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.broker.answering_broker import AnsweringBroker, Peer, error

SECONDS = 5.0
pytestmark = pytest.mark.filterwarnings("error")


def some(count: int) -> list[Outgoing]:
    return [Outgoing(b"m-%d" % number, None, None, None) for number in range(count)]


def answers_of(broker: AnsweringBroker, *calls: Sequence[Outgoing]) -> list[list[BuswayError | None]]:
    async def run() -> list[list[BuswayError | None]]:
        async with broker.running() as url:
            output = AmqpOutput("there", amqp_endpoint(url), {})
            try:
                return [await output.send("q", messages, timeout_seconds=SECONDS) for messages in calls]
            finally:
                await output.close()

    return asyncio.run(run())


def test_a_broker_that_attaches_and_detaches_at_once_says_why() -> None:
    class Detaching(AnsweringBroker):
        def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
            peer.send(frames.ATTACH, [fields[0], uint(0), TRUE, NULL, NULL, fields[5], fields[6]])
            peer.send(frames.DETACH, [uint(0), TRUE, error("amqp:not-found", "no queue q")])

    [[answer]] = answers_of(Detaching(), some(1))
    assert isinstance(answer, TargetRefused)
    assert "it does not exist: amqp:not-found: no queue q" in str(answer)


def test_a_broker_that_takes_no_message_and_detaches_says_why() -> None:
    class Detaching(AnsweringBroker):
        def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
            super().attach(peer, fields)
            detach = [uint(0), TRUE, error("amqp:resource-deleted", "queue q was deleted")]
            asyncio.get_running_loop().call_later(0.05, peer.send, frames.DETACH, detach)

    [answers] = answers_of(Detaching(credit=0), some(2))
    assert [type(each) for each in answers] == [TargetUnavailable] * 2
    assert "amqp:resource-deleted: queue q was deleted" in str(answers[0])
