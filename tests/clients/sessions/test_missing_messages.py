"""Messages that are missing, late or given up: a session waits, continues and stays in order."""

from dataclasses import replace
from typing import Any

import pytest

from busway_clients.aio.sessions.session_work import renew
from busway_clients.errors import JournalRefused
from busway_clients.sessions.delivery import Fault
from busway_clients.sessions.plan import Ending, WorkerCache
from tests.clients.sessions.region import NAMES, SESSION, Player, Queue, World, arrival, both, with_settings


def test_later_message_waits_for_one_that_only_the_other_region_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    west, east = both(3)
    del east.messages[0]  # the copy of m1 was lost
    doomed = Player(world, "west", west)
    doomed.step_until("run")
    impatient = Player(world, "east", east)
    assert impatient.play() is Ending.BUSY
    assert world.applied == []
    assert [one.message_id for one in east.messages] == ["m2", "m3"]
    assert any("waits for message m1" in line for line in caplog.messages)
    Player(world, "west", west).play()
    Player(world, "east", east).play()
    assert world.names == ["m1", "m2", "m3"]
    assert east.messages == []


def test_session_continues_after_the_wait_for_an_earlier_message() -> None:
    world = World(with_settings(wait_for_earlier_seconds=100))
    west, east = both(3)
    del east.messages[0]
    Player(world, "west", west).step_until("run")
    assert Player(world, "east", east).play() is Ending.EMPTY
    assert world.names == ["m2", "m3"]
    assert world.seconds >= 130
    # m1 was given to a worker that has died, so it is no late comer but one to be tried again.
    Player(world, "west", west).play()
    assert world.names == ["m2", "m3", "m1"]


def test_missing_message_is_waited_for_once() -> None:
    world = World(with_settings(wait_for_earlier_seconds=100))
    west, east = both(6)
    Player(world, "west", west).step_until("run")
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


@pytest.mark.parametrize("dies_at", ["run", "complete"], ids=["working", "pending"])
def test_operator_gives_up_a_missing_message(dies_at: Any) -> None:
    world = World()
    west, east = both(3)
    if dies_at == "run":
        Player(world, "west", west).step_until("run")
    else:
        stopped = Player(world, "west", west, fails=lambda _: Fault("ValueError", "it failed", is_final=False))
        stopped.step_until("run")
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
    Player(world, "west", Queue([arrival("m1", 1, "west", number=1)])).step_until("run")
    gone = [arrival(f"m{n}", n, "west", number=n) for n in (1, 2, 3)]
    Player(world, "west", Queue(gone)).step_until("run")
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
    owner.step_until("run")
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
    east.step_until("run")
    late = Player(world, "west", Queue([arrival("m1", 1, "west"), arrival("m3", 3, "west"), arrival("m4", 4, "west")]))
    late.step_until("register")
    late.step()
    if is_renewing:
        # The heartbeat meets the registration first, and must not hide it.
        assert east.work.held_lease is not None
        east.perform_all(renew(east.work.held_lease, east.lane))
    # m3 was begun before m1 was known of; m4 was not.
    while world.names != ["m3"]:
        east.step()
    while late.ending is None or east.ending is None:
        east.step()
        late.step()
    assert world.names == ["m3", "m1", "m4"]


def test_message_that_arrives_after_one_with_a_higher_number_is_dead_lettered_with_a_reason() -> None:
    settings = with_settings(number="n", wait_for_earlier_seconds=0)
    for tolerant, names in ((settings, ["m3"]), (replace(settings, late="process"), ["m3", "m1"])):
        world = World(tolerant)
        Player(world, "east", Queue([arrival("m3", 3, "east", number=3)])).play()
        queue = Queue([arrival("m1", 4, "east", number=1)])
        Player(world, "east", queue).play()
        assert queue.dead == ({"m1": "OutOfOrder"} if tolerant is settings else {})
        assert world.names == names


@pytest.mark.parametrize("place", [2, 4, 10**6, 2**63 - 1])
def test_a_forged_place_of_one_copy_decides_about_no_other(place: int) -> None:
    """Any producer can write repl-path and repl-sequence."""
    world = World()
    forged = replace(arrival("evil", 1, "east", origin="west"), lines={"east": 1, "copy:west": place})
    Player(world, "east", Queue([forged])).play()
    genuine = Queue([arrival(name, number, "east", origin="west") for number, name in ((3, "m3"), (4, "m4"))])
    Player(world, "east", genuine).play()
    assert world.names == ["evil", "m3", "m4"]
    assert genuine.dead == {}


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


def test_a_gap_in_the_numbers_stops_the_session_and_keeps_its_messages(caplog: pytest.LogCaptureFixture) -> None:
    world = World(with_settings(number="n"))
    queue = Queue([arrival(f"m{n}", n, "west", number=n) for n in (1, 3)])
    assert Player(world, "west", queue).play() is Ending.BUSY
    assert world.names == ["m1"]
    assert [one.message_id for one in queue.messages] == ["m3"]
    assert "number 2 of its session" in caplog.messages[-1]
    queue = Queue([arrival("m2", 2, "west", number=2), *queue.messages])
    Player(world, "west", queue).play()
    assert world.names == ["m1", "m2", "m3"]
