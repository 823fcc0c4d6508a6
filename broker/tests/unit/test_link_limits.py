"""How long links, connections and session locks last, and how much they carry: what was seen on Azure, by fact id."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from broker.tests.client_frames import CLOSED, DETACHED, codes, error_and_text, error_of
from broker.tests.unit.peer import Peer
from busway_broker.config import LinkLimits, QueueConfig
from busway_broker.core.administration import Administration
from busway_broker.core.session_store import SessionStore
from busway_broker.core.timers import Timers
from busway_broker.errors import Refusal
from busway_broker.faults import Effect, Fault, Operation
from shared.amqp import performatives
from shared.amqp.codec import encode
from shared.amqp.dispositions import disposition
from shared.amqp.fields import compose_list, text_field
from shared.amqp.frames import EMPTY_FRAME, compose
from shared.amqp.performatives import ACCEPTED_STATE
from shared.amqp.sections import data
from shared.amqp.values import NULL, Value, map_, string, symbol

HOUR = timedelta(hours=1)
FORCED = "amqp:link:detach-forced"
PARTITION = "h/consumergroups/$default/partitions/0"


def session(session_id: str | None) -> Value:
    return map_([(symbol("com.microsoft:session-filter"), NULL if session_id is None else string(session_id))])


def detach(handle: int) -> bytes:
    return compose(0, performatives.detach(handle, closed=True))


def opened(*links: tuple[bool, str], **options: Any) -> Peer:
    """Return a client with links on the handles from 0 on: whether it receives, and the address."""
    peer = Peer(window=10_000, **options)
    peer.open()
    for handle, (receives, address) in enumerate(links):
        peer.say(attach(peer, handle, receives, address))
    return peer


def attach(peer: Peer, handle: int, receives: bool, address: str) -> bytes:
    filters = session("a") if address == "s" and receives else NULL
    return peer.attach(handle, receives=receives, address=address, filters=filters)


def sessions_of(peer: Peer) -> SessionStore:
    store = peer.namespace.store("s")
    assert isinstance(store, SessionStore)
    return store


def message_of_a_session() -> bytes:
    return compose_list(0x73, [*[b"\x40"] * 10, text_field("a")]) + data(b"x")


def settled(number: int) -> bytes:
    return compose(0, disposition(role=True, delivery_id=number, state=ACCEPTED_STATE))


def request(peer: Peer, handle: int, **properties: str) -> bytes:
    pairs = map_((string(name.replace("_", "-")), string(text)) for name, text in properties.items())
    empty = b"\x00\x53\x77\xc1\x01\x00"
    return peer.transfer(handle, 0, b"\x00\x53\x74" + encode(pairs) + empty)


@pytest.mark.parametrize(
    ("link", "details"),
    [
        ((True, "q"), "consumer(link0). Details: AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00."),
        ((True, "s"), "consumer(link0). Details: AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00."),
        ((False, "q"), "publisher(link0). Details: AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00."),
        ((True, "q/$management"), None),
        ((False, "$cbs"), None),
        ((True, PARTITION), None),
    ],
)
def test_a_link_without_activity_ends_after_ten_minutes(link: tuple[bool, str], details: str | None) -> None:
    """SR4, SR37; the session's lock goes with its link (SR2)."""
    peer = opened(links=LinkLimits(connection_idle=None))
    peer.namespace.queue("s").reconfigure(QueueConfig(name="s", requires_session=True, lock_duration=HOUR))
    peer.say(attach(peer, 0, *link))
    assert peer.wait(599.9) == []
    heard = peer.wait(0.1)
    if details is None:
        assert heard == []
    else:
        assert error_and_text(heard, DETACHED) == (FORCED, f"The link 'link-0' is force detached. Code: {details}")
    assert not sessions_of(peer)._held


@pytest.mark.parametrize(
    ("act", "keeps"),
    [
        (lambda peer: peer.flow(0, 5), True),
        (lambda peer: peer.transfer(1, 0, data(b"x")), True),
        (lambda peer: request(peer, 2, operation="com.microsoft:peek-message", associated_link_name="link-0"), True),
        (lambda peer: request(peer, 2, operation="com.microsoft:peek-message", associated_link_name="other"), False),
        (lambda peer: request(peer, 2, operation="com.microsoft:peek-message"), False),
        (lambda _: EMPTY_FRAME, False),
    ],
)
def test_activity_keeps_a_link_and_heartbeats_do_not(act: Callable[[Peer], bytes], keeps: bool) -> None:
    """SR4, and SR16: of the requests to `$management` only those that name the link."""
    peer = opened((True, "q"), (False, "q"), (False, "q/$management"), (True, "q/$management"))
    peer.say(peer.flow(0, 1))
    peer.wait(500)
    peer.say(act(peer))
    ended = [fields[0] for _, code, fields, _ in peer.wait(100) if code == DETACHED]
    assert (0 not in ended or 1 not in ended) == keeps
    assert {0, 1} <= {*ended, *(fields[0] for _, code, fields, _ in peer.wait(500) if code == DETACHED)}


