"""
kill -9 of the host at a certain point of the line.

The broker holds the host at the point: it keeps back the answer for which the host waits. Then the host is killed,
locks end as they would with time, and another host carries on.
"""

from functools import partial

from local.broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import letters
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

# Longer than any scenario lasts.
_HELD_SECONDS = 600.0
# Large enough for a batch of the host to go out in several batches of the link.
_LARGE = 20_000

_IN_HAND = "sent before the kill, and not settled: each once more"


def _held(operation: Operation, at: int = 1) -> Fault:
    """Return the fault that carries out an operation and keeps its answer back."""
    return Fault(effect=Effect.DELAY, operations=frozenset({operation}), at=at, delay=_HELD_SECONDS)


def _play(line: Line, site: str, fault: Fault, *, size: int = 100) -> None:
    """Kill the first host when *fault* has struck in the namespace *site*, and let a second one carry on."""
    line.send(letters(line.route, size=size))
    faults = line.broker.faults(site)
    faults.add(fault)
    # A host that is held while it starts does not get ready.
    host = line.host(is_awaited=False)
    line.wait_until_struck(faults)
    host.kill()
    faults.clear()
    line.expect_repeats(line.in_hand())
    line.end_locks()
    line.host()
    line.wait_until_carried()


def _mid_batch(line: Line) -> None:
    """Kill the host when the second of a batch's sends has been carried out and not answered."""
    line.send(letters(line.route, keys=1, each=30, size=_LARGE))
    line.target.add(_held(Operation.SEND, at=2))
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    host.kill()
    line.target.clear()
    sent = set(line.at_target())
    assert 0 < len(sent) < 30, f"{len(sent)} of the batch were sent, expected it to be under way"
    line.expect_repeats(line.in_hand())
    line.end_locks()
    line.host()
    line.wait_until_carried()


def _again_and_again(line: Line) -> None:
    """Kill one host after the other, each when its third send has been carried out and not answered."""
    line.send(letters(line.route, keys=4, each=20))
    for _ in range(4):
        line.target.add(_held(Operation.SEND, at=2))
        host = line.host(is_awaited=False)
        line.wait_until_struck(line.target)
        host.kill()
        line.target.clear()
        line.expect_repeats(line.in_hand())
        line.end_locks()
    line.host()
    line.wait_until_carried()


def _refused(at: int) -> Fault:
    """Return the fault that makes the host wait, with a batch in hand of which nothing has been sent."""
    return Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SEND}), at=at)


_ROUTES = (QUEUES, SESSIONS, SESSIONS_TO_HUB, HUB_TO_SESSIONS, HUBS)
_SETTLING = (QUEUES, SESSIONS, SESSIONS_TO_HUB)

KILLS = [
    *(
        Scenario(
            "kill -9 at start: opening the source", route, partial(_play, site="west", fault=_held(Operation.AUTHORIZE))
        )
        for route in (SESSIONS, HUBS)
    ),
    *(
        Scenario(
            "kill -9 at start: first message under way",
            route,
            partial(_play, site="west", fault=_held(Operation.TRANSFER)),
        )
        for route in (QUEUES, HUBS)
    ),
    *(
        Scenario("kill -9 between receive and send", route, partial(_play, site="east", fault=_held(Operation.ATTACH)))
        for route in _ROUTES
    ),
    *(
        Scenario(
            "kill -9 between receive and send, second batch",
            route,
            partial(_play, site="east", fault=_refused(2)),
            explains=_IN_HAND,
            repeats=None,
        )
        for route in (SESSIONS, HUB_TO_SESSIONS)
    ),
    *(
        Scenario(
            "kill -9 between send and settle",
            route,
            partial(_play, site="east", fault=_held(Operation.SEND)),
            explains=_IN_HAND,
            repeats=True,
        )
        for route in _ROUTES
    ),
    *(
        Scenario(
            "kill -9 while settling",
            route,
            partial(_play, site="west", fault=_held(Operation.SETTLE)),
            explains=_IN_HAND,
        )
        for route in _SETTLING
    ),
    *(
        Scenario("kill -9 mid-batch", route, _mid_batch, explains=_IN_HAND, repeats=True)
        for route in (QUEUES, SESSIONS, HUB_TO_SESSIONS)
    ),
    *(
        Scenario("kill -9 four times over", route, _again_and_again, explains=_IN_HAND, repeats=True)
        for route in (SESSIONS, HUB_TO_SESSIONS)
    ),
]
