"""Latency, merge, stream to queue, queue to stream: keys, sessions, ids and partitions through Microsoft's SDKs."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests.end_to_end.hub_clients import bodies_by_key, publish, read
from tests.end_to_end.running_pattern import EXAMPLES, RunningPattern, copied, lines, stamps

pytestmark = pytest.mark.long

KEYS = ("press", "pump", "robot", "saw")
EACH = 10


def test_latency_keeps_partitions_and_their_order(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "latency", tmp_path) as pattern:
        america, europe = (pattern.broker.connection_string(site) for site in ("america", "europe"))
        # Some have no key, so that the hub deals them out; they keep their partition and their place in it too.
        readings = [(key, f"{key}-{n}", {"unit": "K", "n": n}) for n in range(EACH) for key in (*KEYS, None)]
        publish(america, "telemetry", readings)
        originals, copies = pattern.at_once(
            partial(read, america, "telemetry", len(readings)), partial(read, europe, "telemetry", len(readings))
        )
        expected = {
            partition: [(event.body_as_str(), event.partition_key, event.properties[b"n"]) for event in events]
            for partition, events in originals.items()
        }
        assert len(expected) > 1
        assert {
            partition: [(event.body_as_str(), event.partition_key, event.properties[b"n"]) for event in events]
            for partition, events in copies.items()
        } == expected
        for partition, events in copies.items():
            numbers = [int(event.properties[b"repl-sequence"]) for event in events]
            assert numbers == [each.sequence_number for each in originals[partition]]
            assert {event.properties[b"repl-path"] for event in events} == {b"america"}
        ids = [event.message_id for events in copies.values() for event in events]
        assert len(set(ids)) == len(ids), "each copy has an id of its own, which the original has not"
        assert pattern.journal() == []
        assert pattern.app.stop() == 0


def test_latency_reports_a_missing_target_partition(tmp_path: Path) -> None:
    folder = copied(EXAMPLES / "latency", tmp_path / "fewer")
    entities = folder / "entities/europe.json"
    entities.write_text(entities.read_text().replace('"PartitionCount": "4"', '"PartitionCount": "2"'))
    with RunningPattern(folder, tmp_path) as pattern:
        america, europe = (pattern.broker.connection_string(site) for site in ("america", "europe"))
        publish(america, "telemetry", [(f"key-{n}", f"{n}", {}) for n in range(20)])
        originals = read(america, "telemetry", 20)
        here = sum(len(events) for partition, events in originals.items() if partition in {"0", "1"})
        assert 0 < here < 20
        copies = read(europe, "telemetry", here)
        assert {partition: len(events) for partition, events in copies.items()} == {
            partition: len(events) for partition, events in originals.items() if partition in {"0", "1"}
        }
        expected = "europe/telemetry/Partitions/3: the target refuses the link"
        pattern.app.wait_for(lambda: expected in pattern.app.log(), seconds=60)


def test_merge_keeps_the_order_per_device_and_messages_with_equal_ids(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "merge", tmp_path, changed=lambda namespace: namespace) as pattern:
        # Each region counts its own messages, so their ids are equal; and every second event has none.
        hubs = {
            site: [
                (key, f"{site}-{key}-{n}", {"message_id": f"{key}-{n}"} if n % 2 else {})
                for n in range(EACH)
                for key in KEYS
            ]
            for site in ("america", "europe")
        }
        asia = [
            ServiceBusMessage(f"asia-{key}-{n}", message_id=f"{key}-{n}", session_id=key)
            for n in range(EACH)
            for key in KEYS
        ]
        publishing = (
            partial(publish, pattern.broker.connection_string(site), "readings", readings)
            for site, readings in hubs.items()
        )
        pattern.at_once(*publishing, partial(pattern.send, "asia/readings", *asia))
        publish(pattern.broker.connection_string("europe"), "readings", [(None, "of no device", {})])
        taking = (partial(pattern.take, "central/readings", 3 * EACH, session_id=key) for key in KEYS)
        taken = dict(zip(KEYS, pattern.at_once(*taking), strict=True))
        for key, messages in taken.items():
            for site in ("america", "europe", "asia"):
                assert list(lines(messages, f"{site}-")) == [f"{site}-{key}-{n}" for n in range(EACH)]
        everything = [message for messages in taken.values() for message in messages]
        assert len({message.message_id for message in everything}) == 3 * EACH * len(KEYS)
        given = {message.message_id for message in everything if message.message_id and "-" in message.message_id}
        assert {f"america-{key}-1" for key in KEYS} | {f"asia-{key}-2" for key in KEYS} <= given
        (rejected,) = pattern.take("central/readings-rejected", 1)
        assert str(rejected) == "of no device"
        assert stamps(rejected)["repl-reject-reason"] == "PropertyMissing"
        assert pattern.active("central/readings") == 0
        assert pattern.app.stop() == 0


def test_a_stream_becomes_a_queue_of_sessions_in_the_order_of_their_keys(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "stream-to-queue", tmp_path, changed=lambda namespace: namespace) as pattern:
        plant = pattern.broker.connection_string("plant")
        keyed = [(key, f"{key}-{n}", {"unit": "bar", "photo": f"{n}"}) for n in range(EACH) for key in KEYS]
        publish(plant, "readings", [*keyed, *((None, f"none-{n}", {}) for n in range(EACH))])
        taking = [partial(pattern.take, "office/readings", EACH, session_id=key) for key in KEYS]
        *sessions, loose = pattern.at_once(*taking, partial(pattern.take, "office/readings-without-key", EACH))
        for key, messages in zip(KEYS, sessions, strict=True):
            assert [str(message) for message in messages] == [f"{key}-{n}" for n in range(EACH)]
            assert {(message.session_id, message.partition_key) for message in messages} == {(key, key)}
            assert [int(stamps(message)["repl-offset"]) for message in messages] == sorted(
                int(stamps(message)["repl-offset"]) for message in messages
            )
        assert sorted(map(str, loose)) == [f"none-{n}" for n in range(EACH)]
        ids = {message.message_id for messages in (*sessions, loose) for message in messages}
        assert len(ids) == EACH * (len(KEYS) + 1), "no event had an id, each message has one of its own"
        assert pattern.active("office/readings-rejected") == 0
        assert pattern.app.stop() == 0


BACK = """---
task: orders-and-back
source: {connection: analysis, hub: orders, consumer_group: readers, binary_properties: false}
routes:
  - target: {connection: office, queue: orders-rejected}
