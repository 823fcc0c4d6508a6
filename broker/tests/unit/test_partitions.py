"""Partitioned entities: numbers, partitions and order, by a clock that only the tests move."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tests.unit.namespaces import START, identity, take_all, wait
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from busway_broker.core.partition_hash import partition_of_key
from busway_broker.core.properties import why
from busway_broker.core.store import MessageStore
from busway_broker.storage.database import StorageError
from busway_broker.storage.namespace_storage import NamespaceStorage
from shared.amqp.values import string, timestamp
from shared.clock import ManualClock
from tests.messages import delivered

PARTS = QueueConfig(name="parts", enable_partitioning=True)
CONFIG = NamespaceConfig(
    name="n",
    queues=(
        PARTS,
        QueueConfig(name="unique", enable_partitioning=True, requires_duplicate_detection=True),
        QueueConfig(name="sessions", enable_partitioning=True, requires_session=True),
    ),
    topics=(TopicConfig(name="t", enable_partitioning=True, subscriptions=(SubscriptionConfig(name="all"),)),),
)


@pytest.fixture
def namespace() -> Namespace:
    return Namespace(CONFIG, ManualClock(START))


def send(namespace: Namespace, path: str, message_id: str, key: str | None = None, **options: Any) -> None:
    annotated = {} if key is None else {"x-opt-partition-key": string(key)}
    annotated |= options.pop("annotated", {})
    namespace.target(path).publish(read_content(delivered(None, message_id=message_id, annotated=annotated, **options)))


def by_partition(store: MessageStore) -> dict[int, list[int]]:
    """Return the numbers in each partition, in the order in which they are peeked."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in store.peek(0):
        found[message.sequence_number >> 48].append(message.sequence_number & (1 << 48) - 1)
    return found


@given(st.lists(st.one_of(st.none(), st.text(min_size=1, max_size=3)), max_size=60))
def test_the_numbers_of_each_partition_start_at_one_and_have_no_gaps(keys: list[str | None]) -> None:
    namespace = Namespace(CONFIG, ManualClock(START))
    for number, key in enumerate(keys):
        send(namespace, "parts", str(number), key)
    for numbers in by_partition(namespace.store("parts")).values():
        assert numbers == [*range(1, len(numbers) + 1)]
    partitions = defaultdict(set)
    for message in namespace.store("parts").peek(0):
        partitions[keys[int(identity(message))]].add(message.sequence_number >> 48)
    assert all(len(found) == 1 for key, found in partitions.items() if key is not None)


def test_messages_without_a_key_go_to_all_sixteen_partitions(namespace: Namespace) -> None:
    for number in range(32):
        send(namespace, "parts", str(number))
    assert by_partition(namespace.store("parts")) == {partition: [1, 2] for partition in range(16)}


def test_a_session_is_in_one_partition_and_in_order(namespace: Namespace) -> None:
    for number in range(40):
        send(namespace, "sessions", str(number), session_id=f"s-{number % 4}")
    for session in range(4):
        found = [each for each in namespace.store("sessions").peek(0) if each.content.session_id == f"s-{session}"]
        assert len({each.sequence_number >> 48 for each in found}) == 1
        assert [identity(each) for each in found] == [str(number) for number in range(session, 40, 4)]


def test_messages_are_received_in_order_within_a_partition_and_not_across(namespace: Namespace) -> None:
    for number in range(40):
        send(namespace, "parts", str(number), f"key-{number % 5}")
    order = {message.lock_token: int(identity(message)) for message in namespace.store("parts").messages.values()}
    assert set(order) == {None}
    tokens = take_all(namespace, "parts")
    order = {message.lock_token: int(identity(message)) for message in namespace.store("parts").messages.values()}
    taken = [order[token] for token in tokens]
    assert sorted(taken) == [*range(40)] != taken
    for key in range(5):
        assert [number for number in taken if number % 5 == key] == [*range(key, 40, 5)]


def test_no_partition_waits_for_others_that_are_never_empty(namespace: Namespace) -> None:
    for number in range(16):
        send(namespace, "parts", str(number))
    store = namespace.store("parts")
    for number in range(16, 200):
        (first, *rest) = take_all(namespace, "parts")
        store.complete(first)
        for token in rest:
            store.release(token)
        send(namespace, "parts", str(number), "busy")
    assert not {str(number) for number in range(16)} & {identity(message) for message in store.messages.values()}


def test_a_dead_letter_and_a_copy_stay_in_the_partition(namespace: Namespace) -> None:
    for number in range(20):
        send(namespace, "parts", str(number))
        send(namespace, "t", str(number))
    copies = namespace.store("t/subscriptions/all")
    originals = {identity(each): each.sequence_number for each in namespace.store("parts").peek(0)}
    for path in ("parts", "t/subscriptions/all"):
        for token in take_all(namespace, path):
            namespace.store(path).dead_letter(token, why("reason", "because"))
    assert not copies.messages
    for path in ("parts", "t/subscriptions/all"):
        dead = [*namespace.store(f"{path}/$deadletterqueue").peek(0)]
        assert len(dead) == 20
        assert all(each.sequence_number >> 48 == each.original_number >> 48 for each in dead)
        assert {identity(each): each.original_number for each in dead} == originals