def test_deliveries_and_settlements_are_activity_and_a_held_message_stays_locked() -> None:
    """SR4; SR5: the message keeps its lock when the link ends, but it cannot be settled there."""
    peer = opened((True, "q"))
    peer.namespace.queue("q").reconfigure(QueueConfig(name="q", lock_duration=HOUR))
    peer.say(peer.flow(0, 9))
    peer.wait(400)
    peer.send(b"one", b"two")
    assert codes(peer.wait(400)) == []
    peer.say(settled(0))
    assert codes(peer.wait(400)) == [DETACHED]  # the sender's
    assert error_of(peer.wait(200), DETACHED) == FORCED
    peer.say(settled(1))
    (held,) = peer.namespace.store("q").messages.values()
    assert held.lock_token is not None


def test_what_a_closed_receiver_has_not_settled_stays_locked_and_counts() -> None:
    """SR23: prefetched messages too; clients have to release them first, as azure-servicebus 7.15 does."""
    peer = opened((True, "q"))
    peer.say(peer.flow(0, 2))
    peer.send(b"one", b"two")
    peer.say(settled(0), detach(0))
    (held,) = peer.namespace.store("q").messages.values()
    assert (held.delivery_count, held.lock_token is None) == (0, False)
    peer.wait(60)
    assert (held.delivery_count, held.lock_token is None) == (1, True)


@pytest.mark.parametrize(
    ("links", "closed_after"),
    [
        ((), 60),
        (((True, "unknown"),), 60),
        (((False, "$cbs"), (True, "$cbs")), 60),
        (((True, "q"),), 300),
        (((True, PARTITION),), 300),
    ],
)
def test_a_connection_without_links_is_closed(links: tuple[tuple[bool, str], ...], closed_after: int) -> None:
    """SR38: five minutes after its last link has ended, a minute after the open; `$cbs` links do not count."""
    peer = opened(*links)
    if closed_after == 300:
        assert codes(peer.wait(100)) == []
        peer.say(detach(0))
    assert peer.wait(closed_after - 0.1) == []
    text = f"because it did not have any active links in the past {closed_after}000 milliseconds."
    closed = error_and_text(peer.wait(0.1), CLOSED)
    assert closed == ("amqp:connection:forced", f"The connection was closed by container 'LinkTracker' {text}")


def test_what_has_ended_leaves_no_timers() -> None:
    peer = opened()
    for _ in range(10):
        peer.say(*(peer.attach(number, receives=True, address="q") for number in range(300)))
        peer.say(*map(detach, range(300)))
    peer.connection.release()
    assert not peer.namespace.timers._timers
    assert len(peer.namespace.timers._heap) < 2000


def test_a_timer_can_be_cancelled_and_set_again() -> None:
    class Owner:
        def advance(self, now: int) -> None:
            fired.append(now)

    fired: list[int] = []
    timers, owner = Timers(), Owner()
    timers.set(owner, 10)
    timers.set(owner, 5)
    timers.forget(owner)
    timers.set(owner, 20)
    for now in (5, 10, 20, 30):
        timers.advance(now)
    assert fired == [20]


def update(peer: Peer, **changes: Any) -> list[Any]:
    Administration(peer.namespace).update(peer.namespace.queue("q"), QueueConfig(name="q", **changes))
    return peer.heard()


def test_an_update_of_an_entity_ends_its_links_except_to_its_management() -> None:
    """SR8: what is in hand stays locked; a change of the maximum message size alone is reported to end nothing."""
    peer = opened((True, "q"), (False, "q"), (False, "q/$management"), (True, "s"))
    peer.say(peer.flow(0, 1), peer.transfer(1, 0, data(b"x")))
    assert update(peer, max_message_size=2**20) == []
    heard = update(peer, max_delivery_count=5)
    assert {fields[0] for _, _, fields, _ in heard} == {0, 1}
    text = "The link 'link-0' is force detached. Code: consumer(link0). Details: InnerMessageReceiver was closed."
    assert error_and_text([each for each in heard if each[2][0] == 0], DETACHED) == (FORCED, text)
    (held,) = peer.namespace.store("q").messages.values()
    assert held.lock_token is not None


def test_updates_end_no_links_if_the_namespace_says_so() -> None:
    peer = opened((True, "q"), links=LinkLimits(updates_detach=False))
    assert update(peer, max_delivery_count=5) == []