rejects: {connection: office, queue: orders-rejected}
loop_prevention: off
"""


def test_a_queue_becomes_a_stream_and_back_without_losing_fields(tmp_path: Path) -> None:
    folder = copied(EXAMPLES / "queue-to-stream", tmp_path / "and-back")
    with (folder / "tasks/queue-to-stream.yaml").open("a") as file:
        file.write(BACK)
    with RunningPattern(folder, tmp_path) as pattern:
        orders = [
            ServiceBusMessage(
                f"{key}-{n}",
                message_id=f"{key}-{n}",
                session_id=key,
                subject="order",
                correlation_id=key,
                time_to_live=timedelta(minutes=20),
                application_properties={"n": n},
            )
            for n in range(EACH)
            for key in KEYS
        ]
        pattern.send("office/orders", *orders)
        analysis = pattern.broker.connection_string("analysis")
        stream = read(analysis, "orders", len(orders))
        assert bodies_by_key(stream) == {key: [f"{key}-{n}" for n in range(EACH)] for key in KEYS}
        for event in (event for events in stream.values() for event in events):
            properties = event.raw_amqp_message.properties
            assert properties is not None
            assert (properties.subject, event.message_id) == (b"order", event.body_as_str())
            assert event.properties[b"repl-sb-time-to-live"] == 1_200_000
        back = pattern.take("office/orders-rejected", len(orders))
        for message in back:
            key = message.session_id
            assert message.message_id == str(message)
            assert (message.partition_key, message.subject, message.correlation_id) == (None, "order", key)
            assert message.time_to_live == timedelta(minutes=20)
            assert set(message.application_properties or {}) == {
                *(b"n", b"repl-path", b"repl-enqueue-time", b"repl-sequence", b"repl-offset")
            }
        # The applications of the office have their own copy of each, in order.
        taking = (
            partial(pattern.take, "office/orders/Subscriptions/application", EACH, session_id=key) for key in KEYS
        )
        for key, messages in zip(KEYS, pattern.at_once(*taking), strict=True):
            assert [str(message) for message in messages] == [f"{key}-{n}" for n in range(EACH)]
        assert pattern.app.stop() == 0
