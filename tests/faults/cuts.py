"""
The connection to source or target cut at every operation in turn, and acknowledgements lost with it.

One host carries one mailing after the other. While it is paused, its connections are cut and the next mailing is sent;
the first operation that it does then is number 1, and the n-th mailing sees the connection break at operation n. When a
mailing gets through without a break, every operation has had its turn.
"""

from functools import partial

from local.broker.faults import Effect, Fault, Operation
from tests.faults.line import Line, struck
from tests.faults.parties import letters
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

_MOST_OPERATIONS = 60


def _play(line: Line, site: str, operations: frozenset[Operation], *, takes_effect: bool) -> None:
    """Cut the connection to the namespace *site* at each of the operations in turn; with or without their effect."""
    faults = line.broker.faults(site)
    host = line.host()
    for number in range(1, _MOST_OPERATIONS):
        host.pause()
        line.send(letters(line.route, f"{number}-", keys=2, each=1))
        fault = Fault(
            effect=Effect.DROP_CONNECTION, operations=operations, at=number, times=1, takes_effect=takes_effect
        )
        faults.add(fault)
        faults.cut_connections()
        if site == "west":
            line.end_locks()
        host.go_on()
        line.wait_until(lambda: struck(faults) or not line.remaining(), "struck or carried")
        was_struck = struck(faults) > 0
        if was_struck and takes_effect and site == "east":
            line.expect_repeats({name for name in line.at_target() if name.startswith(f"{number}-")})
        if site == "west":
            line.end_locks()
        line.wait_until_carried()
        faults.clear()
        if not was_struck:
            assert number > 1, f"{line.route}: there was no operation to cut the connection at"
            return
    raise AssertionError(f"{line.route}: more than {_MOST_OPERATIONS} operations for four messages")


_ALL = frozenset(Operation)

CUTS = [
    *(
        Scenario(
            "source cut at every operation", route, partial(_play, site="west", operations=_ALL, takes_effect=False)
        )
        for route in (QUEUES, SESSIONS, HUBS)
    ),
    *(
        Scenario(
            "target cut at every operation", route, partial(_play, site="east", operations=_ALL, takes_effect=False)
        )
        for route in (QUEUES, SESSIONS, SESSIONS_TO_HUB, HUB_TO_SESSIONS, HUBS)
    ),
    *(
        Scenario(
            "acknowledgement of a send lost",
            route,
            partial(_play, site="east", operations=frozenset({Operation.SEND}), takes_effect=True),
            explains="accepted, and the connection broke before the answer: once more",
            repeats=True,
        )
        for route in (QUEUES, SESSIONS, SESSIONS_TO_HUB, HUB_TO_SESSIONS, HUBS)
    ),
    *(
        Scenario(
            "acknowledgement of a settlement lost",
            route,
            partial(_play, site="west", operations=frozenset({Operation.SETTLE}), takes_effect=True),
        )
        for route in (QUEUES, SESSIONS)
    ),
]
