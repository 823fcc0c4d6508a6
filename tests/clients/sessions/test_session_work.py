"""One session in two regions: crashes at every step, races, slow workers, stores and clocks that are not as they
should be."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from busway_clients.sessions.effects import Commit, Complete, Fault, LockLost, Register, Run, Wait
from busway_clients.sessions.entries import State, message_partition
from busway_clients.sessions.errors import JournalRefused, JournalUnavailable, LeaseLost
from busway_clients.sessions.failures import fault_of
from busway_clients.sessions.heartbeat import renew
from busway_clients.sessions.leases import MAX_FINAL
from busway_clients.sessions.rows import Write
from busway_clients.sessions.session_work import Ending
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.worker_cache import WorkerCache
from tests.clients.sessions.region import (
    PARTITION,
    SESSION,
    Player,
    Queue,
    World,
    arrival,
    both,
    new_store,
    with_settings,
)

NAMES = ["m1", "m2", "m3", "m4"]


def count_steps(settings: Settings, max_final: int = MAX_FINAL) -> int:
    player = Player(World(settings, max_final=max_final), "west", both(4)[0])
    count = 0
    while player.step():
        count += 1
    return count


def first_of_each(names: Any) -> Any:
    return list(dict.fromkeys(names))


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


@pytest.mark.parametrize("seed", range(40))
def test_racing_workers_process_each_message_once_in_order(seed: int) -> None:
    chance = random.Random(seed)
    max_final = chance.choice([1, 2, 20])
    world = World(with_settings(record_every=chance.choice([1, 2])), max_final=max_final)
    west, east = both(4)
    players = [Player(world, "west", west), Player(world, "east", east)]
    while any(player.ending is None for player in players):
        chance.choice(players).step()
    assert [player.ending for player in players] == [Ending.EMPTY, Ending.EMPTY]
    assert world.applied == [(name, 1, False) for name in NAMES]
    assert (west.messages, east.messages) == ([], [])


@pytest.mark.parametrize("seed", range(20))
def test_racing_workers_that_die_lose_no_message(seed: int) -> None:
    chance = random.Random(seed)
    world = World(with_settings(max_attempts=50), max_final=chance.choice([1, 2, 20]))
    queues = dict(zip(("west", "east"), both(4), strict=True))
    players = {site: Player(world, site, queue) for site, queue in queues.items()}
    deaths = 0
    while any(player.ending is None for player in players.values()):
        site = chance.choice(list(players))
        if deaths < 5 and chance.random() < 0.05:
            players[site] = Player(world, site, queues[site])
            deaths += 1
        elif not players[site].step() and queues[site].messages:
            players[site] = Player(world, site, queues[site], cache=players[site].cache)
    assert first_of_each(world.names) == NAMES
    again = [one for number, one in enumerate(world.applied) if one[0] in world.names[:number]]
    assert all(may_have_run for _, _, may_have_run in again)
    assert len(again) <= deaths


def test_worker_that_lost_its_lease_can_write_and_settle_nothing() -> None:
    world = World()
    west, east = both(2)
    slow = Player(world, "west", west)
    delivery = slow.step_until(Run).delivery
    assert delivery.is_held()
    fast = Player(world, "east", east)
    fast.play()  # waits until the lease is over, and takes over
    assert world.applied == [("m1", 2, True), ("m2", 1, False)]
    assert world.seconds >= 30
    assert not delivery.is_held()
    assert fast.world.journal.record(SESSION, []).lease.token > delivery.token
    assert slow.play() is Ending.BUSY
    assert [one.message_id for one in west.messages] == ["m1", "m2"]
    assert "lease" in world.log[-1]
    # What it had applied cannot be undone; it received the token with which to fence it.
    assert world.states() == {"m1": "completed", "m2": "completed"}
    assert Player(world, "west", west).play() is Ending.EMPTY
    assert west.messages == []


def test_live_worker_keeps_its_lease_while_the_application_works() -> None:
    world = World()
    west, east = both(1)
    slow = Player(world, "west", west)
    slow.step_until(Run)
    hold = slow.work.held_lease
    assert hold is not None
    other = Player(world, "east", east)
    for _ in range(300):
        other.step()
        if hold.must_renew(world.seconds, 10):
            steps = renew(hold)
            with pytest.raises(StopIteration):
                steps.send(slow.perform(next(steps)))
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
    first = owner.step_until(Run).delivery
    waiting = Player(world, "east", east, cache=remembers)
    waiting.step_until(Wait)
    owner.play()
    waiting.play()
    world.seconds += 86_400
    assert world.journal.forget(datetime.fromtimestamp(1_000_000 + world.seconds, UTC)) > 0
    assert world.journal.record(SESSION, []).lease is None
    west, east = Queue([arrival("m9", 9, "west")]), Queue([arrival("m9", 9, "east", origin="west")])
    owner = Player(world, "west", west)
    second = owner.step_until(Run).delivery
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
    token = owner.step_until(Run).delivery.token
    waiting = Player(world, "east", east)
    waiting.step_until(Register)
    waiting.step()
    owner.play()
    world.journal.forget(datetime.fromtimestamp(1_000_000 + world.seconds + 1, UTC))
    world.seconds += 1
    assert (
        Player(world, "east", east, settings=with_settings(head_start_seconds=5)).step_until(Run).delivery.token > token
    )


@pytest.mark.parametrize("offset", [-1e6, -3600.0, 3600.0, 1e6])
def test_clock_skew_neither_shortens_nor_prolongs_a_lease(offset: float) -> None:
    world = World()
    west, east = both(2)
    doomed = Player(world, "west", west)
    doomed.step_until(Run)
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


def test_a_later_message_waits_for_an_earlier_one_that_only_the_other_region_has() -> None:
    world = World()
    west, east = both(3)
    del east.messages[0]  # the copy of m1 was lost
    doomed = Player(world, "west", west)
    doomed.step_until(Run)
    impatient = Player(world, "east", east)
    assert impatient.play() is Ending.BUSY
    assert world.applied == []
    assert [one.message_id for one in east.messages] == ["m2", "m3"]
    assert any("waits for message m1" in line for line in world.log)
    Player(world, "west", west).play()
    Player(world, "east", east).play()
    assert world.names == ["m1", "m2", "m3"]
    assert east.messages == []


def test_session_continues_after_the_wait_for_an_earlier_message() -> None:
    world = World(with_settings(wait_for_earlier_seconds=100))
    west, east = both(3)
    del east.messages[0]
    Player(world, "west", west).step_until(Run)
    assert Player(world, "east", east).play() is Ending.EMPTY
    assert world.names == ["m2", "m3"]
    assert world.seconds >= 130
    # m1 was given to a worker that has died, so it is no late comer but one to be tried again.
    Player(world, "west", west).play()
    assert world.names == ["m2", "m3", "m1"]


def test_missing_message_is_waited_for_once() -> None:
    world = World(with_settings(wait_for_earlier_seconds=100))
    west, east = both(6)
    Player(world, "west", west).step_until(Run)
    del east.messages[0]  # m1 has expired there
    first, later = Queue(east.messages[:2]), Queue(east.messages[2:])
    Player(world, "east", first).play()
    assert world.names == ["m2", "m3"]
    began = world.seconds
    Player(world, "east", later).play()
    assert world.names == ["m2", "m3", "m4", "m5", "m6"]
    assert world.seconds == began
    Player(world, "west", west).play()
    assert world.applied[-1] == ("m1", 2, True)


@pytest.mark.parametrize("dies_at", [Run, Complete], ids=["working", "pending"])
def test_operator_gives_up_a_missing_message(dies_at: Any) -> None:
    world = World()
    west, east = both(3)
    if dies_at is Run:
        Player(world, "west", west).step_until(Run)
    else:
        stopped = Player(world, "west", west, fails=lambda _: Fault("ValueError", "it failed", is_final=False))
        stopped.step_until(Run)
        stopped.worker = replace(stopped.worker, is_stopping=lambda: True)
        stopped.work.worker = stopped.worker
        stopped.play()
    del east.messages[0]
    cache = WorkerCache()
    assert Player(world, "east", east, cache=cache).play() is Ending.BUSY
    with pytest.raises(JournalRefused, match="message m7 is not on record, expected pending or working"):
        world.journal.give_up(SESSION, "m7")
    world.journal.give_up(SESSION, "m1")
    Player(world, "east", east, cache=cache).play()
    assert world.names == ["m2", "m3"]
    assert world.states()["m1"] == "faulted"
    with pytest.raises(JournalRefused, match="message m1 is faulted, expected pending or working"):
        world.journal.give_up(SESSION, "m1")
    # It comes after all.
    Player(world, "west", west).play()
    assert west.dead == {"m1": "GivenUp"}
    world.journal.reopen(SESSION, "m1")
    Player(world, "west", Queue([arrival("m1", 9, "west")])).play()
    assert world.names == ["m2", "m3", "m1"]


def test_numbers_are_given_up_in_their_order() -> None:
    world = World(with_settings(number="n"))
    Player(world, "west", Queue([arrival("m1", 1, "west", number=1)])).step_until(Run)
    gone = [arrival(f"m{n}", n, "west", number=n) for n in (1, 2, 3)]
    Player(world, "west", Queue(gone)).step_until(Run)
    left = Queue([arrival("m4", 4, "west", number=4)])
    cache = WorkerCache()
    assert Player(world, "west", left, cache=cache).play() is Ending.BUSY
    with pytest.raises(JournalRefused, match="message m3 has number 3, expected 1 first"):
        world.journal.give_up(SESSION, "m3")
    for name in ("m1", "m2", "m3"):
        world.journal.give_up(SESSION, name)
    Player(world, "west", left, cache=cache).play()
    assert world.names == ["m4"]


def test_live_owner_notices_a_given_up_message() -> None:
    world = World()
    west, _ = both(2)
    owner = Player(world, "west", west)
    owner.step_until(Run)
    world.journal.give_up(SESSION, "m1")
    owner.play()
    # The application had it already, and what it did stands.
    assert world.names == ["m1", "m2"]
    assert world.states() == {"m1": "completed", "m2": "completed"}


def test_resent_message_behind_a_full_batch_blocks_none() -> None:
    world = World(with_settings(batch=2))
    Player(world, "west", Queue([arrival("m1", 1, "west")]), fails=lambda _: Fault("Broken", "", is_final=True)).play()
    world.journal.reopen(SESSION, "m1")
    queue = Queue([arrival(name, place, "west") for place, name in enumerate(["m2", "m3", "m4", "m1"], 2)])
    assert Player(world, "west", queue).play() is Ending.EMPTY
    assert world.names == ["m2", "m3", "m4", "m1"]


@pytest.mark.parametrize("is_renewing", [False, True], ids=["silent", "beating"])
def test_earlier_message_registered_elsewhere_is_waited_for(is_renewing: bool) -> None:
    world = World()
    queue = Queue([arrival("m3", 3, "east", origin="west"), arrival("m4", 4, "east", origin="west")])
    east = Player(world, "east", queue)
    east.step_until(Run)
    late = Player(world, "west", Queue([arrival("m1", 1, "west"), arrival("m3", 3, "west"), arrival("m4", 4, "west")]))
    late.step_until(Register)
    late.step()
    if is_renewing:
        # The heartbeat meets the registration first, and must not hide it.
        assert east.work.held_lease is not None
        east.perform_all(renew(east.work.held_lease))
    # m3 was begun before m1 was known of; m4 was not.
    while world.names != ["m3"]:
        east.step()
    while late.ending is None or east.ending is None:
        east.step()
        late.step()
    assert world.names == ["m3", "m1", "m4"]


def test_copy_that_arrives_after_its_successor_is_dead_lettered_with_a_reason() -> None:
    world = World()
    Player(world, "east", Queue([arrival("m3", 3, "east", origin="west")])).play()
    late = Queue([arrival("m1", 1, "east", origin="west")])
    Player(world, "east", late).play()
    assert late.dead == {"m1": "OutOfOrder"}
    assert world.states() == {"m1": "faulted", "m3": "completed"}
    assert world.names == ["m3"]
    tolerant = World(with_settings(late="process"))
    Player(tolerant, "east", Queue([arrival("m3", 3, "east", origin="west")])).play()
    Player(tolerant, "east", Queue([arrival("m1", 1, "east", origin="west")])).play()
    assert tolerant.names == ["m3", "m1"]


def test_copies_on_many_paths_do_not_overflow_a_row() -> None:
    world = World()
    for number in range(40):
        one = arrival(f"m{number}", number, "east")
        Player(
            world, "east", Queue([replace(one, origin="west", lines={"east": number, f"copy:west;{number}": 1})])
        ).play()
    lease = world.journal.record(SESSION, []).lease
    assert lease is not None
    assert len(lease.done) == 16
    assert "copy:west;39" in lease.done


def test_numbered_messages_are_processed_in_order_across_regions() -> None:
    settings = with_settings(number="n")
    world = World(settings)
    west = Queue([arrival(f"m{n}", n, "west", number=n) for n in (1, 3)])
    east = Queue([arrival(f"m{n}", n, "east", number=n) for n in (2, 4)])
    players = [Player(world, "west", west), Player(world, "east", east)]
    while any(player.ending is None for player in players):
        for player in players:
            player.step()
    assert world.names == NAMES


def test_a_gap_in_the_numbers_stops_the_session_and_keeps_its_messages() -> None:
    world = World(with_settings(number="n"))
    queue = Queue([arrival(f"m{n}", n, "west", number=n) for n in (1, 3)])
    assert Player(world, "west", queue).play() is Ending.BUSY
    assert world.names == ["m1"]
    assert [one.message_id for one in queue.messages] == ["m3"]
    assert "number 2 of its session" in world.log[-1]
    queue = Queue([arrival("m2", 2, "west", number=2), *queue.messages])
    Player(world, "west", queue).play()
    assert world.names == ["m1", "m2", "m3"]


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
        while doomed.step_until(Run).delivery.message_id != "m2":
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
                raise JournalUnavailable("the store is away")
            result = asked(*arguments)
            if self.is_deaf:
                self.is_deaf = False
                raise JournalUnavailable("no answer came")
            return result

        return answer


def test_nothing_is_processed_or_settled_while_the_store_is_unavailable() -> None:
    store = StoreThatIsAway(new_store())
    world = World(store=store)
    west, _ = both(3)
    cache = WorkerCache()
    player = Player(world, "west", west, cache=cache)
    player.step_until(Run)
    player.step()
    store.is_away = True
    with pytest.raises(JournalUnavailable):
        player.play()
    assert world.names == ["m1"]
    assert len(west.messages) == 3
    with pytest.raises(JournalUnavailable):
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
            store.is_deaf = number == deaf and isinstance(player.effect, Commit)
            if not player.step():
                break
        assert player.ending is Ending.EMPTY
        assert world.applied == [("m1", 1, False), ("m2", 1, False), ("m3", 1, False)], deaf
        assert (west.messages, west.dead) == ([], {})


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
        except JournalUnavailable:
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
                store.is_deaf = number == deaf and isinstance(player.effect, Commit)
                is_last = store.is_deaf
                if not player.step():
                    break
                store.is_away = store.is_away or is_last
        except JournalUnavailable:
            store.is_away = False
            Player(world, "west", west, cache=cache).play()
        assert world.applied == [(name, 1, False) for name in NAMES], deaf
        assert (west.messages, west.dead) == ([], {})


def test_recorded_message_with_a_lost_lock_is_completed_when_redelivered() -> None:
    world = World()
    west, _ = both(2)
    player = Player(world, "west", west)
    player.step_until(Complete)

    def lost(_: Any) -> None:
        raise LockLost("SessionLockLostError")

    player.step(lost)
    assert player.play() is Ending.LOCK_LOST
    assert len(west.messages) == 2
    Player(world, "west", west).play()
    assert [name for name in world.names if name == "m1"] == ["m1"]
    assert west.messages == []
