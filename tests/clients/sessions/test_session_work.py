"""One session in two regions: crashes at every step, races, slow workers, stores and clocks that are not as they
should be."""

from datetime import UTC, datetime

import pytest

from busway_clients.aio.sessions.session_work import renew
from busway_clients.errors import StoreUnavailable
from busway_clients.sessions import Delivery
from busway_clients.sessions.delivery import Fault
from busway_clients.sessions.plan import Ending, WorkerCache
from tests.clients.sessions.histories import History
from tests.clients.sessions.region import (
    NAMES,
    SESSION,
    Player,
    Queue,
    World,
    arrival,
    both,
    count_steps,
    first_of_each,
    with_settings,
)


@pytest.mark.parametrize("max_final", [1, 2, 20], ids="rows after {}".format)
@pytest.mark.parametrize("record_every", [1, 3])
@pytest.mark.parametrize("is_performed", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("second", ["east", "west"])
def test_crash_at_any_step_loses_nothing_and_repeats_only_what_is_reported(
    max_final: int, record_every: int, is_performed: bool, second: str
) -> None:
    settings = with_settings(record_every=record_every)
    twice = 0
    for crash in range(count_steps(settings, max_final)):
        world = World(settings, max_final=max_final)
        west, east = both(4)
        doomed = Player(world, "west", west)
        for _ in range(crash):
            doomed.step()
        if is_performed and doomed.effect is not None:
            doomed.perform(doomed.effect)
        ran_before = list(world.names)
        # Nothing is settled that is not on record.
        gone = set(NAMES) - {one.message_id for one in west.messages}
        assert all(world.states()[name] == "completed" for name in gone)

        queues = {"west": west, "east": east}
        assert Player(world, second, queues[second]).play() is Ending.EMPTY
        other = "east" if second == "west" else "west"
        assert Player(world, other, queues[other]).play() is Ending.EMPTY

        assert first_of_each(world.names) == NAMES
        assert set(world.states().values()) == {"completed"}
        assert (west.messages, east.messages) == ([], [])
        again = [one for one in world.applied[len(ran_before) :] if one[0] in ran_before]
        # Only what ran and was not on record runs again, and then the application is informed.
        assert len(again) <= record_every
        assert all(may_have_run for _, _, may_have_run in again)
        twice += len(again)
    assert twice > 0  # or no crash hit the gap between effect and record


@pytest.mark.parametrize("seed", range(180))
def test_a_history_loses_nothing_repeats_only_what_is_reported_and_keeps_the_order(seed: int) -> None:
    history = History(seed)
    assert history.run(), history.log[-20:]
    assert history.objections() == [], history.log


def test_worker_that_lost_its_lease_can_write_and_settle_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    west, east = both(2)
    slow = Player(world, "west", west)
    delivery = slow.step_until("run").delivery
    assert delivery.is_held()
    fast = Player(world, "east", east)
    fast.play()  # waits until the lease is over, and takes over
    assert world.applied == [("m1", 2, True), ("m2", 1, False)]
    assert world.seconds >= 30
    assert not delivery.is_held()
    assert fast.world.journal.record(SESSION, []).lease.token > delivery.token
    assert slow.play() is Ending.BUSY
    assert [one.message_id for one in west.messages] == ["m1", "m2"]
    assert "lease" in caplog.messages[-1]
    # What it had applied cannot be undone; it received the token with which to fence it.
    assert world.states() == {"m1": "completed", "m2": "completed"}
    assert Player(world, "west", west).play() is Ending.EMPTY
    assert west.messages == []


def test_live_worker_keeps_its_lease_while_the_application_works() -> None:
    world = World()
    west, east = both(1)
    slow = Player(world, "west", west)
    slow.step_until("run")
    hold = slow.work.held_lease
    assert hold is not None
    other = Player(world, "east", east)
    for _ in range(300):
        other.step()
        if hold.must_renew(world.seconds, 10):
            slow.perform_all(renew(hold, slow.lane))
    assert world.seconds > 100
    assert world.applied == []
    slow.play()
    other.play()
    assert world.applied == [("m1", 1, False)]


def test_lease_of_a_deleted_session_stays_exclusive_and_its_tokens_grow() -> None:
    world = World()
    remembers = WorkerCache()
    west, east = both(1)
    owner = Player(world, "west", west)
    first = owner.step_until("run").delivery
    waiting = Player(world, "east", east, cache=remembers)
    waiting.step_until("wait")
    owner.play()
    waiting.play()
    world.seconds += 86_400
    assert world.journal.forget(datetime.fromtimestamp(1_000_000 + world.seconds, UTC)) > 0
    assert world.journal.record(SESSION, []).lease is None
    west, east = Queue([arrival("m9", 9, "west")]), Queue([arrival("m9", 9, "east", origin="west")])
    owner = Player(world, "west", west)
    second = owner.step_until("run").delivery
    assert second.token > first.token
    # What it remembers is of a lease long ago, however alike that was.
    began = world.seconds
    Player(world, "east", east, cache=remembers).play()
    assert world.seconds - began >= 30
    assert not second.is_held()


def test_tokens_grow_after_the_lease_row_was_deleted() -> None:
    world = World()
    west, east = both(2)
    del west.messages[1]
    owner = Player(world, "west", west)
    token = owner.step_until("run").delivery.token
    waiting = Player(world, "east", east)
    waiting.step_until("register")
    waiting.step()
    owner.play()
    world.journal.forget(datetime.fromtimestamp(1_000_000 + world.seconds + 1, UTC))
    world.seconds += 1
    assert (
        Player(world, "east", east, settings=with_settings(head_start_seconds=5)).step_until("run").delivery.token
        > token
    )


@pytest.mark.parametrize("offset", [-1e6, -3600.0, 3600.0, 1e6])
def test_clock_skew_neither_shortens_nor_prolongs_a_lease(offset: float) -> None:
    world = World()
    west, east = both(2)
    doomed = Player(world, "west", west)
    doomed.step_until("run")
    started = world.seconds
    Player(world, "east", east, offset=offset).play()
    assert 30 <= world.seconds - started < 35
    assert world.names == ["m1", "m2"]


def test_secondary_leaves_new_sessions_to_the_primary_for_a_while() -> None:
    world = World()
    secondary = with_settings(head_start_seconds=15)
    west, east = both(2)
    other = Player(world, "east", east, settings=secondary)
    for _ in range(20):
        other.step()
    assert world.applied == []
    Player(world, "west", west).play()
    assert world.seconds < 15
    other.play()
    assert world.names == ["m1", "m2"]
    assert east.messages == []
    alone = World()
    Player(alone, "east", both(2)[1], settings=secondary).play()
    assert alone.names == ["m1", "m2"]
    assert 15 <= alone.seconds < 17


def test_a_message_that_another_worker_had_since_a_failed_claim_may_have_run() -> None:
    world = World()
    west, east = both(1)
    patient = Player(world, "west", west)
    patient.step_until("commit")
    patient.step(unavailable)
    doomed = Player(world, "east", east)
    doomed.step_until("run")
    doomed.perform(doomed.effect)
    patient.play()
    assert world.applied == [("m1", 1, False), ("m1", 2, True)]


def test_what_a_failed_claim_had_decided_is_decided_again() -> None:
    world = World(with_settings(max_attempts=1))
    west, east = both(1)
    Player(world, "west", west).step_until("run")
    slow = Player(world, "east", east)
    slow.step_until("commit")  # of WorkersLost
    assert Player(world, "west", west, settings=with_settings(max_attempts=2)).play() is Ending.EMPTY
    assert slow.play() is Ending.EMPTY
    assert (world.names, west.dead, east.dead, east.messages) == (["m1"], {}, {}, [])


def test_an_attempt_that_fails_does_not_undo_what_a_lost_worker_may_have_done() -> None:
    world = World()
    west, east = both(1)
    doomed = Player(world, "east", east)
    doomed.step_until("run")
    doomed.perform(doomed.effect)
    flags = []

    def fails_once(delivery: Delivery) -> Fault | None:
        flags.append(delivery.may_have_run)
        return Fault("Busy", "", is_final=False) if len(flags) == 1 else None

    assert Player(world, "west", west, fails=fails_once).play() is Ending.EMPTY
    assert flags == [True, True]


def unavailable(_: object) -> None:
    raise StoreUnavailable("the store is away")
