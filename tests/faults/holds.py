"""Batches that a host holds for many locks, and for longer than it lasts itself: in real time, which a host has."""

from datetime import timedelta
from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import QUEUE_TO_HUB, SESSION_QUEUES, SUBSCRIPTION_TO_TOPIC
from tests.faults.scenario import Scenario

_SHORT_LOCK = timedelta(seconds=10)
_HELD_SECONDS = 13.0
_DRAIN_SECONDS = 5
_TO_END_SECONDS = 30.0


def _busy(line: Line) -> None:
    """Copy a session of 5,000 messages that is never idle, for many locks and link idle times."""
    line.target.add(Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=1.5))
    line.send(drafts(line.route, keys=1, each=5_000))
    line.host()
    line.wait_until_drained(180.0)


def _ended(line: Line, ending: str) -> None:
    """End the host while its batches wait, for longer than their locks; another one continues."""
    line.target.go_down()
    line.send(drafts(line.route))
    arguments = () if ending == "kill" else (f"--ending={ending}", f"--drain-seconds={_DRAIN_SECONDS}")
    host = line.host(arguments=arguments)
    line.wait_until(lambda: "the batch waits and is retried" in host.log(), "waiting for the target")
    line.let_pass(_HELD_SECONDS)
    if ending == "kill":
        host.kill()
    else:
        host.stop(_TO_END_SECONDS)
    line.expect_repeats(line.sent_but_unsettled())
    line.host()
    line.target.come_up()
    line.wait_until_drained(2 * _HELD_SECONDS + _TO_END_SECONDS)


HOLDS = [
    Scenario(
        "busy session of 5,000 messages, lock of 10 s",
        SESSION_QUEUES,
        _busy,
        most_failed=0,
        lock=_SHORT_LOCK,
        link_idle=timedelta(seconds=20),
    ),
    *(
        Scenario(
            f"{ending} while batches wait",
            route,
            partial(_ended, ending=ending),
            explains="in hand when the host ended: sent again",
            repeats=None,
            lock=_SHORT_LOCK,
        )
        for ending, route in (("drain", SESSION_QUEUES), ("restart", SUBSCRIPTION_TO_TOPIC), ("kill", QUEUE_TO_HUB))
    ),
]
