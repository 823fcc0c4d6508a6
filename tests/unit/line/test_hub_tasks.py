"""Partitions and keys of event hubs in the pipeline."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from host.dotnet_message import reencode
from shared.amqp.values import Value, binary, int_, long, string, uint
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import KEEP_PARTITION, Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.kafka_key import kafka_key_of
from shared.message.mapping import event_into_message, message_into_event, restore_event
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import Outcome, Outgoing
from tests import messages
from tests.fakes import (
    SOMEWHERE,
    JournalInMemory,
    OutputThatAccepts,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import delivered

DAY = 86_400_000  # milliseconds


class Hub(OutputThatAccepts):
    """A hub that at its first call cannot accept the messages with one key."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow: str | None = slow

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        self.timeouts.append(timeout_seconds)
        answers: list[BuswayError | None] = []
        for message in messages:
            if message.partition_key == self._slow:
                answers.append(TargetUnavailable("east/hub: busy"))
            else:
                self.accepted.setdefault(entity, []).append(message)
                answers.append(None)
        self.calls.append(len(messages))
        self._slow = None
        return answers


def task_to(target: Target, **options: Any) -> Task:
    rejects = Target(OutputThatAccepts(), "west", "rejected", event_into_message)
    origin = Origin("west", "telemetry")
    task = Task("copy", origin, (), Router([Route(target)]), rejects, Keep(), None, restore=restore_event)
    return replace(task, **options)


def run(task: Task, *batch: bytes, partition: str | None = "3") -> Counter[Outcome]:
    clock = clock_at_delivery()
    return asyncio.run(Pipeline(task, JournalInMemory(), clock, sleep_by(clock)).run(batch, partition))


def event(number: int, key: str) -> bytes:
    return delivered(number, annotated={"x-opt-partition-key": string(key)})


def test_waiting_key_delays_no_other_key_and_keeps_its_order() -> None:
    hub = Hub(slow="slow")
    batch = [event(number, "slow" if number % 2 else "fast") for number in range(1, 7)]
    assert run(task_to(Target(hub, "east", "hub")), *batch) == {Outcome.SENT: 6}
    assert hub.ids("hub") == ["m-2", "m-4", "m-6", "m-1", "m-3", "m-5"]
    assert hub.calls == [6, 3], "what was accepted is not sent again"


def test_partition_keep_sends_to_the_partition_of_the_batch() -> None:
    hub = OutputThatAccepts()
    run(task_to(Target(hub, "east", "hub", partition=KEEP_PARTITION)), event(1, "k"))
    run(task_to(Target(hub, "east", "hub", partition="0")), event(2, "k"))
    assert [message.partition for message in hub.accepted["hub"]] == ["3", "0"]


def test_a_batch_without_a_partition_from_the_host_is_not_sent() -> None:
    hub = OutputThatAccepts()
    with pytest.raises(TargetRefused, match="did not name the partition of the event"):
        run(task_to(Target(hub, "east", "hub", partition=KEEP_PARTITION)), event(1, "k"), partition=None)
    with pytest.raises(TargetRefused, match="did not name the partition of the batch"):
        run(task_to(Target(hub, "east", "hub"), partitions=frozenset("3")), event(1, "k"), partition=None)
    assert hub.accepted == {}


@pytest.mark.parametrize(("partition", "sent"), [("3", 1), ("0", 0), ("33", 0)])
def test_a_task_for_some_partitions_sends_and_journals_only_their_events(partition: str, sent: int) -> None:
    hub = OutputThatAccepts()
    outcomes = run(
        task_to(Target(hub, "east", "hub"), partitions=frozenset({"3", "5"})), event(1, "k"), partition=partition
    )
    assert outcomes.total() == len(hub.accepted.get("hub", [])) == sent


def refuses_binary(message: Outgoing) -> bool:
    found = Message.received(message.content, SOMEWHERE).application_property("photo")
    return found is not None and found.kind == "binary"


def test_a_rejected_event_is_converted_to_a_message_that_rejects_accepts() -> None:
    """A queue accepts no binary property: unconverted, the event could only be sent wrapped."""
    rejected = OutputThatRejects(refuses_binary)
    target = Target(OutputThatRejects(lambda _: True), "east", "hub")
    rejects = Target(rejected, "west", "rejected", event_into_message)
    assert run(task_to(target, rejects=rejects), delivered(1, named={"photo": binary(b"\xff")})) == {
        Outcome.REJECTED: 1
    }
    (message,) = rejected.messages("rejected")
    assert message.application_property("photo") == string("/w==")
    assert message.body == b"body"


