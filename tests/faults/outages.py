"""An unavailable, throttling or silent target, lost locks and skewed clocks, mostly in virtual time."""

import random
from datetime import timedelta

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, SESSIONS_IN_LANES
from tests.faults.scenario import Scenario
from tests.faults.virtual_time import LineWithHostBehind, VirtualLine

_OUTAGE_SECONDS = 600.0
_SENDS = frozenset({Operation.SEND})


def virtual(line: Line) -> VirtualLine:
    """Return *line* as one in virtual time."""
    assert isinstance(line, VirtualLine), f"{line.route}: the scenario needs virtual time"
    return line


def outage(line: Line, seconds: float = _OUTAGE_SECONDS) -> None:
    """Take the target's namespace down during traffic, for ten minutes unless said otherwise."""
    line = virtual(line)
    line.host()
    line.send(drafts(line.route, "before-"))
    line.wait_until_drained()
    line.target.go_down()
    started = line.clock.monotonic()
    line.send(drafts(line.route, "during-"))
    line.wait_until_passed(started + seconds)
    line.target.come_up()
    line.send(drafts(line.route, "after-"))
    line.wait_until_drained()


def throttling(line: Line) -> None:
    """Let the target throttle about every other send, at random."""
    line.target.add(Fault(effect=Effect.THROTTLE, operations=_SENDS, probability=0.5, seed=7))
    line.host()
    for number in range(6):
        line.send(drafts(line.route, f"{number}-", each=4))
    line.wait_until_struck(line.target, 2)
    line.wait_until_drained()


def silence(line: Line) -> None:
    """Let the target accept a batch and never answer, without closing the connection."""
    line.target.add(Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, operations=_SENDS, times=1))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target)
    line.expect_repeats(line.names_at_target())
    line.wait_until_drained()


def lock_lost_while_waiting(line: Line) -> None:
    """Expire the locks while the pipeline holds a batch for a throttling target."""
    line.target.add(Fault(effect=Effect.THROTTLE, operations=_SENDS, at=2, times=3))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target)
    line.end_locks()
    line.wait_until_drained()


def frozen(line: Line) -> None:
    """Freeze the host for longer than a lock, with messages in transit to it."""
    host = line.host()
    host.pause()
    line.send(drafts(line.route))
    line.end_locks()
    # Messages in transit are redelivered over the same link: the host gets them twice in one batch and sends them once.
    host.resume()
    line.wait_until_drained()


def _two_hosts(line: Line) -> None:
    """Let two hosts share the source, and kill one of them during traffic."""
    chance = random.Random(4)
    hosts = [line.host(), line.host()]
    for number in range(4):
        line.send(drafts(line.route, f"{number}-", keys=6, each=10))
    line.wait_until(lambda: all("busway.batch: carry:" in host.log() for host in hosts), "both hosts at work")
    line.send(drafts(line.route, "last-", keys=6, each=10))
    chance.choice(hosts).kill()
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.wait_until_drained()


def _skewed(line: Line) -> None:
    """Send messages with a time to live of one minute to a throttling target, with locks of twenty seconds."""
    line.target.add(Fault(effect=Effect.THROTTLE, operations=_SENDS, times=3))
    line.send(drafts(line.route, life=timedelta(minutes=1)))
    line.host()
    line.wait_until_struck(line.target, 3)
    line.wait_until_drained()


# Each kind on one route: the simulation has the others, and all moments.
OUTAGES = [
    Scenario("target down for 10 minutes", HUBS, outage, line=VirtualLine),
    Scenario("target throttles every other send", SESSIONS_IN_LANES, throttling, line=VirtualLine),
    Scenario(
        "target never answers a send",
        SESSIONS_IN_LANES,
        silence,
        explains="accepted but never answered: sent again",
        repeats=True,
        lock=timedelta(seconds=5),
    ),
    Scenario("lock lost while the target is busy", SESSIONS, lock_lost_while_waiting, line=VirtualLine),
    Scenario("host frozen for longer than a lock", SESSIONS, frozen),
    Scenario(
        "two hosts on one source, one killed",
        QUEUES,
        _two_hosts,
        explains="sent but not settled by the killed host: sent again",
        repeats=None,
    ),
    Scenario(
        "host's clock 5 s behind",
        HUB_TO_SESSIONS,
        _skewed,
        line=LineWithHostBehind,
        lock=timedelta(seconds=20),
        ttl="remaining",
    ),
]
