"""
Targets that are away for longer than the service lets a receiver wait: link, lock, hold and delivery budget.

The link of a receiver ends after ten minutes without activity (SR4), a lock after a minute, a hold after fifteen
minutes, and a message is dead-lettered after ten deliveries.
"""

from datetime import timedelta
from functools import partial
from pathlib import Path

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.outages import outage
from tests.faults.parties import Draft, drafts, send
from tests.faults.routes import (
    QUEUE_TO_HUB,
    SESSION_QUEUES,
    SUBSCRIPTION_TO_TOPIC,
    TWIN,
    TWIN_QUEUES,
    Kind,
    Route,
)
from tests.faults.scenario import Scenario
from tests.faults.virtual_time import VirtualLine

_PAST_LINK_IDLE_SECONDS = 11 * 60
# Longer than two holds, and than ten deliveries of one lock each.
_PAST_HOLDS_SECONDS = 40 * 60

_HOLD_SECONDS = 15 * 60

_SHORT_LOCK = timedelta(seconds=10)
_HELD_SECONDS = 13.0
_DRAIN_SECONDS = 5
_TO_END_SECONDS = 30.0


def _refused(line: Line) -> None:
    """Refuse a renewal now and then, although the lock is held (SR10)."""
    is_session = line.route.source is Kind.SESSIONS
    refusal = Fault(
        effect=Effect.REFUSE,
        operations=frozenset({Operation.MANAGE}),
        request="renew-session-lock" if is_session else "renew-lock",
        at=3,
        every=7 if is_session else 250,
        condition=f"com.microsoft:{'session' if is_session else 'message'}-lock-lost",
    )
    line.source.add(refusal)
    outage(line, _PAST_LINK_IDLE_SECONDS)
    line.wait_until_struck(line.source)


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


class _TwinLine(VirtualLine):
    """A line whose app has another task, with sessions of the same ids."""

    def __init__(self, route: Route, folder: Path, **options: object) -> None:
        """Add the task."""
        super().__init__(route, folder, **options)
        (folder / "tasks" / "twin.yaml").write_text(TWIN)


def _twins(line: Line) -> None:
    """Hold sessions of one id in two functions: the host renews one of them, and forgets it when either ends."""
    assert isinstance(line, _TwinLine)
    line.host()
    line.target.go_down()
    started = line.clock.monotonic()
    line.send(drafts(line.route, keys=1))
    twins = [Draft("k0", f"twin-{number}") for number in range(12)]
    send(line.broker.connection_string("west"), TWIN_QUEUES, twins)
    line.wait_until_passed(started + 5 * 60)
    line.target.come_up()
    line.wait_until_drained()
    line.wait_until(lambda: not line.stored("west", "twins"), "drained of the other task's messages")
    first = list(dict.fromkeys(line.stored("east", "twins")))
    assert first == [twin.name for twin in twins], f"the other task's messages arrived as {first}"


HOLDS = [
    *(
        Scenario(
            "target away for 40 minutes",
            route,
            partial(outage, seconds=_PAST_HOLDS_SECONDS),
            most_failed=_PAST_HOLDS_SECONDS // _HOLD_SECONDS,
            line=VirtualLine,
        )
        for route in (SESSION_QUEUES, SUBSCRIPTION_TO_TOPIC, QUEUE_TO_HUB)
    ),
    *(
        Scenario("renewals refused now and then", route, _refused, most_failed=0, line=VirtualLine)
        for route in (SESSION_QUEUES, QUEUE_TO_HUB)
    ),
    Scenario(
        "busy session of 5,000 messages, lock of 10 s",
        SESSION_QUEUES,
        _busy,
        most_failed=0,
        lock=timedelta(seconds=10),
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
    Scenario("two functions hold sessions of one id", SESSION_QUEUES, _twins, line=_TwinLine),
]

SHORT = [hold for hold in HOLDS if " 40 minutes" in hold.name and hold.route is SESSION_QUEUES]
"""What also runs with all other tests."""
