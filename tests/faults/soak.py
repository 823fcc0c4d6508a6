"""Faults one after the other by chance, with a fixed seed, while traffic goes on; `make faults` alone plays them."""

import random

from tests.faults.line import Line
from tests.faults.parties import letters
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

_ROUNDS = 15
_SEED = 20261121


def _soak(line: Line) -> None:
    """Kill the host or cut it off from source or target, each time in the midst of a mailing."""
    chance = random.Random(_SEED)
    host = line.host()
    for number in range(_ROUNDS):
        mail = letters(line.route, f"{number}-", keys=6, each=20)
        there = len(line.at_target())
        line.send(mail)
        wanted = there + chance.randrange(len(mail) // 2)
        line.wait_until(lambda: len(line.at_target()) >= wanted or not line.remaining(), "under way")  # noqa: B023 - awaited at once
        match chance.choice(("kill", "west", "east")):
            case "kill":
                host.kill()
                line.expect_repeats(line.in_hand())
                host = line.host()
            case site:
                line.broker.faults(site).cut_connections()
                # What was accepted without an answer is sent again once the host has a connection, which takes a while.
                line.expect_repeats(line.in_hand())
        line.end_locks()
    line.wait_until_carried()


SOAK = [
    Scenario("soak: killed and cut off by chance", route, _soak, explains="in hand at a kill or a cut", repeats=None)
    for route in (SESSIONS, SESSIONS_TO_HUB, HUB_TO_SESSIONS, HUBS)
]
