"""The names of messages in their order, and the steps that a worker takes to process them."""

from typing import Any

from busway_clients.sessions.leases import MAX_FINAL
from busway_clients.sessions.settings import Settings
from tests.clients.sessions.region import Player, World, both

NAMES = ["m1", "m2", "m3", "m4"]


def count_steps(settings: Settings, max_final: int = MAX_FINAL) -> int:
    player = Player(World(settings, max_final=max_final), "west", both(4)[0])
    count = 0
    while player.step():
        count += 1
    return count


def first_of_each(names: Any) -> Any:
    return list(dict.fromkeys(names))
