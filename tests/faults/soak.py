"""Random faults with a fixed seed during traffic; only `make faults` runs them."""

import random

from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

_ROUNDS = 15
_SEED = 20261121


def _soak(line: Line) -> None:
    """Kill the host or cut its connection to source or target, each time while it processes messages."""
    chance = random.Random(_SEED)
    host = line.host()
    for number in range(_ROUNDS):
        messages = drafts(line.route, f"{number}-", keys=6, each=20)
        before = len(line.names_at_target())
        line.send(messages)
        wanted = before + chance.randrange(len(messages) // 2)
        line.wait_until(lambda: len(line.names_at_target()) >= wanted or not line.remaining(), "under way")  # noqa: B023 - awaited at once
        match chance.choice(("kill", "west", "east")):
            case "kill":
                host.kill()
                line.expect_repeats(line.sent_but_unsettled())
                host = line.host()
            case site:
                line.broker.faults(site).cut_connections()
                # Once reconnected, which takes a while, the host resends messages that got no answer.
                line.expect_repeats(line.sent_but_unsettled())
        line.end_locks()
    line.wait_until_drained()


SOAK = [
    Scenario(
        "soak: random kills and cuts", route, _soak, explains="sent but not settled at a kill or a cut", repeats=None
    )
    for route in (SESSIONS, SESSIONS_TO_HUB, HUB_TO_SESSIONS, HUBS)
]
