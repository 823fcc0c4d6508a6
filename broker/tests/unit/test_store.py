"""Locks, order, expiry and sessions, by a clock that only the tests move."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.tests.unit.namespaces import START, Taker, identity, ids_in, join, namespace_of, send, wait
from busway_broker import errors
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.core.properties import why
from busway_broker.core.session_store import SessionStore
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal
from shared.amqp.values import Value, string
from shared.clock import ManualClock

LOCK_SECONDS = 30
MAX_DELIVERY_COUNT = 3


@pytest.fixture
def namespace() -> Namespace:
    lock = dt.timedelta(seconds=LOCK_SECONDS)
    return namespace_of(
        QueueConfig(name="q", lock_duration=lock, max_delivery_count=MAX_DELIVERY_COUNT),
        QueueConfig(name="expiring", lock_duration=lock, dead_lettering_on_message_expiration=True),
        QueueConfig(name="s", lock_duration=lock, requires_session=True),
    )


def test_a_settled_or_expired_lock_cannot_be_used_again(namespace: Namespace) -> None:
    send(namespace, "q", "a", "b")
    taker = join(namespace, "q", 2)
    (first, _), (second, _) = taker.taken
    taker.store.complete(first)
    wait(namespace, LOCK_SECONDS)
    for token in (first, second):
        for settle in (taker.store.complete, taker.store.abandon, taker.store.release, taker.store.renew_lock):
            with pytest.raises(Refusal) as refused:
                settle(token)
            assert refused.value.condition == errors.MESSAGE_LOCK_LOST


def test_a_locked_message_outlives_its_time_to_live_until_the_lock_ends(namespace: Namespace) -> None:
    send(namespace, "expiring", "a", "b", time_to_live=10_000)
    taker = join(namespace, "expiring", 1)
    wait(namespace, 11)
    assert ids_in(namespace, "expiring/$deadletterqueue") == ["b"]
    taker.store.release(taker.taken[0][0])
    assert ids_in(namespace, "expiring/$deadletterqueue") == ["b", "a"]


def test_nothing_expires_in_the_dead_letter_queue_nor_when_deferred(namespace: Namespace) -> None:
    send(namespace, "expiring", "dead", "deferred", time_to_live=40_000)
    taker = join(namespace, "expiring", 2)
    taker.store.dead_letter(taker.taken[0][0], why("why", "because"))
    taker.store.defer(taker.taken[1][0])
    wait(namespace, 3600)
    counts = namespace.counts()["expiring"]
    assert (counts.active, counts.deferred, counts.dead_lettered) == (0, 1, 1)


def lazy(*, expires_lazily: bool = False, deferred_expire: bool = False) -> Namespace:
    queue = QueueConfig(name="q", dead_lettering_on_message_expiration=True)
    sessions = QueueConfig(name="s", requires_session=True, dead_lettering_on_message_expiration=True)
    return namespace_of(queue, sessions, expires_lazily=expires_lazily, deferred_expire=deferred_expire)


def test_an_expired_message_stays_until_somebody_receives() -> None:
    """SR51, SS52: the service need not remove it before, and peeks show it."""
    namespace = lazy(expires_lazily=True)
    send(namespace, "q", "short", "other", time_to_live=10_000)
    send(namespace, "q", "long")
    wait(namespace, 3600)
    assert ids_in(namespace, "q") == ["short", "other", "long"]
    assert [text for _, text in join(namespace, "q", 1).taken] == ["long"]
    assert ids_in(namespace, "q/$deadletterqueue") == ["short", "other"]
    send(namespace, "q", "next", time_to_live=10_000)
    wait(namespace, 11)
    assert ids_in(namespace, "q/$deadletterqueue") == ["short", "other", "next"]


def test_an_expired_message_of_a_session_stays_until_somebody_waits_for_a_session() -> None:
    namespace = lazy(expires_lazily=True)
    send(namespace, "s", "short", time_to_live=10_000, session_id="a")
    wait(namespace, 3600)
    assert ids_in(namespace, "s") == ["short"]
    store = namespace.store("s")
    assert isinstance(store, SessionStore)
    taker = Taker(store, credit=1)
    store.accept_next(taker, 2**50)
    assert (taker.session, ids_in(namespace, "s/$deadletterqueue")) == (None, ["short"])


def test_a_deferred_message_can_expire() -> None:
    """SS24: one user saw it."""
    namespace = lazy(deferred_expire=True)
    send(namespace, "q", "early", "late", time_to_live=40_000)
    taker = join(namespace, "q", 2)
    taker.store.defer(taker.taken[0][0])
    wait(namespace, 41)
    taker.store.defer(taker.taken[1][0])
    assert (ids_in(namespace, "q"), ids_in(namespace, "q/$deadletterqueue")) == ([], ["early", "late"])


def test_cancelling_what_is_not_scheduled_shows_the_number_without_its_upper_bits(namespace: Namespace) -> None:
    """SS54, SR92: nobody can read the number from the text."""
    with pytest.raises(Refusal, match=r": Messages not found\. Missing sequence numbers: 1524$"):
        namespace.queue("q").incoming.cancel([10_696_049_115_006_452])


def test_a_message_in_a_dead_letter_queue_is_not_dead_lettered_again(namespace: Namespace) -> None:
    send(namespace, "q", "a")
    taker = join(namespace, "q", 1)
    taker.store.dead_letter(taker.taken[0][0], why("why", ""))
    dead = join(namespace, "q/$DeadLetterQueue", 1)
    with pytest.raises(Refusal, match="cannot be dead-lettered"):
        dead.store.dead_letter(dead.taken[0][0], why("again", ""))
    for _ in range(2 * MAX_DELIVERY_COUNT):
        dead.credit = 1
        dead.store.abandon(dead.taken[-1][0])
    assert len(dead.taken) == 1 + 2 * MAX_DELIVERY_COUNT
    # SR61
    (stored,) = dead.store.messages.values()
    before = stored.delivery_count
    dead.store.expire_locks()
    assert (stored.lock_token, stored.delivery_count) == (None, before)


def test_consumers_take_turns(namespace: Namespace) -> None:
    one, two = join(namespace, "q", 10), join(namespace, "q", 10)
    send(namespace, "q", "a", "b", "c", "d")
    assert [text for _, text in one.taken] == ["a", "c"]
    assert [text for _, text in two.taken] == ["b", "d"]


def test_an_expired_session_lock_is_taken_from_its_owner(namespace: Namespace) -> None:
    send(namespace, "s", "a", "b", session_id="x")
    store = namespace.store("s")
    assert isinstance(store, SessionStore)
    owner, next_owner = Taker(store, credit=2), Taker(store, credit=2)
    session = store.accept("x", owner)
    store.dispatch_session(session)
    store.accept_next(next_owner, 10**15)
    store.complete(owner.taken[0][0])
    wait(namespace, LOCK_SECONDS)
    assert owner.refusal is not None
    assert owner.refusal.condition == errors.SESSION_LOCK_LOST
    assert next_owner.session is not None
    store.dispatch_session(next_owner.session)
    assert [text for _, text in next_owner.taken] == ["b"]
    assert [stored.delivery_count for stored in store.messages.values()] == [1]
    with pytest.raises(Refusal):
        store.complete(owner.taken[1][0])


@pytest.mark.parametrize(
    ("credit", "order"), [(1, ["a", "a", "b", "c"]), (2, ["a", "b", "a", "c"]), (3, ["a", "b", "c", "a"])]
)
def test_an_abandoned_message_of_a_session_comes_behind_those_that_have_credit(
    namespace: Namespace, credit: int, order: list[str]
) -> None:
    # SR27, and SR20: credit that is left over takes messages that nobody asks for yet.
    store = namespace.store("s")
    assert isinstance(store, SessionStore)
    owner = Taker(store, credit=credit)
    session = store.accept("x", owner)
    send(namespace, "s", "a", "b", "c", session_id="x")
    store.abandon(owner.taken[0][0])
    owner.credit = len(order) - len(owner.taken)
    store.dispatch_session(session)
    assert [text for _, text in owner.taken] == order


def test_waiting_for_a_session_ends_at_its_deadline(namespace: Namespace) -> None:
    store = namespace.store("s")
    assert isinstance(store, SessionStore)
    taker = Taker(store)
    store.accept_next(taker, milliseconds(namespace.clock) + 5000)
    wait(namespace, 4)
    assert not taker.refusal
    wait(namespace, 1)
    assert isinstance(taker.refusal, Refusal)
    assert taker.refusal.condition == errors.TIMEOUT
    send(namespace, "s", "a", session_id="x")
    assert taker.session is None


def test_a_session_without_messages_owner_or_state_is_forgotten(namespace: Namespace) -> None:
    store = namespace.store("s")
    assert isinstance(store, SessionStore)
    for number in range(100):
        taker = Taker(store, credit=1)
        send(namespace, "s", "a", session_id=f"x{number}")
        session = store.accept(f"x{number}", taker)
        store.dispatch_session(session)
        store.complete(taker.taken[0][0])
        store.release_session(session, taker)
    wait(namespace, 1)
    assert store._sessions == {}
    assert store._held == {}


def test_deadlines_that_are_no_longer_needed_do_not_pile_up(namespace: Namespace) -> None:
    store = namespace.store("expiring")
    taker = Taker(store, credit=10**6, is_destructive=True)
    store.join(taker)
    for _ in range(20):
        send(namespace, "expiring", *["a"] * 200, time_to_live=3_600_000)
    assert len(store._expiries._heap) < 2000


class QueueMachine(RuleBasedStateMachine):
    """A queue beside a model of it that is slow and plain."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        lock = dt.timedelta(seconds=LOCK_SECONDS)
        config = QueueConfig(name="q", lock_duration=lock, max_delivery_count=MAX_DELIVERY_COUNT)
        self.namespace = Namespace(NamespaceConfig(name="n", queues=(config,)), self.clock)
        self.taker = join(self.namespace, "q", 0)
        self.store = self.taker.store
        self.sent = 0
        self.counts: dict[Any, Any] = {}
        self.ready: list[Any] = []
        self.deferred: list[Any] = []
        self.dead: list[Any] = []
        self.locked: dict[Any, Any] = {}

    def returned(self, text: str, to: list[Any] | None = None) -> None:
        self.counts[text] += 1
        (self.dead if self.counts[text] >= MAX_DELIVERY_COUNT else self.ready if to is None else to).append(text)

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        for _ in range(count):
            text = f"{self.sent:06}"
            self.sent += 1
            self.counts[text] = 0
            self.ready.append(text)
            send(self.namespace, "q", text)

    @rule(credit=st.integers(1, 3))
    def receive(self, credit: int) -> None:
        self.taker.taken.clear()
        self.taker.credit = credit
        self.store.dispatch()
        self.taker.credit = 0
        expected = sorted(self.ready)[:credit]
        assert [text for _, text in self.taker.taken] == expected
        for token, text in self.taker.taken:
            self.ready.remove(text)
            self.locked[text] = (token, self.clock.monotonic() + LOCK_SECONDS)

    @precondition(lambda self: self.locked)
    @rule(data=st.data(), outcome=st.sampled_from(["complete", "abandon", "release", "defer", "dead_letter", "renew"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        text = data.draw(st.sampled_from(sorted(self.locked)))
        token, _ = self.locked.pop(text)
        match outcome:
            case "complete":
                self.store.complete(token)
                del self.counts[text]
            case "abandon":
                self.store.abandon(token)
                self.returned(text)
            case "release":
                self.store.release(token)
                self.ready.append(text)
            case "defer":
                self.store.defer(token)
                self.returned(text, to=self.deferred)  # SR13
            case "dead_letter":
                self.store.dead_letter(token, why("why", ""))
                self.dead.append(text)
            case "renew":
                self.store.renew_lock(token)
                self.locked[text] = (token, self.clock.monotonic() + LOCK_SECONDS)

    @rule(seconds=st.sampled_from([1, 10, LOCK_SECONDS]))
    def wait(self, seconds: float) -> None:
        wait(self.namespace, seconds)
        lost = [text for text, (_, until) in self.locked.items() if until <= self.clock.monotonic()]
        for text in lost:
            del self.locked[text]
            self.returned(text)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        held = sorted(identity(stored) for stored in self.store.messages.values())
        assert held == sorted([*self.ready, *self.locked, *self.deferred])
        dead = self.namespace.store("q/$deadletterqueue").messages.values()
        assert sorted(map(identity, dead)) == sorted(self.dead)
        for stored in [*self.store.messages.values(), *dead]:
            assert stored.delivery_count == self.counts[identity(stored)]


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(stateful_step_count=40)


def test_changes_that_a_message_has_no_room_for_are_refused_and_its_lock_stays(namespace: Namespace) -> None:
    """SS86: azure-sdk-for-js 4910."""
    send(namespace, "q", "a")
    taker = join(namespace, "q", 1)
    (token, _), store = taker.taken[0], taker.store
    large: dict[str, Value] = {"large": string("x" * 33_000)}
    many: dict[str, Value] = {f"p{number}": string("x" * 30_000) for number in range(3)}
    refused: list[Callable[[], None]] = [
        lambda: store.abandon(token, large),
        lambda: store.defer(token, many),
        lambda: store.dead_letter(token, why("x" * 33_000, "")),
        lambda: store.dead_letter(token, {**many, **why("why", "because")}),
    ]
    for settle in refused:
        with pytest.raises(Refusal) as refusal:
            settle()
        assert refusal.value.condition == errors.INTERNAL_ERROR
    store.dead_letter(token, why("why", "x" * 5_000))
    assert ids_in(namespace, "q/$deadletterqueue") == ["a"]
