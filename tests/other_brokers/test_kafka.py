"""Targets of kind kafka at Kafka itself: what arrives, and what happens when it fails."""

import asyncio
import base64
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException

from shared.ends.kafka.endpoint import KafkaEndpoint, kafka_endpoint
from shared.ends.kafka.message import TakenRecord, message_of
from shared.ends.kafka.output import KafkaOutput
from shared.ends.kafka.record import HeaderForm
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.faults.conservation import Account, Balance, Copy, balance
from tests.fidelity.parts import changes, is_same_value, parts
from tests.kafka_reader import parts_of, read_topic
from tests.messages import delivered
from tests.other_brokers.fidelity import ROWS, specimen
from tests.other_brokers.kafka import Kafka
from tests.other_brokers.processes import ROOT

pytestmark = pytest.mark.slow

_SECONDS = 20.0
_PARTITIONS = 4
# After nine seconds without a heartbeat, a broker is taken as gone.
_MISSED_SECONDS = 12.0
# What docs/kafka.md says is lost.
_LOST = {"body: two data sections", "body: none"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    missing = Kafka.missing()
    if missing is not None:
        pytest.skip(missing)
    broker = Kafka(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


def outgoing(number: int, key: str | None = None, body: bytes = b"body") -> Outgoing:
    return Outgoing(delivered(None, message_id=f"m-{number}", session_id=key, body=body), f"m-{number}", key, None)


def sent(
    url: str | KafkaEndpoint,
    topic: str,
    messages: Sequence[Outgoing],
    *,
    seconds: float = _SECONDS,
    form: HeaderForm = "text",
    **more: Any,
) -> list[BuswayError | None]:
    async def send() -> list[BuswayError | None]:
        endpoint = url if isinstance(url, KafkaEndpoint) else kafka_endpoint(url)
        output = KafkaOutput("there", endpoint, form, **more)
        try:
            return await output.send(topic, messages, timeout_seconds=seconds)
        finally:
            await output.close()

    return asyncio.run(send())


class Sending(NamedTuple):
    """The outcome of messages that were sent until each had its result, as the pipeline does it."""

    rejected: list[str]
    errors: list[BuswayError]


def sent_until_done(
    kafka: Kafka,
    topic: str,
    messages: Sequence[Outgoing],
    after: Callable[[int], None] = lambda _: None,
    seconds: float = _SECONDS,
) -> Sending:
    async def send() -> Sending:
        output, waiting = KafkaOutput("there", kafka_endpoint(kafka.url)), list(messages)
        rejected: list[str] = []
        errors: list[BuswayError] = []
        while waiting:
            answers = await output.send(topic, waiting[:200], timeout_seconds=seconds)
            pairs = list(zip(waiting, answers, strict=False))
            errors.extend(answer for answer in answers if answer is not None)
            rejected.extend(str(message.message_id) for message, answer in pairs if isinstance(answer, MessageRejected))
            left = [message for message, answer in pairs if isinstance(answer, TargetUnavailable | TargetRefused)]
            waiting = left + waiting[200:]
            await asyncio.to_thread(after, len(messages) - len(waiting))
        await output.close()
        return Sending(rejected, errors)

    async def within() -> Sending:
        async with asyncio.timeout(180):
            return await send()

    return asyncio.run(within())


def balance_of(kafka: Kafka, topic: str, messages: Sequence[Outgoing], sending: Sending, repeatable: int) -> Balance:
    """Return the oracle's result: what the topic has, against what was sent."""
    arrived = [
        Copy((each.key() or b"").decode(), dict(each.headers())["amqp-message-id"].decode())
        for each in read_topic(kafka.options, topic, _PARTITIONS)
    ]
    names = Counter(str(message.message_id) for message in messages)
    return balance(
        Account(
            accepted=[Copy(message.session_id or "", str(message.message_id)) for message in messages],
            delivered=arrived,
            rejected=sending.rejected,
            repeatable=Counter(dict.fromkeys(names, repeatable)),
        )
    )


def is_good(found: Balance) -> bool:
    return not (found.lost or found.foreign or found.unexplained or found.order_breaks)


def test_messages_arrive_once_and_in_order(kafka: Kafka) -> None:
    topic = kafka.create("plain")
    messages = [outgoing(number, f"k{number % 7}") for number in range(400)] + [outgoing(400, "k0", b"x" * 900_000)]
    assert sent(kafka.url, topic, messages) == [None] * 401
    found = balance_of(kafka, topic, messages, Sending([], []), 0)
    assert is_good(found)
    assert found.delivered == 401


@pytest.mark.parametrize("form", ["text", "amqp"])
def test_a_reader_gets_back_what_the_page_does_not_call_lost(kafka: Kafka, form: HeaderForm) -> None:
    topic = kafka.create(f"fidelity-{form}", partitions=1)
    messages = {row: specimen(row) for row in ROWS}
    assert sent(kafka.url, topic, [Outgoing(message, None, "s", None) for message in messages.values()], form=form) == [
        None
    ] * len(ROWS)
    lost = set()
    for row, record in zip(ROWS, read_topic(kafka.options, topic, 1), strict=True):
        before, after = parts(messages[row]), parts_of(record.value(), dict(record.headers()))
        taken = message_of(TakenRecord(0, 0, 0, None, record.value(), record.headers()), "there", topic)
        assert parts(taken.encode()).keys() == after.keys()
        assert all(is_same_value(place, *pair) for place, pair in changes(after, parts(taken.encode())).items())
        if not all(is_same_value(place, *pair) for place, pair in changes(before, after).items()):
            lost.add(row)
    assert lost == _LOST
    page = (ROOT / "docs/kafka.md").read_text(encoding="utf-8")
    assert re.search(r"Lost are: the boundaries between data sections", page)


def test_a_kill_in_the_middle_loses_nothing_and_keeps_the_order_of_keys(kafka: Kafka) -> None:
    topic = kafka.create("killed")
    messages = [outgoing(number, f"k{number % 20}") for number in range(3_000)]
    killed: list[float] = []

    def kill_once(done: int) -> None:
        if done >= 600 and not killed:
            killed.append(time.monotonic())
            kafka.kill()
            kafka.start()

    found = balance_of(kafka, topic, messages, sent_until_done(kafka, topic, messages, kill_once, 3), 1)
    assert killed
    assert is_good(found)
    assert found.delivered == 3_000


def test_too_few_replicas_hold_messages_until_there_are_enough_and_leaders_move(tmp_path: Path) -> None:
    missing = Kafka.missing()
    if missing is not None:
        pytest.skip(missing)
    # A cluster of its own: clients of the other one would wait for the broker that is gone.
    first = Kafka(tmp_path)
    first.start()
    try:
        lose_a_replica(first, first.second())
    finally:
        first.kill()


def lose_a_replica(kafka: Kafka, other: Kafka) -> None:
    other.start()
    try:
        topic = created_with_replicas(kafka)
        messages = [outgoing(number, f"k{number % 20}") for number in range(3_000)]
        killed: list[float] = []
        started: list[float] = []

        def disturb(done: int) -> None:
            now = time.monotonic()
            if done >= 600 and not killed:
                # Once it is missed, its partitions get another leader, which refuses: too few replicas.
                other.kill()
                killed.append(now)
            elif killed and not started and now > killed[0] + _MISSED_SECONDS:
                other.start()
                started.append(now)

        sending = sent_until_done(kafka, topic, messages, disturb, 3)
        assert started
        assert {type(error) for error in sending.errors} == {TargetUnavailable}
        found = balance_of(kafka, topic, messages, sending, 10)
        assert is_good(found)
        assert found.delivered == 3_000
    finally:
        other.kill()


def created_with_replicas(kafka: Kafka) -> str:
    """Create a topic with two replicas, once the second broker has registered."""
    end = time.monotonic() + 60
    while True:
        try:
            return kafka.create("replicas", replicas=2, min_insync_replicas="2")
        except KafkaException:
            assert time.monotonic() < end, "the second broker did not register"
            time.sleep(0.5)


def test_messages_that_are_too_large_are_rejected_and_no_other(kafka: Kafka) -> None:
    topic = kafka.create("small", max_message_bytes="20000")
    large = {0, 1, 40, 77}
    messages = [outgoing(each, f"k{each % 3}", b"x" * (30_000 if each in large else 2_000)) for each in range(80)]
    sending = sent_until_done(kafka, topic, messages)
    assert sorted(sending.rejected) == sorted(f"m-{each}" for each in large)
    found = balance_of(kafka, topic, messages, sending, 0)
    assert is_good(found)
    assert found.delivered == 76


def test_calls_at_the_same_time_reject_only_their_own_messages(kafka: Kafka) -> None:
    topic = kafka.create("shared", partitions=1, max_message_bytes="20000")
    large = set(range(5, 400, 50))
    calls = [
        [outgoing(each, f"k{call}", b"x" * (30_000 if each in large else 500)) for each in range(call, 400, 8)]
        for call in range(8)
    ]
    rejected: list[str] = []

    async def send(output: KafkaOutput, messages: Sequence[Outgoing]) -> None:
        waiting = list(messages)
        while waiting:
            pairs = list(zip(waiting, await output.send(topic, waiting, timeout_seconds=20), strict=True))
            rejected.extend(str(message.message_id) for message, answer in pairs if isinstance(answer, MessageRejected))
            waiting = [message for message, answer in pairs if isinstance(answer, TargetUnavailable | TargetRefused)]

    async def run() -> None:
        output = KafkaOutput("there", kafka_endpoint(kafka.url))
        async with asyncio.timeout(180):
            await asyncio.gather(*(send(output, call) for call in calls))
        await output.close()

    asyncio.run(run())
    assert sorted(rejected) == sorted(f"m-{each}" for each in large)
    arrived = read_topic(kafka.options, topic, 1)
    assert len(arrived) == 400 - len(large)
    for call in range(8):
        numbers = [
            int(dict(each.headers())["amqp-message-id"].removeprefix(b"m-"))
            for each in arrived
            if each.key() == b"k%d" % call
        ]
        assert numbers == [each for each in range(call, 400, 8) if each not in large]


def test_a_compacted_topic_takes_tombstones_and_no_message_without_a_key(kafka: Kafka) -> None:
    topic = kafka.create("compacted", cleanup_policy="compact")
    messages = [outgoing(1, "k"), outgoing(2), Outgoing(specimen("body: value, null"), "m-3", "k", None)]
    sending = sent_until_done(kafka, topic, messages)
    assert sending.rejected == ["m-2"]
    assert [each.value() for each in read_topic(kafka.options, topic, _PARTITIONS)] == [b"body", None]


def test_a_cluster_that_is_not_there_is_reported_long_before_the_deadline() -> None:
    async def run() -> list[BuswayError | None]:
        output = KafkaOutput("there", kafka_endpoint("kafka://127.0.0.1:1"))
        async with asyncio.timeout(120):
            answers = await output.send("topic", [outgoing(0), outgoing(1)], timeout_seconds=1_000)
        await output.close()
        return answers

    answers = asyncio.run(run())
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 2
    assert "there/topic: the target cannot be reached, _TRANSPORT: 127.0.0.1:1" in str(answers[0])


def test_a_missing_topic_is_refused_and_not_created_by_a_broker_that_would(kafka: Kafka) -> None:
    [answer] = sent(kafka.url, "missing", [outgoing(0)])
    assert isinstance(answer, TargetRefused)
    assert "it does not exist" in str(answer)
    assert "missing" not in kafka.topics()


def test_a_topic_that_is_created_later_gets_its_messages(kafka: Kafka) -> None:
    messages = [outgoing(number, "k") for number in range(5)]
    made: list[str] = []

    def create(_done: int) -> None:
        if not made:
            made.append(kafka.create("later"))

    sending = sent_until_done(kafka, "later", messages, create)
    assert {type(error) for error in sending.errors} == {TargetRefused}
    assert is_good(balance_of(kafka, "later", messages, sending, 0))


@pytest.mark.parametrize(
    ("user", "password"), [("busway", "other-s3cret"), ("nobody", "other-s3cret"), ("reader", "reader")]
)
def test_a_user_who_is_unknown_or_may_not_write_is_refused(kafka: Kafka, user: str, password: str) -> None:
    if "plain" not in kafka.topics():
        kafka.create("plain")
    [answer] = sent(f"kafka://{user}:{password}@127.0.0.1:{kafka.port}", "plain", [outgoing(0, "k")])
    assert isinstance(answer, TargetRefused)
    assert "Busway may not send to it" in str(answer)
    assert password == "reader" or password not in str(answer)


def test_tls_with_scram_needs_a_trusted_certificate(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.create("tls")
    kafka.add_scram_user("scram", "p/:@")
    url = f"kafkas://scram:p%2F%3A%40@127.0.0.1:{kafka.tls_port}?mechanism=SCRAM-SHA-512"
    monkeypatch.setenv("SSL_CERT_FILE", str(kafka.authority))
    assert sent(url, topic, [outgoing(0, "k")]) == [None]
    monkeypatch.delenv("SSL_CERT_FILE")
    [answer] = sent(url, topic, [outgoing(0, "k")])
    assert isinstance(answer, TargetRefused)
    assert "no trusted connection is possible" in str(answer)


class Identity:
    """Issues tokens that nobody has signed, which the broker accepts at its port for tokens."""

    def __init__(self, name: str, error: str = "") -> None:
        self._name, self._error = name, error
        self.scopes: list[str] = []

    def get_token(self, scope: str) -> Any:
        self.scopes.append(scope)
        if self._error:
            raise RuntimeError(self._error)
        now = int(time.time())
        claims = {"sub": self._name, "iat": now, "exp": now + 600}
        parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": "none"}, claims)]
        return type("Token", (), {"token": f"{parts[0].decode()}.{parts[1].decode()}.", "expires_on": now + 600})


def test_the_identity_of_the_app_is_used_and_an_error_of_it_is_reported(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("token")
    monkeypatch.setenv("SSL_CERT_FILE", str(kafka.authority))
    endpoint = KafkaEndpoint(f"127.0.0.1:{kafka.token_port}", is_encrypted=True, mechanism="OAUTHBEARER")
    identity = Identity("token")
    assert sent(endpoint, topic, [outgoing(0, "k")], identity=lambda: identity) == [None]
    assert set(identity.scopes) == {"https://127.0.0.1/.default"}
    [answer] = sent(endpoint, topic, [outgoing(0, "k")], identity=lambda: Identity("token", "no identity here"))
    assert isinstance(answer, TargetRefused)
    assert "no identity here" in str(answer)
