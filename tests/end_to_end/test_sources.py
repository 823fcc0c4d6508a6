"""The function app of this repository takes from every kind of source."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSender,
)

from busway_broker.config import EntityStatus, HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker
from shared.amqp.values import string
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.messages import delivered

WEST = NamespaceConfig(
    name="west",
    queues=(
        QueueConfig(name="plain"),
        QueueConfig(name="sessions", requires_session=True),
        QueueConfig(name="forwards", forward_to="closed"),
        QueueConfig(name="closed", status=EntityStatus.SEND_DISABLED),
        QueueConfig(name="rejected"),
    ),
    topics=(
        TopicConfig(
            name="topic",
            subscriptions=(
                SubscriptionConfig(name="all"),
                SubscriptionConfig(name="dead"),
            ),
        ),
        TopicConfig(name="onward", subscriptions=(SubscriptionConfig(name="forwards", forward_to="closed"),)),
    ),
    hubs=(HubConfig(name="telemetry", partition_count=2, consumer_groups=("busway",)),),
)
EAST = NamespaceConfig(
    name="east",
    queues=tuple(
        QueueConfig(name=f"from-{kind}") for kind in ("plain", "sessions", "topic", "dead", "transfer", "hub")
    ),
)

# The hub's connection string is that of one hub, as IoT Hub gives it for its endpoint.
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
iot: {kind: event-hubs, setting: IOT}
east: {kind: service-bus, setting: EAST}
"""
TASKS = """
task: plain
source: {connection: west, queue: plain}
routes: [{target: {connection: east, queue: from-plain}}]
---
task: sessions
source: {connection: west, queue: sessions, sessions: true}
routes: [{target: {connection: east, queue: from-sessions}}]
---
task: topic
source: {connection: west, topic: topic, subscription: all}
routes: [{target: {connection: east, queue: from-topic}}]
---
task: dead
source: {connection: west, topic: topic, subscription: dead, dead_letter: true}
routes: [{target: {connection: east, queue: from-dead}}]
rejects: {connection: west, queue: rejected}
---
task: queue-transfer
source: {connection: west, queue: forwards, dead_letter: transfer}
routes: [{target: {connection: east, queue: from-transfer}}]
rejects: {connection: west, queue: rejected}
---
task: subscription-transfer
source: {connection: west, topic: onward, subscription: forwards, dead_letter: transfer}
routes: [{target: {connection: east, queue: from-transfer}}]
rejects: {connection: west, queue: rejected}
---
task: hub
source: {connection: iot, hub: telemetry, consumer_group: busway}
routes: [{target: {connection: east, queue: from-hub}}]
rejects: {connection: west, queue: rejected}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "all.yaml").write_text(TASKS)
    with RunningBroker([WEST, EAST]) as running:
        settings = {
            "BUSWAY_CONFIG": str(folder),
            "WEST": running.connection_string("west"),
            "IOT": f"{running.connection_string('west').rstrip(';')};EntityPath=telemetry",
            "EAST": running.connection_string("east"),
        }
        with HostProcess(str(ROOT), folder, settings) as host:
            host.wait_until_ready()
            yield running
            assert host.stop() == 0


@pytest.fixture(scope="module")
def west(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("west")) as client:
        yield client


@pytest.fixture(scope="module")
def arrived(broker: RunningBroker) -> Iterator[Callable[[str, int], list[Any]]]:
    """Take a number of messages from a queue in east."""
    with ServiceBusClient.from_connection_string(broker.connection_string("east")) as client:

        def take(queue: str, count: int) -> list[Any]:
            messages: list[Any] = []
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
                while len(messages) < count:
                    more = receiver.receive_messages(count - len(messages), max_wait_time=20)
                    assert more, f"{queue}: {len(messages)} of {count} arrived"
                    messages += more
            return messages

        yield take


def stamps(message: Any) -> dict[str, str]:
    return {
        key.decode(): value.decode()
        for key, value in message.application_properties.items()
        if key.startswith(b"repl-") and value is not None
    }


def send(sender: ServiceBusSender, count: int, **options: Any) -> None:
    with sender:
        sender.send_messages([ServiceBusMessage(f"{n}", message_id=f"m{n}", **options) for n in range(count)])


@pytest.mark.parametrize("kind", ["plain", "sessions"])
def test_a_queue(west: ServiceBusClient, arrived: Callable[[str, int], list[Any]], kind: str) -> None:
    send(west.get_queue_sender(kind), 20, session_id="s", correlation_id="c")
    messages = arrived(f"from-{kind}", 20)
    order = [str(message) for message in messages]
    assert sorted(order, key=int) == [str(n) for n in range(20)]
    if kind == "sessions":
        assert order == sorted(order, key=int)
    assert {(message.session_id, message.correlation_id) for message in messages} == {("s", "c")}
    assert {stamps(message)["repl-path"] for message in messages} == {"west"}
    assert sorted(int(stamps(message)["repl-sequence"]) for message in messages) == list(range(1, 21))


def test_a_subscription_and_the_dead_letters_of_another(
    west: ServiceBusClient, arrived: Callable[[str, int], list[Any]]
) -> None:
    send(west.get_topic_sender("topic"), 3)
    assert {message.message_id for message in arrived("from-topic", 3)} == {"m0", "m1", "m2"}
    with west.get_subscription_receiver("topic", "dead") as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.dead_letter_message(message, reason="TooOld", error_description="it is late")
    for message in arrived("from-dead", 3):
        stamped = stamps(message)
        assert stamped["repl-dlq-reason"] == "TooOld"
        assert stamped["repl-dlq-description"] == "it is late"
        assert stamped["repl-dlq-source"] == "topic/Subscriptions/dead"
        assert b"DeadLetterReason" not in message.application_properties


def test_transfer_dead_letters_of_a_queue_and_a_subscription(
    broker: RunningBroker, arrived: Callable[[str, int], list[Any]]
) -> None:
    """A message that was sent via the entity, and that its target refused later, is there."""

    def give_up(path: str, *names: str) -> None:
        contents = [
            read_content(delivered(None, message_id=each, named={"DeadLetterReason": string("Refused")}))
            for each in names
        ]
        broker.inspect(
            "west", lambda each: [each.store(f"{path}/$Transfer/$DeadLetterQueue").add(one) for one in contents]
        )

    give_up("forwards", "m0", "m1")
    for message in (first := arrived("from-transfer", 2)):
        assert stamps(message)["repl-dlq-source"] == "forwards"
        assert stamps(message)["repl-dlq-reason"]
    assert {message.message_id for message in first} == {"m0", "m1"}
    give_up("onward/Subscriptions/forwards", "m2")
    (message,) = arrived("from-transfer", 1)
    assert stamps(message)["repl-dlq-source"] == "onward/Subscriptions/forwards"


def test_a_hub(broker: RunningBroker, arrived: Callable[[str, int], list[Any]]) -> None:
    connection = broker.connection_string("west")
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="telemetry") as producer:
        for partition in ("0", "1"):
            events: list[Any] = [EventData(f"{partition}-{n}") for n in range(5)]
            for event in events:
                event.properties = {"unit": "K", "value": 7}
                event.raw_amqp_message.annotations = {"iothub-connection-device-id": f"device-{partition}"}
            producer.send_batch(events, partition_id=partition)
    messages = arrived("from-hub", 10)
    assert sorted(str(message) for message in messages) == [f"{p}-{n}" for p in (0, 1) for n in range(5)]
    assert len({message.message_id for message in messages}) == 10, "events without an id get one of their own each"
    for message in messages:
        assert (message.application_properties[b"unit"], message.application_properties[b"value"]) == (b"K", 7)
        assert stamps(message)["repl-path"] == "iot"
        device = f"device-{str(message)[0]}"
        assert message.session_id == message.partition_key == device
        annotations = message.raw_amqp_message.annotations
        assert annotations is not None
        assert annotations[b"iothub-connection-device-id"] == device.encode()
        assert b"repl-eh-session-id" in message.application_properties
        assert set(stamps(message)) >= {"repl-enqueue-time", "repl-sequence", "repl-offset"}


def test_no_message_is_left_at_the_sources(broker: RunningBroker) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        counts = broker.counts("west")
        left = {name: each for name, each in counts.items() if each.active or each.transfer_dead_lettered}
        if not left:
            break
        time.sleep(0.05)
    assert left == {}
    assert counts["rejected"].active == 0
