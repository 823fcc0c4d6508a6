"""The function app of this repository takes from dead letters and a hub; patterns have the other kinds of source."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.eventhub import EventData

from busway_broker.core.content import read_content
from shared.amqp.values import string
from tests.messages import delivered
from tests.site import Site, until

ENTITIES = """
west:
  queues:
    forwards: {forward_to: closed}
    closed: {status: SendDisabled}
    rejected:
  topics: {topic: [dead], onward: {subscriptions: {forwards: {forward_to: closed}}}}
  hubs: {telemetry: {partition_count: 2, consumer_groups: [busway]}}
east: {queues: [from-dead, from-transfer, from-hub]}
"""
MORE = "iot: {kind: event-hubs, setting: IOT}"
TASKS = """
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
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("sources"), ENTITIES, TASKS, more=MORE) as site:
        # The hub's connection string is that of one hub, as IoT Hub gives it for its endpoint.
        one_hub = f"{site.settings['WEST'].rstrip(';')};EntityPath=telemetry"
        with site.running_host(IOT=one_hub):
            yield site


def stamps(message: Any) -> dict[str, str]:
    return {
        key.decode(): value.decode()
        for key, value in message.application_properties.items()
        if key.startswith(b"repl-") and value is not None
    }


def test_the_dead_letters_of_a_subscription(site: Site) -> None:
    site.send("west/topic", *["late"] * 3)
    with site.receiver("west/topic/Subscriptions/dead") as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.dead_letter_message(message, reason="TooOld", error_description="it is late")
    for message in site.take("east/from-dead", 3):
        stamped = stamps(message)
        assert stamped["repl-dlq-reason"] == "TooOld"
        assert stamped["repl-dlq-description"] == "it is late"
        assert stamped["repl-dlq-source"] == "topic/Subscriptions/dead"
        assert b"DeadLetterReason" not in message.application_properties


def test_transfer_dead_letters_of_a_queue_and_a_subscription(site: Site) -> None:
    """A message that was sent via the entity, and that its target refused later, is there."""

    def give_up(path: str, *names: str) -> None:
        contents = [
            read_content(delivered(None, message_id=name, named={"DeadLetterReason": string("Refused")}))
            for name in names
        ]
        site.broker.inspect(
            "west", lambda each: [each.store(f"{path}/$Transfer/$DeadLetterQueue").add(one) for one in contents]
        )

    give_up("forwards", "m0", "m1")
    for message in (first := site.take("east/from-transfer", 2)):
        assert stamps(message)["repl-dlq-source"] == "forwards"
        assert stamps(message)["repl-dlq-reason"]
    assert {message.message_id for message in first} == {"m0", "m1"}
    give_up("onward/Subscriptions/forwards", "m2")
    (message,) = site.take("east/from-transfer", 1)
    assert stamps(message)["repl-dlq-source"] == "onward/Subscriptions/forwards"


def test_a_hub(site: Site) -> None:
    for partition in ("0", "1"):
        events: list[Any] = [EventData(f"{partition}-{n}") for n in range(5)]
        for event in events:
            event.properties = {"unit": "K", "value": 7}
            event.raw_amqp_message.annotations = {"iothub-connection-device-id": f"device-{partition}"}
        site.publish_events("west/telemetry", *events, partition_id=partition)
    messages = site.take("east/from-hub", 10)
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


def test_no_message_is_left_at_the_sources(site: Site) -> None:
    def left() -> list[str]:
        counts = site.broker.counts("west")
        return [name for name, count in counts.items() if count.active or count.transfer_dead_lettered]

    until(lambda: not left(), 5, text=left)
    assert site.active("west/rejected") == 0
