"""
The connection to source or target breaks at each operation in turn, with and without lost acknowledgements.

One host processes several sets of messages. While it is paused, its connections are cut and the next set is sent. Its
first operation after that is number 1, and in the n-th set the connection breaks at operation n. When a set is
delivered without a break, every operation has been tested.
"""

from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line, strikes
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, QUEUES, Kind
from tests.faults.scenario import Scenario

_MOST_OPERATIONS = 60


def cut_at_each(line: Line, site: str, operations: frozenset[Operation], *, takes_effect: bool) -> None:
    """Cut the connection to the namespace *site* at each operation in turn, before or after it takes effect."""
    faults = line.broker.faults(site)
    host = line.host()
    for number in range(1, _MOST_OPERATIONS):
        host.pause()
        line.send(drafts(line.route, f"{number}-", keys=2, each=1))
        fault = Fault(
            effect=Effect.DROP_CONNECTION, operations=operations, at=number, times=1, takes_effect=takes_effect
        )
        faults.add(fault)
        faults.cut_connections()
        if site == "west":
            line.end_locks()
        host.resume()
        line.wait_until(lambda: strikes(faults) or not line.remaining(), "struck or drained")
        was_struck = strikes(faults) > 0
        # What comes from two partitions, goes one by one to two keys of a hub, or goes to a broker of kind amqp, is in
        # flight on one link: a cut before one transfer may take the answer to the other.
        route = line.route
        shares_link = (
            route.is_amqp
            or (route.source is Kind.HUB and route.target is not Kind.HUB)
            or (route.is_single and route.target is Kind.HUB)
        )
        if was_struck and (takes_effect or shares_link) and site == "east":
            line.expect_repeats({name for name in line.names_at_target() if name.startswith(f"{number}-")})
        if site == "west":
            line.end_locks()
        line.wait_until_drained()
        faults.clear()
        if not was_struck:
            assert number > 1, f"{line.route}: found no operation at which to cut the connection"
            return
    raise AssertionError(f"{line.route}: more than {_MOST_OPERATIONS} operations for four messages")


# What a socket has, at the source and at the target: the simulation loses requests and answers on all routes.
CUTS = [
    Scenario(
        "source cut at every operation",
        QUEUES,
        partial(cut_at_each, site="west", operations=frozenset(Operation), takes_effect=False),
    ),
    Scenario(
        "target cut at every operation",
        HUB_TO_SESSIONS,
        partial(cut_at_each, site="east", operations=frozenset(Operation), takes_effect=False),
        explains="accepted beside the batch that was cut, without an answer: sent again",
        repeats=None,
        is_short=True,
    ),
    Scenario(
        "acknowledgement of a settlement lost",
        QUEUES,
        partial(cut_at_each, site="west", operations=frozenset({Operation.SETTLE}), takes_effect=True),
    ),
]