def test_an_event_that_cannot_be_restored_is_rejected_with_its_sequence_number() -> None:
    journal = JournalInMemory()
    clock = clock_at_delivery()
    task = task_to(Target(OutputThatIsDown(), "east", "hub"))
    batch = [delivered(7, named={"repl-sb-time-to-live": string("soon")})]
    asyncio.run(Pipeline(task, journal, clock, sleep_by(clock)).run(batch, "3"))
    (record,) = journal.records
    assert (record.outcome, record.arrival.sequence_number) == (Outcome.REJECTED, 7)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("no base64!", "base64"), ("AA==", "gzip"), ("8A==", "amqp+base64"), ("/w=", "base64")],
)
def test_an_encoded_property_that_was_changed_rejects_its_message(text: str, encoding: str) -> None:
    message = Message.received(
        delivered(1, named={"photo": string(text), "repl-encoding-photo": string(encoding)}), SOMEWHERE
    )
    with pytest.raises(MessageRejected):
        message_into_event(message)


def test_an_encoded_property_that_was_removed_leaves_no_trace() -> None:
    message = messages.message(1, named={"repl-encoding-photo": string("base64")}, origin=SOMEWHERE)
    message_into_event(message)
    assert dict(message.application_properties()).keys() == {"repl-sb-durable"}


@pytest.mark.parametrize("kept", [int_(90_500), long(90_500), uint(90_500)])
def test_a_time_to_live_rewritten_by_another_sdk_still_counts(kept: Value) -> None:
    message = messages.message(1, named={"repl-sb-time-to-live": kept}, origin=SOMEWHERE)
    restore_event(message)
    assert message.time_to_live == 90_500


def test_own_time_to_live_takes_precedence_over_the_kept_one() -> None:
    message = messages.message(1, named={"repl-sb-time-to-live": uint(9)}, time_to_live=70, origin=SOMEWHERE)
    restore_event(message)
    assert message.time_to_live == 70
    assert list(message.application_properties()) == []


@pytest.mark.parametrize("life", [1, 2**32 - 2, 90 * DAY, 10_000 * DAY, None])
def test_a_time_to_live_of_any_length_survives_a_hub(life: int | None) -> None:
    # Azure/azure-sdk-for-net 38875: from 49.7 days on it is the time between two properties of the message.
    message = messages.message(1, origin=SOMEWHERE)
    message.time_to_live = life
    message_into_event(message)
    event = Message.received(message.encode(), SOMEWHERE)
    assert event.sections.header == b""
    restore_event(event)
    returned = Message.received(event.encode(), SOMEWHERE)
    assert returned.time_to_live == life
    assert list(returned.application_properties()) == []


def test_an_iot_hub_event_without_a_key_gets_its_device_as_key() -> None:
    device = {"iothub-connection-device-id": string("d")}
    for annotated, key in ((device, "d"), ({**device, "x-opt-partition-key": string("k")}, "k")):
        message = messages.message(1, annotated=annotated, origin=SOMEWHERE)
        restore_event(message)
        assert message.partition_key == key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (binary(b"press-7"), "press-7"),
        (string("press-7"), "press-7"),
        (binary("日本".encode()), "日本"),
        (binary(b"\xff\x00"), None),
        (binary(b""), None),
        (binary(b"k" * 129), None),
    ],
)
def test_an_event_of_a_kafka_producer_gets_its_key_as_partition_key(key: Value, expected: str | None) -> None:
    message, other = (
        messages.message(number, annotated={"x-opt-kafka-key": key}, origin=SOMEWHERE) for number in (1, 2)
    )
    for each in (message, other):
        restore_event(each)
    assert message.partition_key
    assert message.partition_key == other.partition_key
    assert message.partition_key == (expected or message.partition_key)
    assert message.annotation("x-opt-kafka-key") is None
    # Nothing of it stops Azure's host when a task takes the event from the target.
    reencode(message.encode(), 0)
    if expected is None:
        event_into_message(message)
        message_into_event(message)
        assert isinstance(key.payload, bytes)
        assert kafka_key_of(message.partition_key, message.sections.application_properties) == key.payload


def test_a_kafka_key_does_not_replace_a_partition_key() -> None:
    keys = {"x-opt-kafka-key": binary(b"press-7"), "x-opt-partition-key": string("k")}
    message = messages.message(1, annotated=keys, origin=SOMEWHERE)
    restore_event(message)
    assert message.partition_key == "k"
