"""Messages with three targets, of which one is away while ten instances are killed one after the other."""

from collections import Counter
from functools import partial

import pytest

from tests.simulation.history import seeded
from tests.simulation.oracles import objections, outcomes_of, places, stored
from tests.simulation.topologies import DETECTING_TARGETS, THREE_TARGETS
from tests.simulation.topology import Topology
from tests.simulation.world import Scale, World

_KILLS, _MINUTE = 10, 60.0
_AWAY = ("north", "orders")


def history(seed: int, topology: Topology) -> World:
    """Return a world that has come to rest after an hour without the site of one target."""
    world = World(seed, topology, Scale(messages=10, rate=0.0, events=0, window=70 * _MINUTE))
    north = world.sites[_AWAY[0]]
    world.network.at(0.0, partial(setattr, north, "is_away", True))
    for number in range(_KILLS):
        world.network.at((number + 1) * 6 * _MINUTE, partial(_kill, world))
    with seeded(seed):
        assert world.run()
    assert world.faults.injected["kill"] == _KILLS
    return world


def _kill(world: World) -> None:
    (instance,) = world.instances
    instance.kill()
    world.faults.injected["kill"] += 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("topology", [THREE_TARGETS, DETECTING_TARGETS], ids=str)
def test_every_target_has_every_message_in_order_after_ten_kills(seed: int, topology: Topology) -> None:
    world = history(seed, topology)
    try:
        outcomes = outcomes_of(world)
        assert list(objections(world, places(world, outcomes), outcomes)) == []
        for site, path in topology.places:
            copies = Counter(arrival.name for arrival in stored(world, site, path))
            # Each new instance reads in the journal what the others have, whether or not they detect duplicates.
            assert max(copies.values()) == 1, f"{site}/{path}: {copies}"
    finally:
        world.loop.dispose()
