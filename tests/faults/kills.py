"""
kill -9 of the host at a certain step.

The broker stops the host at that step by withholding the answer for which it waits. Then the host is killed,
its locks expire, and another host continues.
"""

from dataclasses import replace
from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, SESSIONS_IN_LANES, SESSIONS_ONE_BY_ONE
from tests.faults.scenario import Scenario

# Longer than any scenario.
_HELD_SECONDS = 600.0
# Large enough that the link sends a batch of the host in several batches.
_LARGE = 20_000

SENT_BUT_UNSETTLED = "sent but not settled before the kill: sent again"


def held(operation: Operation, at: int = 1) -> Fault:
    """Return the fault that performs an operation and withholds its answer."""
    return Fault(effect=Effect.DELAY, operations=frozenset({operation}), at=at, delay=_HELD_SECONDS)


def kill_at(line: Line, site: str, fault: Fault, *, size: int = 100) -> None:
    """Kill the first host when *fault* has occurred in the namespace *site*, and let a second host continue."""
    line.send(drafts(line.route, size=size))
    faults = line.broker.faults(site)
    faults.add(fault)
    # A host that is stopped during its start does not become ready.
    host = line.host(is_awaited=False)
    line.wait_until_struck(faults)
    host.kill()
    faults.clear()
    line.go_on_with_another_host()


def kill_mid_batch(line: Line) -> None:
    """Kill the host when the second send of a batch was performed and not answered."""
    line.send(drafts(line.route, keys=1, each=30, size=_LARGE))
    line.target.add(replace(held(Operation.SEND, at=2), times=1))
    # What other lanes send until the host is dead is not performed: the first two sends are a part of the messages.
    line.target.add(Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SEND}), at=2))
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    host.kill()
    line.target.clear()
    sent = set(line.names_at_target())
    assert 0 < len(sent) < 30, f"{len(sent)} messages of the batch were sent, expected some but not all"
    line.go_on_with_another_host()


def _many_sessions(line: Line) -> None:
    """Kill the host while it has many sessions in hand, and let another one continue."""
    line.target.add(Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=0.2))
    line.send(drafts(line.route, keys=60, each=3))
    host = line.host()
    line.wait_until(line.names_at_target, "at work")
    host.kill()
    line.target.clear()
    line.go_on_with_another_host()


# What only a process has: SIGKILL before a send, and in the middle of a batch. The simulation kills at every request,
# on all routes.
KILLS = [
    Scenario(
        "kill -9 between receive and send",
        HUB_TO_SESSIONS,
        partial(kill_at, site="east", fault=held(Operation.ATTACH)),
        is_short=True,
    ),
    Scenario(
        "kill -9 mid-batch",
        SESSIONS_IN_LANES,
        kill_mid_batch,
        explains=SENT_BUT_UNSETTLED,
        repeats=True,
        is_short=True,
    ),
    Scenario(
        "kill -9 with 60 sessions in hand",
        SESSIONS_ONE_BY_ONE,
        _many_sessions,
        explains=SENT_BUT_UNSETTLED,
        repeats=None,
    ),
]
