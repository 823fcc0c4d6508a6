"""What `$management` refuses, and where its answers are smaller than what was asked for."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.tests.sdk_calls import some
from broker.tests.unit.controller import CONFIG, Controller, ask, new_namespace, put, requester, texts
from busway_broker.config import EntityStatus, QueueConfig
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from busway_broker.core.session_store import SessionStore
from busway_broker.core.times import milliseconds
from shared.amqp import performatives
from shared.amqp.codec import encode
from shared.amqp.sections import data
from shared.amqp.values import NULL, Value, array, int_, list_, long, string, timestamp

UNPROCESSABLE = "The service was unable to process the request; please retry the operation."
PREMIUM = replace(CONFIG, max_message_size=1024 * 1024)


def deleted(peer: Controller, namespace: Namespace, count: int, **more: Value) -> dict[str, Any]:
    """Ask for the deletion of all messages, *count* at once."""
    later = milliseconds(namespace.clock) + 1
    return ask(
        peer,
        None,
        "batch-delete-messages",
        {"message-count": int_(count), "enqueued-time-utc": timestamp(later)} | more,
    )


@pytest.mark.parametrize(("config", "most"), [(CONFIG, 500), (PREMIUM, 4_000)])
def test_a_batch_above_the_limit_of_its_tier_is_unprocessable(config: Any, most: int) -> None:
    # SR65
    namespace = new_namespace(config)
    put(namespace, "target", b"m")
    peer = requester(namespace, "target")
    refused = deleted(peer, namespace, most + 1)
    assert (refused["status"], refused["text"]) == (500, UNPROCESSABLE)
    assert deleted(peer, namespace, 0)["status"] == 400
    assert texts(namespace, "target") == [b"m"]
    assert deleted(peer, namespace, most)["message-count"] == 1
    assert texts(namespace, "target") == []


def test_who_asks_for_many_deletes_fewer() -> None:
    # SR65
    namespace = new_namespace()
    put(namespace, "target", *[b"%d" % number for number in range(450)])
    peer = requester(namespace, "target")
    assert [deleted(peer, namespace, 400)["message-count"] for _ in range(3)] == [300, 150, 0]


def test_a_batch_is_deleted_of_one_session() -> None:
    # SR67
    namespace = new_namespace()
    for session in ("a", "b", "a"):
        properties = b"\x00\x53\x73" + encode(list_([*[NULL] * 10, string(session)]))
        namespace.queue("s").publish(read_content(properties + data(b"m")))
    peer = requester(namespace, "s")
    assert deleted(peer, namespace, 10)["status"] == 501
    assert deleted(peer, namespace, 10, **{"session-id": string("a")})["message-count"] == 2
    assert [message.content.session_id for message in namespace.store("s").messages.values()] == ["b"]


def test_an_entity_that_takes_no_messages_shows_none() -> None:
    # SR32
    queues = tuple(replace(queue, status=EntityStatus.SEND_DISABLED) for queue in CONFIG.queues)
    peer = requester(new_namespace(replace(CONFIG, queues=queues)), "target")
    peeked = ask(peer, None, "peek-message", {"from-sequence-number": long(1), "message-count": int_(1)})
    cancelled = ask(peer, None, "cancel-scheduled-message", {"sequence-numbers": array(0x81, [Value(0x81, 1)])})
    text = "Messaging entity 'target' is currently disabled for Send operations."
    assert [(each["status"], each["text"]) for each in (peeked, cancelled)] == [(403, text)] * 2


def test_a_session_whose_state_was_set_at_the_time_itself_is_listed() -> None:
    # SR64
    namespace = new_namespace(replace(CONFIG, queues=(QueueConfig(name="s", requires_session=True),)))
    store, set_at = namespace.store("s"), milliseconds(namespace.clock)
    assert isinstance(store, SessionStore)
    store.restore_session("a", b"state", set_at)
    peer = requester(namespace, "s")

    def listed(since: int) -> Any:
        asked = {"last-updated-time": timestamp(since), "skip": int_(0), "top": int_(10)}
        return ask(peer, None, "get-message-sessions", asked).get("sessions-ids", [])

    assert [listed(since) for since in (set_at - 1, set_at, set_at + 1)] == [["a"], ["a"], []]


@pytest.mark.parametrize(
    ("path", "operation", "counts"),
    [
        ("target", "peek-message", ("message-count",)),
        ("s", "get-message-sessions", ("skip", "top")),
        ("topic/Subscriptions/one", "enumerate-rules", ("skip", "top")),
    ],
)
def test_a_count_is_not_negative_nor_larger_than_an_int(path: str, operation: str, counts: tuple[str, ...]) -> None:
    peer, others = requester(new_namespace(), path), ("from-sequence-number", "last-updated-time", *counts)
    for wrong in (-1, 2**31):
        answer = ask(peer, None, operation, dict.fromkeys(others, int_(1)) | dict.fromkeys(counts, long(wrong)))
        assert (answer["status"], f"got {wrong}, expected 0 to" in answer["text"]) == (400, True)


def test_what_a_request_names_twice_is_done_once() -> None:
    namespace = new_namespace()
    put(namespace, "target", b"a", b"b")
    peer, store = requester(namespace, "target"), namespace.store("target")
    peer.receiver("target")

    def settle(how: str, number: int) -> Any:
        token = Value(0x98, UUID(bytes_le=some(store.messages[number].lock_token)))
        settled = {"disposition-status": string(how), "lock-tokens": array(0x98, [token] * 2)}
        return ask(peer, None, "update-disposition", settled)["status"]

    assert (settle("completed", 1), settle("defered", 2)) == (200, 200)
    twice = {"sequence-numbers": array(0x81, [Value(0x81, 2)] * 2), "receiver-settle-mode": Value(0x70, 0)}
    assert ask(peer, None, "receive-by-sequence-number", twice)["status"] == 404
    assert texts(namespace, "target") == [b"b"]
    later = replace(read_content(data(b"later")), scheduled_enqueue_time=2**42)
    number = namespace.queue("target").incoming.schedule(later)
    twice = {"sequence-numbers": array(0x81, [Value(0x81, number)] * 2)}
    assert ask(peer, None, "cancel-scheduled-message", twice)["status"] == 200


def test_requests_about_a_missing_subscription_are_not_answered() -> None:
    """SS22: azure-sdk-for-net 43492."""
    peer = Controller(new_namespace())
    assert peer.receiver("topic/Subscriptions/none/$management")[1] == []
    _, refused = peer.receiver("none/$management")
    assert [code for _, code, *_ in refused] == [performatives.ATTACH, performatives.DETACH]
    _, refused = peer.receiver("topic/Subscriptions/none")
    assert [code for _, code, *_ in refused] == [performatives.ATTACH, performatives.DETACH]
