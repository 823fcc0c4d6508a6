"""Messages that fail and stores that are unavailable: what is recorded, retried, faulted and reopened."""

from datetime import UTC, datetime
from typing import Any

import pytest

from busway_clients.errors import LeaseLost, StoreUnavailable
from busway_clients.rows import Write
from busway_clients.sessions.delivery import Fault, LockLost, fault_of
from busway_clients.sessions.entries import State, message_partition
from busway_clients.sessions.plan import Ending, WorkerCache
from tests.clients.sessions.region import (
    NAMES,
    PARTITION,
    SESSION,
    Player,
    Queue,
    World,
    arrival,
    both,
    count_steps,
    first_of_each,
    new_store,
    with_settings,
)


def poison(delivery: Any) -> Any:
    return Fault("Broken", "cannot be read", is_final=True) if delivery.message_id == "m2" else None


def failing(delivery: Any) -> Any:
    return Fault("ValueError", "it failed", is_final=False) if delivery.message_id == "m2" else None


@pytest.mark.parametrize(("fails", "reason"), [(poison, "Broken"), (failing, "ValueError")])
@pytest.mark.parametrize("record_every", [1, 4])
def test_poison_message_is_recorded_as_faulted_and_dead_lettered_in_both_regions(
    fails: Any, reason: str, record_every: int
) -> None:
    world = World(with_settings(record_every=record_every))
    west, east = both(4)
    Player(world, "west", west, fails=fails).play()
    assert west.dead == {"m2": reason}
    Player(world, "east", east, fails=fails).play()
    assert east.dead == {"m2": reason}
    assert world.applied == [("m1", 1, False), ("m3", 1, False), ("m4", 1, False)]
    assert world.states()["m2"] == "faulted"
    world.journal.reopen(SESSION, "m2")
    Player(world, "west", Queue([arrival("m2", 9, "west")])).play()
    assert world.names == ["m1", "m3", "m4", "m2"]


def test_a_faulted_message_is_reopened_from_any_row() -> None:
    world = World()
    west, _ = both(3)
    owner = Player(world, "west", west, fails=poison)
    while world.names != ["m1", "m3"]:
        owner.step()
    lease = world.journal.record(SESSION, []).lease
    assert lease is not None
    assert lease.recent["m2"].state is State.FAULTED
    assert not world.store.read(PARTITION, ["m.m2"])
    world.journal.reopen(SESSION, "m2")
    assert owner.play() is Ending.EMPTY
    assert world.states() == {"m1": "completed", "m2": "pending", "m3": "completed"}
    # The lease was given back, and its row holds nothing but itself.
    assert world.store.read(PARTITION, ["m.m2"])
    Player(world, "west", Queue([arrival("m2", 9, "west")])).play()
    assert world.names == ["m1", "m3", "m2"]


def test_message_without_session_has_one_row_that_is_deleted_whole() -> None:
    world = World(with_settings(lock="message"))
    Player(world, "west", Queue([arrival("m1", 1, "west")])).play()
    [row] = world.store.read(PARTITION, ["lease", "m.m1"])
    assert row.key == "lease"
    Player(world, "east", Queue([arrival("m1", 1, "east", origin="west")])).play()
    assert world.names == ["m1"]
    assert world.journal.forget(datetime.now(UTC)) == 1
    assert world.store.read(PARTITION, ["lease", "m.m1"]) == []


def test_reopened_message_is_not_deleted() -> None:
    world = World(with_settings(lock="message"))
    Player(world, "west", Queue([arrival("m2", 1, "west")]), fails=poison).play()
    partition = message_partition(SESSION, "m2")
    [row] = world.store.read(PARTITION, ["lease"])
    world.store.write(partition, [Write(row.key, row.properties)])
    world.journal.reopen(SESSION, "m2")
    assert world.journal.forget(datetime.now(UTC)) == 1
    [entry] = world.journal.record(SESSION, ["m2"]).entries.values()
    assert entry.state is State.PENDING


@pytest.mark.parametrize("record_every", [1, 4])
def test_failed_attempt_is_retried_before_the_next_message(record_every: int) -> None:
    world = World(with_settings(record_every=record_every))
    tried = []

    def fails_twice(delivery: Any) -> Any:
        tried.append((delivery.message_id, delivery.attempt, delivery.may_have_run))
        is_failure = delivery.message_id == "m2" and delivery.attempt < 3
        return Fault("ValueError", "it failed", is_final=False) if is_failure else None

    west, _ = both(3)
    Player(world, "west", west, fails=fails_twice).play()
    assert world.applied == [("m1", 1, False), ("m2", 3, False), ("m3", 1, False)]
    assert [one for one in tried if one[0] == "m2"] == [("m2", n, False) for n in (1, 2, 3)]


@pytest.mark.parametrize("record_every", [1, 4])
def test_message_that_crashes_every_worker_is_faulted_alone(record_every: int) -> None:
    world = World(with_settings(record_every=record_every))
    west, _ = both(4)
    for _ in range(3):
        doomed = Player(world, "west", west)
        while doomed.step_until("run").delivery.message_id != "m2":
            doomed.step()
    Player(world, "west", west).play()
    assert west.dead == {"m2": "WorkersLost"}
    assert first_of_each(world.names) == ["m1", "m3", "m4"]