def test_a_session_can_be_accepted_some_time_after_its_link_has_ended() -> None:
    """SR28, for a session by name and for the next available one."""
    peer = opened((True, "s"), (False, "s"))
    peer.say(peer.transfer(1, 0, message_of_a_session()), detach(0))
    refused = peer.say(peer.attach(2, receives=True, address="s", filters=session("a")))
    text = "The requested session 'a' cannot be accepted. It may be locked by another receiver."
    assert error_and_text(refused, DETACHED) == ("com.microsoft:session-cannot-be-locked", text)
    assert peer.say(peer.attach(3, receives=True, address="s", filters=session(None))) == []
    assert peer.wait(0.09) == []
    assert codes(peer.wait(0.01)) == [performatives.ATTACH]


def test_who_waits_for_a_session_and_gives_up_locks_none() -> None:
    """SR41: with a detach; SR73: without one, after 65 s, with the service's text."""
    peer = opened((False, "s"))
    peer.say(*(peer.attach(handle, receives=True, address="s", filters=session(None)) for handle in (1, 2)))
    assert codes(peer.say(detach(1))) == [DETACHED]
    assert peer.wait(64.97) == []
    condition, text = error_and_text(peer.wait(0.01), DETACHED)
    assert condition == "com.microsoft:timeout"
    assert str(text).startswith("The operation did not complete within the allotted timeout of 00:01:04.9800000.")
    assert performatives.ATTACH not in codes(peer.say(peer.transfer(0, 0, message_of_a_session())))
    assert not sessions_of(peer)._held


def test_no_more_is_delivered_when_too_much_is_unsettled() -> None:
    """SR42: a delivery whose lock has expired still counts."""
    peer = opened((True, "q"), links=LinkLimits(max_unsettled=2))
    peer.say(peer.flow(0, 9))
    assert codes(peer.send(b"a", b"b", b"c")).count(performatives.TRANSFER) == 2
    assert peer.wait(60) == []
    assert peer.say(peer.flow(0, 7, delivery_count=2)) == []
    assert codes(peer.say(settled(0))).count(performatives.TRANSFER) == 1
    assert codes(peer.say(detach(0), attach(peer, 1, True, "q"), peer.flow(1, 9))).count(performatives.TRANSFER) == 2


def test_a_connection_has_one_link_to_its_token_node() -> None:
    """azure-event-hubs-node issue 186."""
    peer = opened((False, "$cbs"), (True, "$cbs"))
    heard = peer.say(attach(peer, 2, True, "$cbs"))
    assert error_of(heard, DETACHED) == "amqp:not-allowed"
    peer.say(detach(1))
    heard = peer.say(attach(peer, 3, True, "$cbs"))
    assert DETACHED not in codes(heard)


def test_a_connection_has_a_limited_number_of_tokens() -> None:
    """SR46; a token that replaces one is not one more."""
    peer = Peer(links=LinkLimits(max_tokens=2))
    for audience in ("q", "s", "Q"):
        peer.connection.claims.put("", f"sb://localhost/{audience}")
    with pytest.raises(Refusal, match="maximum number of '2' tokens per connection has been reached"):
        peer.connection.claims.put("", "h")


@pytest.mark.parametrize(
    ("effect", "delay"), [(Effect.LOSE_ACKNOWLEDGEMENT, 0), (Effect.DELAY, 30), (Effect.DROP_CONNECTION, 0)]
)
def test_the_answer_to_a_drain_comes_late_or_never(effect: Effect, delay: float) -> None:
    """SR43: a fault that has to name the operation."""
    peer = opened((True, "q"))
    peer.namespace.faults.add(Fault(effect=effect, operations=frozenset({Operation.DRAIN}), delay=delay))
    assert peer.say(peer.flow(0, 5, drain=True)) == []
    assert codes(peer.wait(30)) == ([performatives.FLOW] if delay else [])
    assert peer.connection.is_closed == (effect is Effect.DROP_CONNECTION)


@pytest.mark.parametrize("operation", [Operation.SEND, Operation.TRANSFER])
def test_a_link_ends_without_an_error(operation: Operation) -> None:
    """SR47: a fault, for sending and for receiving links."""
    peer = opened((True, "q"), (False, "q"))
    fault = Fault(effect=Effect.CLOSE_LINK, operations=frozenset({operation}), condition="")
    peer.namespace.faults.add(fault)
    heard = peer.say(peer.flow(0, 1), peer.transfer(1, 0, data(b"x")))
    (fields,) = [fields for _, code, fields, _ in heard if code == DETACHED]
    assert fields[0] == (1 if operation is Operation.SEND else 0)
    assert fields[2:] in ([], [b"\x40"], [None])
