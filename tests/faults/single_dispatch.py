"""Faults on tasks whose messages the host delivers one by one; `SHORT` are those that the tests run."""

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.kills import SENT_BUT_UNSETTLED, kill_mid_batch
from tests.faults.line import Line
from tests.faults.outages import throttling
from tests.faults.parties import drafts
from tests.faults.routes import SESSIONS_ONE_BY_ONE
from tests.faults.scenario import Scenario
from tests.faults.virtual_time import VirtualLine

_SEND = frozenset({Operation.SEND})


def _many_sessions(line: Line) -> None:
    """Kill the host while it has many sessions in hand, and let another one continue."""
    line.target.add(Fault(effect=Effect.DELAY, operations=_SEND, delay=0.2))
    line.send(drafts(line.route, keys=60, each=3))
    host = line.host()
    line.wait_until(line.names_at_target, "at work")
    host.kill()
    line.target.clear()
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


SHORT = [
    Scenario("kill -9 mid-batch", SESSIONS_ONE_BY_ONE, kill_mid_batch, explains=SENT_BUT_UNSETTLED, repeats=True),
    Scenario("target throttles every other send", SESSIONS_ONE_BY_ONE, throttling, line=VirtualLine),
]

SINGLE_DISPATCH = [
    *SHORT,
    Scenario(
        "kill -9 with 60 sessions in hand",
        SESSIONS_ONE_BY_ONE,
        _many_sessions,
        explains=SENT_BUT_UNSETTLED,
        repeats=None,
    ),
]
"""The simulation has the others, and all moments."""