class StoreThatIsAway:
    """A store that does not answer while it is away; *is_deaf* does what it is asked and does not say so."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.is_away = self.is_deaf = False

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.store, name)
        if name not in ("read", "write"):
            return asked

        def answer(*arguments: Any) -> Any:
            if self.is_away:
                raise StoreUnavailable("the store is away")
            result = asked(*arguments)
            if self.is_deaf:
                self.is_deaf = False
                raise StoreUnavailable("no answer came")
            return result

        return answer


def test_nothing_is_processed_or_settled_while_the_store_is_unavailable() -> None:
    store = StoreThatIsAway(new_store())
    world = World(store=store)
    west, _ = both(3)
    cache = WorkerCache()
    player = Player(world, "west", west, cache=cache)
    player.step_until("run")
    player.step()
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        player.play()
    assert world.names == ["m1"]
    assert len(west.messages) == 3
    with pytest.raises(StoreUnavailable):
        Player(world, "west", west, cache=cache).play()
    store.is_away = False
    Player(world, "west", west, cache=cache).play()
    assert world.applied == [("m1", 1, False), ("m2", 1, False), ("m3", 1, False)]
    assert west.messages == []


def test_lost_answer_of_any_write_changes_nothing() -> None:
    for deaf in range(count_steps(with_settings(max_attempts=1))):
        store = StoreThatIsAway(new_store())
        world = World(with_settings(max_attempts=1), store=store)
        west, _ = both(3)
        player = Player(world, "west", west)
        for number in range(200):
            store.is_deaf = number == deaf and player.effect is not None and player.effect.name == "commit"
            if not player.step():
                break
        assert player.ending is Ending.EMPTY
        assert world.applied == [("m1", 1, False), ("m2", 1, False), ("m3", 1, False)], deaf
        assert (west.messages, west.dead) == ([], {})
        # A claim without an answer is found to be this worker's, and not waited for.
        assert world.seconds < world.settings.lease_seconds


@pytest.mark.parametrize("outage", [100, 1000], ids=["within patience", "beyond it"])
def test_store_outage_is_not_counted_as_a_failed_attempt(outage: int) -> None:
    store = StoreThatIsAway(new_store())
    world = World(with_settings(max_attempts=1), store=store)
    west, _ = both(2)
    cache = WorkerCache()
    back_at: list[float] = []

    def checks(delivery: Any) -> Any:
        if not back_at:
            # The lease runs out while the application works, as the heartbeat does not get through.
            store.is_away = True
            world.seconds += 40
            back_at.append(world.seconds + outage)
        try:
            delivery.check()
        except LeaseLost as error:
            return fault_of(error)
        return None

    for _ in range(10):
        player = Player(world, "west", west, fails=checks, cache=cache)
        try:
            while player.step():
                store.is_away = bool(back_at) and world.seconds < back_at[0]
        except StoreUnavailable:
            continue
    assert world.applied == [("m1", 1, False), ("m2", 1, False)]
    assert (west.messages, west.dead) == ([], {})


def test_lost_answer_at_the_start_of_an_outage_uses_up_no_attempt() -> None:
    for deaf in range(count_steps(with_settings(max_attempts=1))):
        store = StoreThatIsAway(new_store())
        world = World(with_settings(max_attempts=1, record_every=2), store=store)
        west, _ = both(4)
        cache = WorkerCache()
        player = Player(world, "west", west, cache=cache)
        try:
            for number in range(2000):
                store.is_deaf = number == deaf and player.effect is not None and player.effect.name == "commit"
                is_last = store.is_deaf
                if not player.step():
                    break
                store.is_away = store.is_away or is_last
        except StoreUnavailable:
            store.is_away = False
            Player(world, "west", west, cache=cache).play()
        assert world.applied == [(name, 1, False) for name in NAMES], deaf
        assert (west.messages, west.dead) == ([], {})


def lock_lost(_: Any) -> None:
    raise LockLost("SessionLockLostError")


def test_recorded_message_with_a_lost_lock_is_completed_when_redelivered() -> None:
    world = World()
    west, _ = both(2)
    player = Player(world, "west", west)
    player.step_until("complete")
    player.step(lock_lost)
    assert player.play() is Ending.LOCK_LOST
    assert len(west.messages) == 2
    Player(world, "west", west).play()
    assert [name for name in world.names if name == "m1"] == ["m1"]
    assert west.messages == []


def test_worker_that_lost_its_lock_and_its_lease_is_not_an_error() -> None:
    world = World()
    west, east = both(2)
    slow = Player(world, "west", west)
    slow.step_until("complete")
    assert Player(world, "east", east).play() is Ending.EMPTY  # once the lease is over
    slow.step(lock_lost)
    assert slow.play() is Ending.LOCK_LOST
    assert world.names == ["m1", "m2"]