def test_equal_ids_are_duplicates_only_with_equal_keys(namespace: Namespace) -> None:
    for key in (None, None, "a", "a", "b"):
        send(namespace, "unique", "same", key)
    assert len(namespace.store("unique").messages) == 3


def test_a_scheduled_message_has_a_number_of_its_partition_twice(namespace: Namespace) -> None:
    due = {"x-opt-scheduled-enqueue-time": timestamp(int(START.timestamp() * 1000) + 1000)}
    for number in range(8):
        send(namespace, "parts", str(number), "key", annotated=due)
    queue = namespace.queue("parts")
    scheduled = [each.sequence_number for each in queue.peek(0)]
    assert scheduled == sorted(queue.incoming.scheduled)
    wait(namespace, 2)
    ((partition, numbers),) = by_partition(namespace.store("parts")).items()
    assert numbers == [*range(9, 17)]
    assert {each >> 48 for each in scheduled} == {partition}


def test_a_released_message_goes_behind_those_of_its_partition() -> None:
    config = NamespaceConfig(name="n", queues=(PARTS,), released_go_last=True)
    namespace = Namespace(config, ManualClock(START))
    send(namespace, "parts", "first", "key")
    (token,) = take_all(namespace, "parts")
    send(namespace, "parts", "second", "key")
    namespace.store("parts").release(token)
    tokens = take_all(namespace, "parts")
    found = {message.lock_token: identity(message) for message in namespace.store("parts").messages.values()}
    assert [found[token] for token in tokens] == ["second", "first"]


def test_a_message_that_is_delivered_late_has_the_lock_of_its_group() -> None:
    # SR18
    clock = ManualClock(START)
    namespace = Namespace(NamespaceConfig(name="n", queues=(PARTS,), lock_group_size=3), clock)
    ends: list[int] = []
    for number in range(4):
        send(namespace, "parts", str(number), "key")
        take_all(namespace, "parts")
        ends += [message.locked_until for message in namespace.store("parts").messages.values()][-1:]
        clock.advance(25)  # of a lock of 60 s
    assert [end - ends[0] for end in ends] == [0, 0, 0, 75_000]
    namespace.advance()
    found = {identity(message): message.delivery_count for message in namespace.store("parts").messages.values()}
    assert found == {"0": 1, "1": 1, "2": 1, "3": 0}


def test_numbers_continue_in_each_partition_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with NamespaceStorage(tmp_path, CONFIG, clock, is_synced=False) as storage:
        for number in range(40):
            send(storage.namespace, "parts", str(number), f"key-{number % 5}")
            send(storage.namespace, "t", str(number), f"key-{number % 5}")
        for token in take_all(storage.namespace, "parts"):
            storage.namespace.store("parts").complete(token)
        last = [*storage.namespace.store("parts").numbers.last]
        topic = [*storage.namespace.topic("t").incoming.numbers.last]
    with NamespaceStorage(tmp_path, CONFIG, clock, is_synced=False) as storage:
        store = storage.namespace.store("parts")
        assert store.numbers.last == last
        assert storage.namespace.topic("t").incoming.numbers.last == topic
        send(storage.namespace, "parts", "next", "key-1")
        (message,) = store.peek(0)
        assert message.sequence_number == last[message.sequence_number >> 48] + 1


def test_partitioning_of_a_stored_entity_cannot_change(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with NamespaceStorage(tmp_path, CONFIG, clock, is_synced=False):
        pass
    other = NamespaceConfig(name="n", queues=(QueueConfig(name="parts"),))
    with pytest.raises(StorageError, match="enable_partitioning is False, expected True"):
        NamespaceStorage(tmp_path, other, clock, is_synced=False)


@pytest.mark.parametrize(
    ("key", "of_four", "of_five"),
    [
        *(("", 0, 0), ("key-0", 0, 2), ("key-1", 2, 1), ("key-2", 1, 1), ("key-3", 3, 0), ("ü", 1, 1), ("日本", 0, 3)),
        *(("7149583486996073602", 1, 2), ("FWfAT", 1, 1), ("alphabet", 2, 3)),
    ],
)
def test_a_key_has_the_partition_that_the_sdks_compute(key: str, of_four: int, of_five: int) -> None:
    # Answers of partitionKeyToIdMapper in @azure/event-hubs 6: its remainder truncates toward zero.
    assert (partition_of_key(key, 4), partition_of_key(key, 5)) == (of_four, of_five)
