"""The two roles of a connection against each other, without sockets: Busway's client and the local broker."""

import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.protocol.connection import Connection
from shared.amqp import performatives
from shared.amqp.client import IDLE_SECONDS, Client, ClientSession, Opening
from shared.amqp.dispositions import Disposition, read_disposition, settlement
from shared.amqp.errors import AmqpError, ConnectionClosed, ConnectionViolation, Violation
from shared.amqp.fields import read_list
from shared.amqp.frames import EMPTY_FRAME, compose
from shared.amqp.links import Receiver, Sender
from shared.amqp.performatives import ACCEPTED_STATE, RELEASED_STATE, Attach, Transfer
from shared.amqp.sections import data
from shared.amqp.values import described, list_, string, ulong
from shared.clock import ManualClock

WINDOW = 2**31 - 1


def attach(name: str, address: str, *, receives: bool) -> Attach:
    here, there = list_([string(name)]), list_([string(address)])
    source = described(ulong(0x28), there if receives else here)
    target = described(ulong(0x29), here if receives else there)
    return Attach(name, 0, receives, 0, 0, source, target, None if receives else 0, None, (), None)


class NotingSender(Sender):
    def __init__(self, session: ClientSession, address: str = "q") -> None:
        super().__init__(session, attach(f"to-{address}", address, receives=False))
        self.accepted: list[int] = []

    def on_acceptance(self, first: int, last: int) -> None:
        self.accepted += range(first, last + 1)


class NotingReceiver(Receiver):
    def __init__(self, session: ClientSession) -> None:
        super().__init__(session, attach("from-q", "q", receives=True))
        self.messages: list[tuple[int, bytes]] = []
        self.answers: list[Disposition] = []
        self.drains = 0

    def on_delivery(self, delivery_id: int, _tag: bytes, message: bytes, *, settled: bool) -> None:
        assert not settled
        self.messages.append((delivery_id, message))

    def on_disposition(self, found: Disposition) -> None:
        self.answers.append(found)

    def on_drained(self) -> None:
        self.drains += 1


class Wire:
    """A client and a broker, whose bytes `run` passes on, a few at a time."""

    def __init__(self, *, step: int = 10**6, mechanism: str = "ANONYMOUS", awaits_answer: bool = False) -> None:
        namespace = Namespace(NamespaceConfig(name="n", queues=(QueueConfig(name="q"),)), self.clock())
        self.broker = Connection(namespace, lambda: None)
        self.failures: list[Exception] = []
        self.begun: list[ClientSession] = []
        opening = Opening("me", "host", mechanism, awaits_answer=awaits_answer)
        self.client = Client(opening, lambda: None, opened=self.begin, ended=self.failures.append)
        self._step = step
        self.client.start()

    @staticmethod
    def clock() -> ManualClock:
        return ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    def begin(self) -> None:
        self.begun.append(self.client.begin(incoming_window=WINDOW, outgoing_window=WINDOW, handle_max=9))

    def run(self) -> None:
        while True:
            there, back = self.client.take_output(), self.broker.take_output()
            if not there and not back:
                return
            for stream, receive in ((there, self.broker.receive), (back, self.client.receive)):
                self._pass_on(stream, receive)

    def _pass_on(self, stream: bytes, receive: Callable[[bytes], None]) -> None:
        for start in range(0, len(stream), self._step):
            receive(stream[start : start + self._step])

    def session(self) -> ClientSession:
        self.run()
        (session,) = self.begun
        return session


