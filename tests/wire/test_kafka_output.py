"""The output for Kafka, against the mock cluster of librdkafka over sockets."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cli.local_services.kafka import PRODUCE, KafkaCluster
from shared.ends.kafka.endpoint import kafka_endpoint
from shared.ends.kafka.output import KafkaOutput
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.kafka_reader import read_topic
from tests.wire.sending import SECONDS, Answers, answers_of, closing, kinds, outgoing

PARTITIONS = 4
_topics = itertools.count()
MSG_SIZE_TOO_LARGE, NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED, INVALID_RECORD, STORAGE = 10, 19, 29, 87, 56
DISCONNECTED = -195
POLICY_VIOLATION = 44


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as running:
        yield running


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = f"t{next(_topics)}"
    cluster.create_topic(name, PARTITIONS)
    return name


def numbered(number: int, key: str | None = None) -> Outgoing:
    return outgoing(number, key, body=b"%d" % number)


def output_to(cluster: KafkaCluster, *, is_event_hubs: bool = False) -> KafkaOutput:
    return KafkaOutput("there", replace(kafka_endpoint(f"kafka://{cluster.servers}"), is_event_hubs=is_event_hubs))


def keyed(count: int, keys: int = 7) -> list[Outgoing]:
    return [numbered(number, f"k{number % keys}") for number in range(count)]


def sent(
    cluster: KafkaCluster, topic: str, *calls: Sequence[Outgoing], is_event_hubs: bool = False, **options: float
) -> list[Answers]:
    return answers_of(lambda: output_to(cluster, is_event_hubs=is_event_hubs), topic, *calls, **options)


def read(cluster: KafkaCluster, topic: str) -> list[Any]:
    """Return the messages of a topic, those of a partition in their order."""
    return list(read_topic({"bootstrap.servers": cluster.servers}, topic, PARTITIONS))


def by_key(messages: Sequence[Any]) -> dict[bytes | None, list[int]]:
    found: dict[bytes | None, list[int]] = {}
    for message in messages:
        found.setdefault(message.key(), []).append(int(message.value()))
    return found


def test_messages_arrive_once_in_the_order_of_their_keys(cluster: KafkaCluster, topic: str) -> None:
    messages = [*keyed(300), *(numbered(number) for number in range(300, 320))]
    assert sent(cluster, topic, messages[:100], messages[100:]) == [[None] * 100, [None] * 220]
    arrived = by_key(read(cluster, topic))
    assert sorted(arrived.pop(None)) == list(range(300, 320))
    assert arrived == {b"k%d" % key: list(range(key, 300, 7)) for key in range(7)}


def test_a_topic_that_does_not_exist_is_refused_and_not_created(cluster: KafkaCluster) -> None:
    [answers] = sent(cluster, "missing", keyed(3))
    assert kinds(answers) == ["TargetRefused"] * 3
    assert str(answers[0]).startswith("there/missing: the target refuses to take messages, it does not exist: UNKNOWN_")


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (MSG_SIZE_TOO_LARGE, MessageRejected, "too large"),
        (INVALID_RECORD, MessageRejected, "refused the message"),
        (TOPIC_AUTHORIZATION_FAILED, TargetRefused, "may not send"),
    ],
)
def test_an_answer_becomes_the_error_with_its_remedy(
    cluster: KafkaCluster, topic: str, code: int, error: type[BuswayError], text: str
) -> None:
    cluster.fail_requests(code)
    [[answer]] = sent(cluster, topic, [outgoing(1, "a")])
    assert isinstance(answer, error)
    assert text in str(answer)


def test_passing_errors_are_retried_in_order(cluster: KafkaCluster, topic: str) -> None:
    cluster.fail_requests(NOT_ENOUGH_REPLICAS, STORAGE, DISCONNECTED)
    assert sent(cluster, topic, keyed(60)) == [[None] * 60]
    assert by_key(read(cluster, topic)) == {b"k%d" % key: list(range(key, 60, 7)) for key in range(7)}


def test_no_message_overtakes_one_that_was_not_accepted(cluster: KafkaCluster, topic: str) -> None:
    messages = [outgoing(number, "a", body=b"%06d" % number * 20_000) for number in range(30)]

    # The second of the four batches is not accepted.
    cluster.fail_requests(0, TOPIC_AUTHORIZATION_FAILED)
    [answers] = sent(cluster, topic, messages)
    accepted = [position for position, answer in enumerate(answers) if answer is None]
    assert accepted == list(range(len(accepted)))
    assert 0 < len(accepted) < 30
    assert {type(answer) for answer in answers[len(accepted) :]} <= {TargetRefused, TargetUnavailable}
    assert len(read(cluster, topic)) == len(accepted)


def test_the_message_for_which_a_batch_is_refused_is_found(cluster: KafkaCluster, topic: str) -> None:
    cluster.fail_requests(INVALID_RECORD, 0, INVALID_RECORD)
    messages = [numbered(number, "a") for number in range(4)]
    [first, second] = sent(cluster, topic, messages, messages)
    assert kinds(first) == ["TargetUnavailable"] * 4
    assert "one of 4 messages is refused, INVALID_RECORD" in str(first[0])
    assert kinds(second) == ["NoneType", "MessageRejected", "NoneType", "NoneType"]
    assert by_key(read(cluster, topic)) == {b"a": [0, 2, 3]}


def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(cluster: KafkaCluster, topic: str) -> None:
    async def run() -> list[list[str]]:
        waiting = [outgoing(number, "a", body=b"%20000d" % number) for number in range(16)]
        seen = []
        cluster.fail_requests(MSG_SIZE_TOO_LARGE)
        async with closing(output_to(cluster)) as output:
            while waiting:
                answers = await output.send(topic, waiting, timeout_seconds=SECONDS)
                seen.append(kinds(answers))
                waiting = [message for message, answer in zip(waiting, answers, strict=True) if answer is not None]
        return seen

    seen = asyncio.run(run())
    assert set(seen[0]) == {"TargetUnavailable"}
    assert len(seen) > 1
    assert "MessageRejected" not in itertools.chain(*seen)
    assert by_key(read(cluster, topic)) == {b"a": list(range(16))}


def test_a_broker_that_does_not_answer_is_left_at_the_deadline(cluster: KafkaCluster, topic: str) -> None:
    for broker in (1, 2, 3):
        cluster.set_down(broker)
    try:
        [answers] = sent(cluster, topic, keyed(3), seconds=1.0)
    finally:
        for broker in (1, 2, 3):
            cluster.set_up(broker)
    assert kinds(answers) == ["TargetUnavailable"] * 3
    assert "there/" in str(answers[0])
    assert sent(cluster, topic, keyed(3)) == [[None] * 3]


def test_messages_wait_for_a_new_leader(cluster: KafkaCluster, topic: str) -> None:
    async def run() -> list[BuswayError | None]:
        async with closing(output_to(cluster)) as output:
            answers = await output.send(topic, keyed(20), timeout_seconds=SECONDS)
            for partition in range(PARTITIONS):
                cluster.move_leader(topic, partition, 1 + partition % 3)
            return answers + await output.send(topic, keyed(60)[20:], timeout_seconds=SECONDS)

    assert asyncio.run(run()) == [None] * 60
    assert by_key(read(cluster, topic)) == {b"k%d" % key: list(range(key, 60, 7)) for key in range(7)}


def test_calls_at_the_same_time_get_their_own_answers(cluster: KafkaCluster, topic: str) -> None:
    async def run() -> list[list[BuswayError | None]]:
        calls = [[outgoing(10 * call + number, f"c{call}") for number in range(10)] for call in range(5)]
        async with closing(output_to(cluster)) as output:
            return await asyncio.gather(*(output.send(topic, call, timeout_seconds=SECONDS) for call in calls))

    assert asyncio.run(run()) == [[None] * 10] * 5
    assert len(read(cluster, topic)) == 50


def test_a_batch_for_many_partitions_takes_one_round_trip(cluster: KafkaCluster) -> None:
    topic, partitions, held_milliseconds = f"t{next(_topics)}", 12, 20_000
    cluster.create_topic(topic, partitions)
    messages = keyed(400, keys=100)

    async def run() -> None:
        output = output_to(cluster)
        assert await output.send(topic, messages, timeout_seconds=SECONDS) == [None] * 400
        cluster.forget_requests()
        for broker in (1, 2, 3):
            cluster.set_round_trip(broker, held_milliseconds)
        sending = asyncio.create_task(output.send(topic, messages, timeout_seconds=SECONDS))
        # Before any of them is answered.
        async with asyncio.timeout(held_milliseconds / 1000 - 2):
            while cluster.requests(PRODUCE) < partitions:  # noqa: ASYNC110 - what the cluster gets sets no event
                await asyncio.sleep(0.05)
        sending.cancel()
        for broker in (1, 2, 3):
            cluster.set_round_trip(broker, 0)
        await output.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("is_event_hubs", "expected", "retry_after"),
    [(True, TargetUnavailable, timedelta(seconds=4)), (False, TargetRefused, None)],
)
def test_a_policy_violation_of_event_hubs_is_throttling(
    cluster: KafkaCluster,
    topic: str,
    is_event_hubs: bool,
    expected: type[BuswayError],
    retry_after: timedelta | None,
) -> None:
    # EH26: Microsoft Learn, "Apache Kafka troubleshooting guide for Event Hubs"
    cluster.fail_requests(POLICY_VIOLATION)
    [[answer], [again]] = sent(cluster, topic, [outgoing(1, "k")], [outgoing(1, "k")], is_event_hubs=is_event_hubs)
    assert isinstance(answer, expected)
    assert getattr(answer, "retry_after", None) == retry_after
    assert again is None


def test_a_record_that_event_hubs_would_answer_by_closing_the_connection_is_rejected_before(
    cluster: KafkaCluster, topic: str
) -> None:
    # EH03: azure-event-hubs-for-kafka 255
    messages = [outgoing(1, "k"), outgoing(2, "large", body=b"x" * 1_046_528), outgoing(3, "k"), outgoing(4, "k")]
    [answers] = sent(cluster, topic, messages, is_event_hubs=True)
    assert [None if answer is None else type(answer) for answer in answers] == [None, MessageRejected, None, None]
    assert isinstance(answers[1], MessageRejected)
    assert answers[1].reason == "MessageSizeExceeded"
