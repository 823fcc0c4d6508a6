"""The link to an AMQP 1.0 broker: what the broker may do with its attach, its flows and its dispositions."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.amqp import performatives
from shared.amqp.values import FALSE, NULL, TRUE, Value, boolean, described, list_, uint, ulong
from shared.errors import TargetRefused, TargetUnavailable
from tests.wire.amqp_calls import answers_of, some
from tests.wire.answering_broker import ACCEPTED, AnsweringBroker, Peer, error

pytestmark = pytest.mark.filterwarnings("error")


def test_a_broker_that_attaches_and_detaches_at_once_says_why() -> None:
    class Detaching(AnsweringBroker):
        def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
            peer.send(performatives.ATTACH, [fields[0], uint(0), TRUE, NULL, NULL, fields[5], fields[6]])
            peer.send(performatives.DETACH, [uint(0), TRUE, error("amqp:not-found", "no queue q")])

    [[answer]] = answers_of(Detaching(), some(1))
    assert isinstance(answer, TargetRefused)
    assert "it does not exist: amqp:not-found" in str(answer)


def test_a_broker_that_takes_no_message_and_detaches_says_why() -> None:
    class Detaching(AnsweringBroker):
        def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
            super().attach(peer, fields)
            detach = [uint(0), TRUE, error("amqp:resource-deleted", "queue q was deleted")]
            asyncio.get_running_loop().call_later(0.05, peer.send, performatives.DETACH, detach)

    [answers] = answers_of(Detaching(credit=0), some(2))
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 2
    assert "amqp:resource-deleted" in str(answers[0])


def test_the_text_of_a_broker_that_fails_at_a_message_is_not_shown() -> None:
    class Failing(AnsweringBroker):
        async def take(self, peer: Peer, _delivery: int, content: bytes) -> bool:
            # RabbitMQ 4 quotes the sections of a message in which it found no body.
            peer.send(performatives.CLOSE, [error("amqp:internal-error", f"function_clause {content!r}")])
            return True

    broker = Failing(credit=1)
    [answers] = answers_of(broker, some(2))
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 2
    assert "amqp:internal-error" in str(answers[0])
    assert "m-0" not in str([(answer, answer and answer.__cause__) for answer in answers])


class Accepting(AnsweringBroker):
    """Accepts each message, and sends flows as a test says."""

    def flow(self, peer: Peer, transfers: int, window: int, delivery_count: int, credit: int, *, drain: bool) -> None:
        numbers = [transfers, window, 0, 100, 0, delivery_count, credit]
        peer.send(performatives.FLOW, [*map(uint, numbers), NULL, boolean(drain)])

    def grant(self, peer: Peer, delivery_count: int) -> None:
        if not delivery_count:
            self.flow(peer, 0, self._window, 0, self.credit, drain=False)


def test_a_broker_that_closes_its_window_gets_no_more_than_is_in_flight() -> None:
    class Closing(Accepting):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            if not delivery:
                # RabbitMQ 4 does this while its memory is full; it has not seen the second and third message yet.
                self.flow(peer, 1, 0, 1, 99, drain=False)
                asyncio.get_running_loop().call_later(0.3, self.note_and_reopen, peer)
            return await super().take(peer, delivery, content)

        def note_and_reopen(self, peer: Peer) -> None:
            arrived.append(len(self.contents))
            self.flow(peer, len(self.contents), 100, len(self.contents), 99, drain=False)

    arrived: list[int] = []
    assert answers_of(Closing(credit=3, window=100), some(10)) == [[None] * 10]
    assert arrived == [3]


@pytest.mark.parametrize("most", [2**31 - 1, 2**31, 2**32 - 1])
def test_a_broker_grants_any_credit_and_window(most: int) -> None:
    class Granting(Accepting):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            # It has counted nothing yet.
            self.flow(peer, 0, most, 0, most, drain=False)
            return await super().take(peer, delivery, content)

    assert answers_of(Granting(credit=most, window=most), some(3), some(3)) == [[None] * 3, [None] * 3]


def test_messages_after_a_drain_have_the_next_delivery_ids_and_the_credit_counts_on() -> None:
    deliveries: list[int] = []

    class Draining(Accepting):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            deliveries.append(delivery)
            count = len(deliveries)
            if count == 2:
                self.flow(peer, 2, 100, 2, 10, drain=True)
            return await super().take(peer, delivery, content)

        def flowed(self, peer: Peer, fields: Sequence[Value]) -> None:
            drained.append([field.payload for field in fields[5:9]])
            self.flow(peer, 2, 100, 12, 3, drain=False)

    drained: list[list[object]] = []
    assert answers_of(Draining(credit=2), some(2), some(3)) == [[None] * 2, [None] * 3]
    assert drained == [[12, 0, None, True]]
    assert deliveries == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("handle", "expected"),
    [([uint(0), uint(1), uint(4)], [1, 4, None, False]), ([NULL] * 3, [None, None, None, False])],
)
def test_an_echo_is_answered_with_the_state_for_which_the_broker_asks(
    handle: Sequence[Value], expected: Sequence[object]
) -> None:
    class Echoing(Accepting):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            peer.send(performatives.FLOW, [uint(1), uint(100), uint(0), uint(100), *handle, NULL, FALSE, TRUE])
            return await super().take(peer, delivery, content)

        def flowed(self, peer: Peer, fields: Sequence[Value]) -> None:
            found.append([field.payload for field in fields[5:9]])
            peer.send(performatives.FLOW, [uint(1), uint(100), uint(0), uint(100), uint(0), uint(1), uint(10)])

    found: list[list[object]] = []
    assert answers_of(Echoing(credit=1), some(1), []) == [[None], []]
    assert found == [expected]


def test_a_message_that_the_broker_has_received_waits_for_its_outcome() -> None:
    class Receiving(AnsweringBroker):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            received = described(ulong(performatives.RECEIVED), list_([uint(0), ulong(len(content))]))
            peer.send(performatives.DISPOSITION, [TRUE, uint(delivery), NULL, FALSE, received])
            return await super().take(peer, delivery, content)

    assert answers_of(Receiving(), some(3)) == [[None] * 3]


def test_a_range_with_the_last_delivery_before_the_first_accepts_nothing() -> None:
    class Reversing(AnsweringBroker):
        async def take(self, peer: Peer, _delivery: int, content: bytes) -> bool:
            self.contents.append(content)
            if len(self.contents) == 5:
                peer.send(performatives.DISPOSITION, [TRUE, uint(3), uint(1), TRUE, ACCEPTED])
            return True

    [answers] = answers_of(Reversing(), some(5))
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 5
    assert "got deliveries 3 to 1, expected the first before the last" in str(answers[0])
