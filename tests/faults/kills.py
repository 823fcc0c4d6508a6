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
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, SESSIONS_IN_LANES, SESSIONS_TO_HUB
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
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


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
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


def kill_repeatedly(line: Line) -> None:
    """Kill one host after the other, each when its second send was performed and not answered."""
    for number in range(4):
        # Each host finds enough for a second send, whatever the sizes of its batches.
        line.send(drafts(line.route, f"{number}-", keys=4, each=20))
        line.target.add(held(Operation.SEND, at=2))
        host = line.host(is_awaited=False)
        line.wait_until_struck(line.target)
        host.kill()
        line.target.clear()
        line.expect_repeats(line.sent_but_unsettled())
        line.end_locks()
    line.host()
    line.wait_until_drained()


def _refused(at: int) -> Fault:
    """Return the fault that makes the host wait with a batch of which it has sent nothing."""
    return Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SEND}), at=at)


# Each kind on one route: the simulation has the others, and all moments.
KILLS = [
    Scenario(name, route, partial(kill_at, site=site, fault=fault), explains=SENT_BUT_UNSETTLED, repeats=repeats)
    for name, route, site, fault, repeats in (
        ("at start: opening the source", HUBS, "west", held(Operation.AUTHORIZE), False),
        ("at start: first message in transit", QUEUES, "west", held(Operation.TRANSFER), False),
        ("between receive and send", HUB_TO_SESSIONS, "east", held(Operation.ATTACH), False),
        ("between receive and send, second batch", SESSIONS, "east", _refused(2), None),
        ("between send and settle", SESSIONS, "east", held(Operation.SEND), True),
        ("while settling", QUEUES, "west", held(Operation.SETTLE), None),
    )
    for name in (f"kill -9 {name}",)
]
KILLS += [
    Scenario("kill -9 mid-batch", SESSIONS_IN_LANES, kill_mid_batch, explains=SENT_BUT_UNSETTLED, repeats=True),
    Scenario("kill -9 four times over", SESSIONS_TO_HUB, kill_repeatedly, explains=SENT_BUT_UNSETTLED, repeats=True),
]

SHORT = [kill for kill in KILLS if " at start" not in kill.name and " four times" not in kill.name]
"""What also runs with all other tests."""
