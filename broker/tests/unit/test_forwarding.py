"""What entities pass on, by the public accounts of the service (docs/contribute/service-bus-facts.md)."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.tests.unit.namespaces import namespace_of, wait
from busway_broker.config import EntityStatus, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.administration import Administration
from busway_broker.core.content import read_content
from busway_broker.core.message import StoredMessage
from busway_broker.core.namespace import Namespace
from busway_broker.core.properties import why
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.messages import delivered

TARGET = QueueConfig(name="target", max_size=1)
MISSING = "The transfer destination entity does not exist."


def namespace(target: QueueConfig = TARGET, **options: str) -> Namespace:
    source = QueueConfig(name="source", **(options or {"forward_to": "target"}))  # type: ignore[arg-type] # forward_to alone
    topic = TopicConfig(name="topic", subscriptions=(SubscriptionConfig(name="s", forward_to="target"),))
    return namespace_of(source, target, topic)


def send(found: Namespace, *names: str, to: str = "source", body: bytes = b"x") -> None:
    for name in names:
        found.target(to).publish(read_content(delivered(None, message_id=name, body=body)))


def names(found: Namespace, path: str) -> list[str]:
    return [_message(each).message_id.payload for each in found.store(path).peek(0)]  # type: ignore[union-attr,misc] # every message has a text


def reasons(found: Namespace, path: str) -> set[object]:
    letters = [_message(each).application_property("DeadLetterReason") for each in found.store(path).peek(0)]
    return {None if letter is None else letter.payload for letter in letters}


def _message(stored: StoredMessage) -> Message:
    return Message.received(stored.encode(), Origin("n", "q"))


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_a_disabled_target_gets_messages_all_the_same(status: EntityStatus) -> None:
    found = namespace(replace(TARGET, status=status))
    send(found, "a")
    assert names(found, "target") == ["a"]


def _gone(found: Namespace) -> None:
    Administration(found).delete("target")


def _created_again(found: Namespace) -> None:
    _gone(found)
    Administration(found).create_queue(TARGET)


@pytest.mark.parametrize("change", [_gone, _created_again])
@pytest.mark.parametrize(("to", "path"), [("source", "source"), ("topic", "topic/Subscriptions/s")])
def test_what_the_target_cannot_get_any_more_is_a_dead_letter_of_the_source(
    change: Callable[[Namespace], None], to: str, path: str
) -> None:
    found = namespace()
    change(found)
    send(found, "a", to=to)
    assert (names(found, path), names(found, f"{path}/$DeadLetterQueue")) == ([], ["a"])
    assert reasons(found, f"{path}/$DeadLetterQueue") == {MISSING}
    assert names(found, f"{path}/$Transfer/$DeadLetterQueue") == []


def test_an_update_of_the_source_finds_the_new_target() -> None:
    found = namespace()
    _created_again(found)
    found.queue("source").reconfigure(found.queue("source").config)
    send(found, "a")
    assert names(found, "target") == ["a"]


def test_a_message_without_a_session_is_a_dead_letter_of_the_source() -> None:
    found = namespace(replace(TARGET, requires_session=True))
    send(found, "a")
    assert reasons(found, "source/$DeadLetterQueue") == {"Session ID is null."}


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"forward_to": "target"}, "source"),
        ({"forward_dead_lettered_messages_to": "target"}, "source/$DeadLetterQueue"),
    ],
)
def test_a_full_target_gets_the_rest_in_order_once_it_has_room(options: dict[str, str], path: str) -> None:
    found = namespace(TARGET, **options)
    expected = [f"m-{number}" for number in range(20)]
    for name in expected:
        if path == "source":
            send(found, name, body=bytes(100_000))
        else:
            content = read_content(delivered(None, message_id=name, body=bytes(100_000)))
            found.queue("source").backlog.dead_letter(_stored(content), why("why", ""))
    arrived = names(found, "target")
    assert 0 < len(arrived) < 20
    assert arrived + names(found, path) == expected
    for _ in range(5):
        store = found.store("target")
        for number in list(store.messages):
            store.forget(number)
        wait(found, 2)
        arrived += names(found, "target")
    assert (arrived, names(found, path)) == (expected, [])


_NUMBERS = itertools.count(1)


def _stored(content: object) -> StoredMessage:
    return StoredMessage(content, next(_NUMBERS), 0, 0, None)  # type: ignore[arg-type] # what read_content returns


def test_a_message_that_was_forwarded_too_often_stays_in_the_dead_letter_queue() -> None:
    found = namespace(forward_to="source", forward_dead_lettered_messages_to="target")
    send(found, "a")
    assert (names(found, "source/$DeadLetterQueue"), names(found, "target")) == (["a"], [])
    assert reasons(found, "source/$DeadLetterQueue") == {"MaxTransferHopCountExceeded"}
