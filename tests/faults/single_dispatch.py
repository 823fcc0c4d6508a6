"""Faults on tasks whose messages the host delivers one by one; `SHORT` are those that the tests run."""

from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from shared.line.deadline import LONGEST_ATTEMPT_SECONDS
from tests.faults.cuts import cut_at_each
from tests.faults.kills import SENT_BUT_UNSETTLED, held, kill_at, kill_mid_batch, kill_repeatedly
from tests.faults.line import Line
from tests.faults.outages import frozen, lock_lost_at_settlement, lock_lost_while_waiting, outage, throttling
from tests.faults.parties import drafts
from tests.faults.routes import QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE, SESSIONS_TO_HUB_ONE_BY_ONE
from tests.faults.scenario import Scenario
from tests.faults.stops import IN_HAND, scale_in
from tests.faults.virtual_time import VirtualLine

_EVERY_ROUTE = (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE, SESSIONS_TO_HUB_ONE_BY_ONE)
_ALL = frozenset(Operation)
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


def _silence(line: Line) -> None:
    """Let the target accept a batch and never answer; no lock ends the attempt, only its own limit."""
    line.target.add(Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, operations=_SEND, times=1))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target)
    line.expect_repeats(line.names_at_target())
    line.wait_until_drained(LONGEST_ATTEMPT_SECONDS + 60)


SHORT = [
    Scenario("kill -9 mid-batch", SESSIONS_ONE_BY_ONE, kill_mid_batch, explains=SENT_BUT_UNSETTLED, repeats=True),
    Scenario("target throttles every other send", SESSIONS_ONE_BY_ONE, throttling, line=VirtualLine),
]

SINGLE_DISPATCH = [
    *SHORT,
    *(
        Scenario(
            "kill -9 between send and settle",
            route,
            partial(kill_at, site="east", fault=held(Operation.SEND)),
            explains=SENT_BUT_UNSETTLED,
            repeats=True,
        )
        for route in _EVERY_ROUTE
    ),
    *(
        Scenario(
            "kill -9 while settling",
            route,
            partial(kill_at, site="west", fault=held(Operation.SETTLE)),
            explains=SENT_BUT_UNSETTLED,
            repeats=None,
        )
        for route in _EVERY_ROUTE
    ),
    *(
        Scenario("kill -9 four times over", route, kill_repeatedly, explains=SENT_BUT_UNSETTLED, repeats=True)
        for route in _EVERY_ROUTE
    ),
    Scenario(
        "kill -9 with 60 sessions in hand",
        SESSIONS_ONE_BY_ONE,
        _many_sessions,
        explains=SENT_BUT_UNSETTLED,
        repeats=None,
    ),
    *(
        Scenario("scale-in with messages in hand", route, scale_in, explains=IN_HAND, repeats=True)
        for route in (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE)
    ),
    *(
        Scenario(
            "source cut at every operation",
            route,
            partial(cut_at_each, site="west", operations=_ALL, takes_effect=False),
        )
        for route in (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE)
    ),
    *(
        Scenario(
            "target cut at every operation",
            route,
            partial(cut_at_each, site="east", operations=_ALL, takes_effect=False),
            explains="accepted beside the batch that was cut, without an answer: sent again",
            repeats=None,
        )
        for route in _EVERY_ROUTE
    ),
    *(
        Scenario(
            "acknowledgement of a send lost",
            route,
            partial(cut_at_each, site="east", operations=_SEND, takes_effect=True),
            explains="accepted, but the connection broke before the answer: sent again",
            repeats=True,
        )
        for route in _EVERY_ROUTE
    ),
    *(Scenario("target down for 10 minutes", route, outage, line=VirtualLine) for route in _EVERY_ROUTE),
    Scenario("target throttles every other send", SESSIONS_TO_HUB_ONE_BY_ONE, throttling, line=VirtualLine),
    *(
        Scenario(
            "target never answers a send",
            route,
            _silence,
            explains="accepted but never answered: sent again",
            repeats=True,
        )
        for route in (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE)
    ),
    *(
        Scenario("lock lost while the target is busy", route, lock_lost_while_waiting, line=VirtualLine)
        for route in _EVERY_ROUTE
    ),
    *(
        Scenario("lock lost before settling", route, lock_lost_at_settlement)
        for route in (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE)
    ),
    *(
        Scenario("host frozen for longer than a lock", route, frozen)
        for route in (QUEUES_ONE_BY_ONE, SESSIONS_ONE_BY_ONE)
    ),
]
