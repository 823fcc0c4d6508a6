"""What the messages of a topic and of a queue take of its size (azure-service-bus-java 301; Service Bus quotas)."""

from datetime import timedelta

import pytest

from broker.tests.unit import namespaces
from broker.tests.unit.namespaces import namespace_of, take_all
from busway_broker.config import QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.administration import Administration
from busway_broker.core.namespace import Namespace
from busway_broker.core.properties import why
from busway_broker.errors import LinkRefusal
from shared.clock import ManualClock

MEGABYTE = 1024 * 1024
SUBSCRIPTIONS = tuple(SubscriptionConfig(name=name) for name in ("a", "b", "c"))


def namespace(copy_delay: timedelta = timedelta()) -> Namespace:
    topic = TopicConfig(name="topic", subscriptions=SUBSCRIPTIONS, max_size=1)
    return namespace_of(QueueConfig(name="queue", max_size=3), topic, copy_delay=copy_delay)


def send(found: Namespace, to: str, size: int) -> None:
    namespaces.send(found, to, "m", body=bytes(size))


def settle(found: Namespace, subscription: str, *, dead_letters: bool = False) -> None:
    path = f"topic/Subscriptions/{subscription}"
    (token,) = take_all(found, path)
    if dead_letters:
        found.store(path).dead_letter(token, why("reason", ""))
    else:
        found.store(path).complete(token)


def test_the_copies_of_a_message_count_once_until_the_last_has_left() -> None:
    found = namespace()
    topic = found.topic("topic")
    send(found, "topic", 600 * 1024)
    assert 600 * 1024 < topic.size < 601 * 1024
    full = topic.size
    settle(found, "a")
    assert topic.size == full
    settle(found, "b", dead_letters=True)
    assert full <= topic.size < full + 1024
    Administration(found).delete_subscription("topic", "c")
    assert topic.size > 0
    Administration(found).delete_subscription("topic", "b")
    assert topic.size == 0


def test_a_topic_takes_as_many_messages_as_a_queue_of_its_size() -> None:
    found = namespace()
    for _ in range(11):
        send(found, "topic", 100 * 1024)
    with pytest.raises(LinkRefusal, match="maximum entity size"):
        send(found, "topic", 1)


def test_what_a_topic_has_not_distributed_yet_takes_its_size() -> None:
    found = namespace(timedelta(seconds=5))
    topic = found.topic("topic")
    send(found, "topic", 1000)
    size = topic.size
    assert size > 1000
    assert isinstance(found.clock, ManualClock)
    found.clock.advance(5)
    found.advance()
    assert topic.size == size
    for each in "abc":
        settle(found, each)
    assert topic.size == 0


def test_a_large_message_counts_twice_in_a_queue_and_once_more_than_its_copies_in_a_topic() -> None:
    found = namespace()
    send(found, "queue", 2 * MEGABYTE)
    assert 4 * MEGABYTE < found.queue("queue").size < 4 * MEGABYTE + 1024
    send(found, "topic", 2 * MEGABYTE)
    assert 8 * MEGABYTE < found.topic("topic").size < 8 * MEGABYTE + 1024
    settle(found, "a")
    assert 6 * MEGABYTE < found.topic("topic").size < 6 * MEGABYTE + 1024
