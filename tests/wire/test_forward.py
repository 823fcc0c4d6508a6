"""`busway forward` from librdkafka's mock cluster to a hub of the local broker, and to a target that fails."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from busway_broker.core.hub import Partition
from busway_broker.thread import RunningBroker
from cli.local_services.kafka import KafkaCluster
from cli.main import app
from shared.amqp.values import binary, int_, string
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.kafka.endpoint import kafka_endpoint
from shared.ends.kafka.output import KafkaOutput
from shared.errors import ConfigError, MessageRejected, TargetUnavailable
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.journal.task import TaskJournal
from shared.message.message import Message
from shared.message.metadata import OFFSET, PATH, SEQUENCE
from shared.protocols import Outgoing
from tests.fidelity.parts import changes, is_same_value, parts
from tests.forwarding import KEYS, TargetThatFailsFirst, by_key, fill, forwarding, keyed, new_topic, run
from tests.memory_sink import MemorySink
from tests.messages import ORIGIN, delivered
from tests.raw_kafka import produce_with_header

# Requests and errors of Kafka, by their numbers.
FETCH, FIND_COORDINATOR, JOIN_GROUP = 1, 10, 11
REQUEST_TIMED_OUT, INCONSISTENT_GROUP_PROTOCOL, GROUP_AUTHORIZATION_FAILED = 7, 23, 30
EXAMPLES = Path(__file__).parents[2] / "config/examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        yield running


@pytest.fixture(autouse=True)
def stream(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"kafka://{cluster.servers}"
    monkeypatch.setenv("STREAM", url)
    return url


def test_events_come_back_to_a_hub_as_they_were_in_the_order_of_their_keys(
    cluster: KafkaCluster, stream: str, broker: RunningBroker, entity: Callable[[str], str]
) -> None:
    topic, hub = new_topic(cluster), entity("hub")
    named = {"unit": string("C"), "line": int_(4), "raw": binary(b"\xff"), PATH: string("plant"), SEQUENCE: string("8")}
    contents = [
        delivered(
            None,
            message_id=f"m-{number}",
            named=named,
            annotated={"x-opt-partition-key": string(f"k{number % KEYS}")},
            body=b"%d" % number,
        )
        for number in range(50)
    ]
    settings = {"PLANT": broker.connection_string("hubs")}
    output = EventHubsOutput("plant", lambda name: event_hub_client("PLANT", settings, name))

    async def scenario() -> int:
        messages = [Outgoing(content, None, None, f"k{number % KEYS}") for number, content in enumerate(contents)]
        await fill(stream, topic, messages)
        work = forwarding(topic, output, hub=hub)
        await run(work)
        return work.sent

    assert asyncio.run(scenario()) == 50
    arrived = broker.inspect(
        "hubs", lambda hubs: [event for found in hubs.hubs[hub].partitions for event in events(found)]
    )
    assert len(arrived) == 50
    numbers: dict[str | None, list[int]] = {}
    for content in arrived:
        message = Message.received(content, ORIGIN)
        number = int(message.body or b"")
        numbers.setdefault(message.partition_key, []).append(number)
        different = changes(parts(contents[number]), parts(message.encode()))
        # A hub keeps no header section.
        assert not [
            place for place, pair in different.items() if place != "header 0" and not is_same_value(place, *pair)
        ]
        found = dict(message.application_properties())
        offset = str(found[OFFSET].payload)
        assert (found[PATH].payload, found[SEQUENCE].payload) == ("plant;stream", f"8;{offset}")
    assert numbers == by_key(50)


def events(partition: Partition) -> list[bytes]:
    found: list[bytes] = []
    while (each := partition.event(len(found))) is not None:
        found.append(each.encode())
    return found


def test_an_outage_of_the_hub_loses_and_reorders_nothing(cluster: KafkaCluster, stream: str) -> None:
    topic, target = new_topic(cluster), TargetThatFailsFirst(*[TargetUnavailable("down")] * 2)

    async def scenario() -> None:
        await fill(stream, topic, keyed(200))
        await run(forwarding(topic, target))

    asyncio.run(scenario())
    assert target.bodies == by_key(200)


def test_a_stop_in_the_middle_of_a_batch_finishes_it_also_if_it_must_be_sent_again(
    cluster: KafkaCluster, stream: str
) -> None:
    topic = new_topic(cluster)

    async def scenario() -> dict[str | None, list[int]]:
        await fill(stream, topic, keyed(1_000))
        target = TargetThatFailsFirst(TargetUnavailable("down"), then=lambda: work.stop(60))
        work = forwarding(topic, target)
        await run(work)
        assert work.is_stopped
        return target.bodies

    arrived = asyncio.run(scenario())
    assert 0 < sum(map(len, arrived.values())) <= 500
    assert arrived == {key: by_key(1_000)[key][: len(numbers)] for key, numbers in arrived.items()}


def test_a_record_that_cannot_be_sent_is_set_aside_and_does_not_hold_the_others(
    cluster: KafkaCluster, stream: str
) -> None:
    topic, rejects = new_topic(cluster), list[str]()
    target = TargetThatFailsFirst(MessageRejected("MessageSizeExceeded", "too large"))
    # A path must be text.
    broken = delivered(None, body=b"4", named={PATH: int_(4)})

    async def scenario() -> tuple[int, int]:
        contents = [*(delivered(None, body=b"%d" % number) for number in range(4)), broken]
        await fill(stream, topic, [Outgoing(content, None, None, "k") for content in contents])
        work = forwarding(topic, target, rejects)
        await run(work)
        return work.sent, work.rejected

    assert asyncio.run(scenario()) == (2, 3)
    assert target.bodies == {"k": [0, 1]}
    found = {each["offset"]: each for each in map(json.loads, rejects)}
    assert {offset: each["reason"] for offset, each in found.items()} == {
        2: "MessageSizeExceeded",
        3: "MessageSizeExceeded",
        4: "MalformedMessage",
    }
    assert Message.received(base64.b64decode(found[2]["message"]), ORIGIN).body == b"2"


def test_a_record_whose_headers_cannot_be_read_is_set_aside_and_does_not_end_the_process(
    cluster: KafkaCluster, stream: str
) -> None:
    topic, rejects, target = new_topic(cluster), list[str](), TargetThatFailsFirst()
    produce_with_header(cluster.servers, topic, b"\xff", b"7")

    async def scenario() -> tuple[int, int]:
        await fill(stream, topic, keyed(20))
        work = forwarding(topic, target, rejects)
        await run(work)
        return work.sent, work.rejected

    assert asyncio.run(scenario()) == (20, 1)
    assert target.bodies == by_key(20)
    [found] = map(json.loads, rejects)
    assert (found["reason"], found["description"]) == ("MalformedMessage", "the name of a header is not UTF-8")
    assert Message.received(base64.b64decode(found["message"]), ORIGIN).body == b"7"


class SinkThatFailsFirst(MemorySink):
    """Refuses what comes first to each stream."""

    async def append(self, stream: Stream, member: bytes) -> None:
        if stream not in self.members:
            self.members[stream] = []
            raise TargetUnavailable("down")
        await super().append(stream, member)


def test_the_journal_has_what_was_received_before_it_is_sent_and_each_outcome_once(
    cluster: KafkaCluster, stream: str
) -> None:
    topic, sink = new_topic(cluster), SinkThatFailsFirst()
    seen_at_send = list[int]()
    target = TargetThatFailsFirst(
        then=lambda: seen_at_send.append(len(sink.records("to-hub", Role.SOURCE))),
    )
    unnamed = Outgoing(delivered(None, body=b"20", message_id=None), None, None, "k0")
    broken = Outgoing(delivered(None, body=b"21", named={PATH: int_(4)}), None, None, "k0")

    async def scenario() -> None:
        await fill(stream, topic, [*keyed(20), unnamed, broken])
        journal = TaskJournal("to-hub", sink, is_hub=True, is_required=True)
        await run(forwarding(topic, target, journal=journal))

    asyncio.run(scenario())
    received = {(record["src_part"], record["src_seq"]): record for record in sink.records("to-hub", Role.SOURCE)}
    outcomes = {(record["src_part"], record["src_seq"]): record for record in sink.records("to-hub", Role.TARGET)}
    assert len(received) == len(sink.records("to-hub", Role.SOURCE)) == 22
    assert len(sink.records("to-hub", Role.TARGET)) == 22
    assert received.keys() == outcomes.keys()
    assert seen_at_send[0] > 0
    assert {(each["src_entity"], *each["hops"]) for each in received.values()} == {(topic, "stream")}
    sent = {key: outcome for key, outcome in outcomes.items() if outcome["outcome"] == "sent"}
    assert {each["target"] for each in sent.values()} == {"plant/returned"}
    for key, each in sent.items():
        digests = (received[key][name] for name in ("body_digest", "property_digest"))
        body, properties = (int(digest[:16], 16) for digest in digests)
        assert int(each["check"], 16) == body ^ properties
    assert sum("message_id" in each for each in sent.values()) == 1, "only the one without an id gets another"
    [rejected] = [outcome for outcome in outcomes.values() if outcome["outcome"] != "sent"]
    assert (rejected["outcome"], rejected["stage"]) == ("rejected", "stamped")
    assert rejected["reason"].startswith("MalformedMessage: ")


def test_a_topic_that_does_not_exist_is_a_problem() -> None:
    with pytest.raises(ConfigError, match="stream/missing: cannot be read: Subscribed topic not available"):
        asyncio.run(run(forwarding("missing", TargetThatFailsFirst())))


def test_records_that_were_deleted_before_they_were_read_are_reported(
    cluster: KafkaCluster, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, target = new_topic(cluster), TargetThatFailsFirst()
    # The cluster keeps 5 MB of a partition.
    large = [Outgoing(delivered(None, body=b"%-900000d" % each), None, None, "k") for each in range(20)]

    async def scenario() -> None:
        await fill(stream, topic, large[:2])
        await run(forwarding(topic, target))
        await fill(stream, topic, large[2:])
        await run(forwarding(topic, target))

    asyncio.run(scenario())
    [numbers] = target.bodies.values()
    first = numbers[2]
    assert first > 2
    assert numbers == [0, 1, *range(first, 20)]
    reported = capsys.readouterr().err
    assert f"offsets 2 to {first - 1} were deleted before they were read\n" in reported
    assert reported.startswith(f"stream/{topic}: partition ")


def test_a_group_whose_offset_is_beyond_the_end_of_the_topic_starts_again_and_it_is_reported(
    cluster: KafkaCluster, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, target = new_topic(cluster), TargetThatFailsFirst()
    # As after a topic was deleted and created again.
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": f"of-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, each, 70) for each in range(2)], asynchronous=False)
    consumer.close()

    async def scenario() -> None:
        await fill(stream, topic, keyed(20))
        await run(forwarding(topic, target))

    asyncio.run(scenario())
    assert target.bodies == by_key(20)
    reported = capsys.readouterr().err.splitlines()
    assert [each.partition(" and ")[0] for each in reported] == [
        f"stream/{topic}: partition {partition}: the group is at offset 70" for partition in range(2)
    ]
    assert all(each.endswith("it reads again from offset 0") for each in reported)


def test_a_group_that_it_may_not_use_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    # A cluster of its own, where no other group takes the answers, which go on as long as the right is missing.
    with KafkaCluster() as cluster:
        monkeypatch.setenv("STREAM", f"kafka://{cluster.servers}")
        cluster.fail_requests(*[GROUP_AUTHORIZATION_FAILED] * 100, request=FIND_COORDINATOR)
        topic = new_topic(cluster)
        with pytest.raises(ConfigError, match=f"stream/{topic}: cannot be read: .*Group authorization failed"):
            asyncio.run(run(forwarding(topic, TargetThatFailsFirst())))


def test_a_group_that_does_not_take_it_for_now_is_reported_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = TargetThatFailsFirst()

    async def scenario() -> None:
        await fill(stream, topic, keyed(20))
        await run(forwarding(topic, target))

    with KafkaCluster() as cluster:
        stream = f"kafka://{cluster.servers}"
        monkeypatch.setenv("STREAM", stream)
        topic = new_topic(cluster)
        cluster.fail_requests(INCONSISTENT_GROUP_PROTOCOL, request=JOIN_GROUP)
        asyncio.run(scenario())
    assert target.bodies == by_key(20)
    assert f"stream/{topic}: waits: JoinGroup failed: Broker: Inconsistent group protocol" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "hub", "expected"),
    [
        ("plant/readings", "plant/returned", "plant/readings: is of kind event-hubs, expected kafka"),
        ("stream/readings", "stream/other", "stream/other: is of kind kafka, expected event-hubs"),
        ("stream/readings", "plant/returned", "app setting PLANT: the app setting is missing"),
    ],
)
def test_what_cannot_be_forwarded_is_a_problem(
    topic: str, hub: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLANT", raising=False)
    folder = EXAMPLES / "hub-to-kafka"
    result = CliRunner().invoke(app, ["forward", topic, hub, "--group", "g", "--config", str(folder)])
    assert result.exit_code == 1
    assert expected in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--group", "$Default"], "$Default: cannot be a name in the journal (choose another one with --task"),
        (["--group", "g", "--task", "readings-to-kafka"], "readings-to-kafka: is a task of the configuration"),
        (["--group", "g"], "journal.yaml: blob: app setting JOURNAL: the app setting is missing"),
    ],
)
def test_what_the_journal_cannot_have_is_a_problem(
    options: list[str], expected: str, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICE", broker.connection_string("hubs"))
    monkeypatch.delenv("JOURNAL", raising=False)
    place = ["--config", str(EXAMPLES / "hub-to-kafka-and-back")]
    result = CliRunner().invoke(app, ["forward", "stream/readings", "office/readings", *options, *place])
    assert result.exit_code == 1
    assert expected in result.stderr.replace("\n", " ")


def test_it_does_not_end_while_the_brokers_keep_records_that_they_do_not_deliver(
    cluster: KafkaCluster, stream: str, broker: RunningBroker, entity: Callable[[str], str]
) -> None:
    """EH27: a namespace that throttles answers without records and without an error."""
    topic, hub = new_topic(cluster), entity("hub")
    settings = {"PLANT": broker.connection_string("hubs")}
    work = forwarding(
        topic, EventHubsOutput("plant", lambda name: event_hub_client("PLANT", settings, name)), hub=hub, idle=3
    )

    async def scenario() -> None:
        records = KafkaOutput("stream", kafka_endpoint(stream))
        assert await records.send(topic, keyed(10), timeout_seconds=20) == [None] * 10
        running = asyncio.create_task(run(work))
        while work.sent < 10:  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # it comes to the ends of the partitions
        cluster.fail_requests(*[REQUEST_TIMED_OUT] * 6, request=FETCH)
        assert await records.send(topic, keyed(10), timeout_seconds=20) == [None] * 10
        await running
        await records.close()

    asyncio.run(scenario())
    assert work.sent == 20