@pytest.mark.parametrize(("step", "size"), [(1, 10), (7, 0), (1_000, 200_000), (10**6, 200_000)])
@pytest.mark.parametrize("awaits_answer", [False, True])
def test_a_message_goes_to_the_broker_and_back(step: int, size: int, awaits_answer: bool) -> None:
    wire = Wire(step=step, awaits_answer=awaits_answer)
    session = wire.session()
    sender, receiver = NotingSender(session), NotingReceiver(session)
    for link in (sender, receiver):
        session.attach(link)
    receiver.grant(3)
    wire.run()
    assert sender.is_attached
    assert receiver.is_attached
    content = data(b"x" * size)
    sender.send(content)
    wire.run()
    assert sender.accepted == [0]
    [(number, message)] = receiver.messages
    assert message.endswith(content)
    assert (receiver.credit, receiver.delivery_count) == (2, 1)
    receiver.settle([number], ACCEPTED_STATE, settled=False)
    receiver.grant(2, drain=True)
    wire.run()
    assert [(answer.role, answer.settled) for answer in receiver.answers] == [(False, True)]
    assert (receiver.drains, receiver.credit, receiver.delivery_count) == (1, 0, 3)
    receiver.detach()
    session.close()
    wire.client.close()
    wire.run()
    assert wire.broker.is_closed
    assert [type(failure) for failure in wire.failures] == [ConnectionClosed]


def test_a_refused_link_ends_with_the_reason_and_the_connection_goes_on() -> None:
    wire = Wire()
    session = wire.session()
    missing, found = NotingSender(session, "no-such-queue"), NotingSender(session)
    for link in (missing, found):
        session.attach(link)
    wire.run()
    assert isinstance(missing.failure, AmqpError)
    assert missing.failure.condition == "amqp:not-found"
    assert not missing.is_attached
    assert found.is_attached
    assert not wire.failures


def test_a_mechanism_that_is_not_offered_ends_the_connection() -> None:
    wire = Wire(mechanism="KERBEROS")
    wire.run()
    assert "expected KERBEROS" in str(wire.client.failure)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400", b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x00\x00"])
def test_a_peer_with_another_protocol_is_named(answer: bytes) -> None:
    wire = Wire()
    wire.client.receive(answer)
    assert "expected AMQP 1.0 with SASL at this port" in str(wire.client.failure)


def test_a_silent_peer_is_given_up_and_an_idle_one_hears_heartbeats() -> None:
    wire = Wire()
    wire.session()
    ticks = 0
    while wire.client.failure is None:
        wire.client.tick()
        ticks += 1
        assert wire.client.failure or wire.client.take_output() == EMPTY_FRAME
    assert (ticks - 2) * wire.client.tick_interval <= 2 * IDLE_SECONDS < ticks * wire.client.tick_interval
    assert isinstance(wire.client.failure, ConnectionClosed)


def test_a_violation_closes_the_connection_with_its_condition() -> None:
    wire = Wire()
    session = wire.session()
    sender = NotingSender(session)
    session.attach(sender)
    wire.run()
    wire.client.receive(compose(0, b"\x00\x53\x13\xc0\x01\x00"))  # a flow without its fields
    assert isinstance(sender.failure, ConnectionViolation)
    assert isinstance(sender.failure, Violation)
    wire.run()
    assert wire.broker.is_closed


def test_an_aborted_delivery_is_no_message() -> None:
    wire = Wire()
    receiver = NotingReceiver(wire.session())
    receiver.credit = 2
    first = Transfer(0, 5, b"t", 0, settled=False, more=True, aborted=False)
    receiver.on_transfer(first, b"lost")
    receiver.on_transfer(first._replace(more=False, aborted=True), b"")
    receiver.on_transfer(first._replace(delivery_id=6), b"a")
    receiver.on_transfer(first._replace(delivery_id=None, delivery_tag=None, more=False), b"b")
    assert receiver.messages == [(6, b"ab")]
    assert (receiver.credit, receiver.delivery_count) == (0, 2)


@given(st.integers(0, 2**32 - 1), st.sampled_from([ACCEPTED_STATE, RELEASED_STATE]), st.booleans())
def test_a_settlement_has_no_last_delivery(number: int, state: bytes, settled: bool) -> None:
    code, fields, _ = read_list(settlement(number, state, settled=settled))
    assert (code, len(fields), fields[2]) == (performatives.DISPOSITION, 5, None)
    found = read_disposition(fields)
    assert (found.role, found.first, found.last, found.settled) == (True, number, number, settled)
