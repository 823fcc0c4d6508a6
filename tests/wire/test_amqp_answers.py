"""The output for AMQP 1.0 brokers where a broker breaks off, refuses a link, or quotes what it was sent."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_broker.config import NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.values import TRUE, Value, binary, uint
from shared.ends.amqp.endpoint import amqp_endpoint
from shared.ends.amqp.output import AmqpOutput
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.amqp_calls import SECONDS, answers_of, output_to, sent, some
from tests.wire.answering_broker import (
    ACCEPTED,
    AnsweringBroker,
    Peer,
    error,
    rejected,
)
from tests.wire.sending import Answers, kinds, outgoing

pytestmark = pytest.mark.filterwarnings("error")


class Breaking(AnsweringBroker):
    """Closes the connection because of one message, or says that it does."""

    def __init__(self, bad: bytes, condition: str | None = None) -> None:
        super().__init__()
        self.bad = bad
        self.condition = condition
        self.breaks = 0

    async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
        if content != self.bad:
            return await super().take(peer, delivery, content)
        self.breaks += 1
        if self.condition is not None:
            peer.send(performatives.CLOSE, [error(self.condition, "body")])
        return False


def repeated_at(broker: AnsweringBroker, messages: Sequence[Outgoing], calls: int) -> Answers:
    """Send in several calls, as the pipeline does, until each message is accepted or rejected."""
    answers: dict[int, BuswayError | None] = {}
    again = TargetUnavailable | TargetRefused

    async def run() -> None:
        async with output_to(broker, quiet_seconds=0.2) as output:
            for _ in range(calls):
                left = [at for at in range(len(messages)) if isinstance(answers.get(at, TargetUnavailable("")), again)]
                found = await output.send("q", [messages[at] for at in left], timeout_seconds=SECONDS)
                answers.update(zip(left, found, strict=True))

    asyncio.run(run())
    return [answers[at] for at in range(len(messages))]


@pytest.mark.parametrize("condition", [None, "amqp:internal-error"])
def test_a_message_that_makes_the_broker_close_the_connection_is_rejected(condition: str | None) -> None:
    messages = [outgoing(number, "ab"[number % 2] if number < 4 else None) for number in range(6)]
    broker = Breaking(messages[2].content, condition)
    answers = repeated_at(broker, messages, 12)
    assert kinds(answers) == [*["NoneType"] * 2, "MessageRejected", *["NoneType"] * 3]
    assert f"because of it, {condition or 'without a reason'}: 3 times after" in str(answers[2])
    assert "body" not in str(answers[2])
    assert set(broker.contents) == {message.content for message in messages} - {broker.bad}


def with_user_id(number: int) -> Outgoing:
    content = delivered(None, message_id=f"m-{number}", user_id=binary(b"another"))
    return Outgoing(content, f"m-{number}", None, None)


def test_a_message_whose_user_id_the_broker_does_not_allow_is_rejected() -> None:
    messages = [outgoing(0), with_user_id(1), with_user_id(2), outgoing(3)]
    broker = Breaking(messages[2].content, "amqp:unauthorized-access")
    answers = repeated_at(broker, messages, 12)
    assert kinds(answers) == ["NoneType", "NoneType", "MessageRejected", "NoneType"]
    assert "because of it, amqp:unauthorized-access: 3 times after" in str(answers[2])


def test_a_message_without_a_user_id_is_not_rejected_if_the_broker_says_that_busway_may_not_send() -> None:
    message = outgoing(0)
    broker = Breaking(message.content, "amqp:unauthorized-access")
    [answer] = repeated_at(broker, [message], 8)
    assert isinstance(answer, TargetRefused)
    assert "may not send to it" in str(answer)


def test_a_message_is_not_rejected_if_the_broker_closes_connections_without_it_too() -> None:
    class Flapping(Breaking):
        def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
            super().attach(peer, fields)
            if self.breaks:
                asyncio.get_running_loop().call_later(0.15, peer.cut)

    message = outgoing(0)
    broker = Flapping(message.content)
    [answer] = repeated_at(broker, [message], 6)
    assert isinstance(answer, TargetUnavailable)
    assert "carried no message" in str(answer)
    assert broker.breaks > 1


def test_a_message_is_not_rejected_if_the_broker_restarts_each_time_that_it_is_sent() -> None:
    class Restarting(Breaking):
        refused = False

        async def start(self, peer: Peer) -> bool:
            # Between two breaks it takes no connection once.
            refused, self.refused = self.refused, False
            return not refused and await super().start(peer)

        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            self.refused = True
            return await super().take(peer, delivery, content)

    message = outgoing(0)
    broker = Restarting(message.content)
    [answer] = repeated_at(broker, [message], 12)
    assert isinstance(answer, TargetUnavailable)
    assert broker.breaks > 3


def test_a_broker_that_forces_connections_to_close_rejects_nothing() -> None:
    message = outgoing(0)
    broker = Breaking(message.content, "amqp:connection:forced")
    [answer] = repeated_at(broker, [message], 6)
    assert isinstance(answer, TargetUnavailable)
    assert broker.breaks == 6


@pytest.mark.parametrize(
    ("broker", "text"),
    [
        (AnsweringBroker(attach_error=("amqp:not-found", "no queue q")), "does not exist: amqp:not-found"),
        (AnsweringBroker(attach_error=("amqp:unauthorized-access", "")), "may not send to it"),
        (AnsweringBroker(sasl_code=1), "may not send to it: amqp:unauthorized-access: SASL PLAIN: code 1"),
    ],
)
def test_a_link_that_is_refused_says_why(broker: AnsweringBroker, text: str) -> None:
    [answers] = answers_of(broker, some(2))
    assert kinds(answers) == ["TargetRefused"] * 2
    assert text in str(answers[0])
    assert "secret" not in str(answers)


def test_a_broker_that_is_not_there_is_unavailable() -> None:
    [[answer]] = asyncio.run(sent("amqp://localhost:1", some(1)))
    assert isinstance(answer, TargetUnavailable)


@pytest.mark.parametrize("greeting", [b"AMQP\x00\x00\x09\x01", b"HTTP/1.1"])
def test_a_port_that_speaks_another_protocol_is_refused(greeting: bytes) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async def run() -> BuswayError | None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            [[answer]] = await sent(f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}", some(1))
            return answer

    answer = asyncio.run(run())
    assert isinstance(answer, TargetRefused)
    assert str(answer).startswith("there/q: the target refuses the link, amqp:not-implemented: it answers with ")
    assert str(answer).endswith(", expected AMQP 1.0 with SASL at this port")


def test_a_broker_that_stops_reading_is_left_at_the_deadline() -> None:
    class Stalling(AnsweringBroker):
        async def take(self, _peer: Peer, _delivery: int, _content: bytes) -> bool:
            await asyncio.sleep(20)
            return False

    async def run() -> None:
        async with output_to(Stalling()) as output:
            large = [outgoing(number, body=b"x" * (8 << 20)) for number in range(3)]
            started = time.monotonic()
            answers = await output.send("q", large, timeout_seconds=0.5)
            assert kinds(answers) == ["TargetUnavailable"] * 3
            await output.close()
            assert time.monotonic() - started < 8

    asyncio.run(run())


def test_an_answer_for_a_range_of_any_size_takes_no_time() -> None:
    class Ranging(AnsweringBroker):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            self.contents.append(content)
            if len(self.contents) == 5:
                peer.send(performatives.DISPOSITION, [TRUE, uint(0), uint(2**31 - 1), TRUE, ACCEPTED])
            self.grant(peer, delivery + 1)
            return True

    assert answers_of(Ranging(), some(5)) == [[None] * 5]


def test_a_certificate_is_verified_by_the_authority_that_ssl_cert_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SharedAccessKey(name="root", key="s/e:c%ret")
    namespace = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),), shared_access_keys=(key,))
    with RunningBroker([namespace], tls=server_context(tmp_path)) as running:
        url = f"amqps://root:s%2Fe%3Ac%25ret@localhost:{running.port('n')}"
        [[untrusted]] = asyncio.run(sent(url, some(1)))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / AUTHORITY_FILE))
        assert asyncio.run(sent(url, some(2))) == [[None] * 2]
        [[wrong]] = asyncio.run(sent(url.replace("ret", "rat"), some(1)))
    assert isinstance(untrusted, TargetRefused)
    assert "the broker's certificate is not trusted" in str(untrusted)
    assert isinstance(wrong, TargetRefused)
    assert "SASL PLAIN: code 1" in str(wrong)


def test_an_idle_connection_is_kept_and_a_closed_one_opened_again() -> None:
    broker = AnsweringBroker()

    async def run() -> None:
        async with broker.running() as url:
            output = AmqpOutput("there", amqp_endpoint(url), {})
            assert await output.send("q", some(1), timeout_seconds=SECONDS) == [None]
            await asyncio.sleep(0.6)
        async with broker.running():
            assert await output.send("q", some(1), timeout_seconds=SECONDS) == [None]
            await output.close()

    asyncio.run(run())
    assert broker.connections == 2


SECRET = "pay-4711-to-alice"


def quoting(way: int, condition: str, description: str) -> AnsweringBroker:
    """Return a broker that answers a message with an outcome or the end of its link, session or connection."""

    class Quoting(AnsweringBroker):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            said = error(condition, description)
            if way == performatives.DISPOSITION:
                return await super().take(peer, delivery, content)
            peer.send(way, [uint(0), TRUE, said] if way == performatives.DETACH else [said])
            return True

    return Quoting(lambda _number, _content: rejected(condition, description), credit=1)


@pytest.mark.parametrize(
    ("condition", "description"),
    [
        ("amqp:decode-error", f"cannot read {SECRET}"),
        ("amqp:internal-error", f"wait 10 seconds {SECRET}"),
        ("amqp:resource-limit-exceeded", f"{SECRET}: 'Send' claim(s) are required"),
        ("amqp:not-found", SECRET * 1000),
        (SECRET, ""),
        (f"amqp:{SECRET}", SECRET),
        ("", SECRET),
    ],
)
@pytest.mark.parametrize(
    "way", [performatives.DISPOSITION, performatives.DETACH, performatives.END, performatives.CLOSE]
)
def test_nothing_that_an_answer_quotes_is_shown(way: int, condition: str, description: str) -> None:
    [answers] = answers_of(quoting(way, condition, description), [outgoing(1, body=SECRET.encode())])
    assert SECRET not in str([(str(answer), repr(answer), repr(answer and answer.__cause__)) for answer in answers])
    assert len(str(answers[0])) < 300
