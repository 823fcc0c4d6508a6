"""An unavailable, throttling or silent target, lost locks and late redeliveries, mostly in virtual time."""

import random
from datetime import timedelta

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, SESSIONS_IN_LANES
from tests.faults.scenario import Scenario
from tests.faults.virtual_time import LineWithHostAhead, LineWithHostBehind, VirtualLine

_OUTAGE_SECONDS = 600.0
_WINDOW = timedelta(minutes=10)
_HELD_SECONDS = 100_000.0
_SENDS = frozenset({Operation.SEND})
_SETTLEMENTS = frozenset({Operation.SETTLE})


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


def lock_lost_at_settlement(line: Line) -> None:
    """Expire the locks just before the batch is settled, twice."""
    line.source.add(Fault(effect=Effect.EXPIRE_LOCKS, operations=_SETTLEMENTS, at=3, times=2))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.source, 2)
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


def _within_window(line: Line) -> None:
    """Kill the host between send and settle, and let the next one send again within the duplicate window."""
    _send_again_after(line, _WINDOW.total_seconds() / 2)


def _after_window(line: Line) -> None:
    """Kill the host between send and settle, and let the next one send again after the duplicate window."""
    line.expect_repeats(_send_again_after(line, _WINDOW.total_seconds() + 60))


def _send_again_after(line: Line, seconds: float) -> frozenset[str]:
    line = virtual(line)
    line.target.add(Fault(effect=Effect.DELAY, operations=_SENDS, delay=_HELD_SECONDS))
    line.send(drafts(line.route))
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    host.kill()
    line.target.clear()
    sent = line.sent_but_unsettled()
    assert sent, f"{line.route}: nothing was sent before the kill"
    line.advance(seconds)
    line.host()
    line.wait_until_drained()
    return sent


def _same_host_after_window(line: Line) -> None:
    """Cut the source before the batch is settled; the same host gets it again after the duplicate window."""
    line = virtual(line)
    line.source.add(Fault(effect=Effect.DROP_CONNECTION, operations=_SETTLEMENTS, times=1))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.source)
    line.advance(_WINDOW.total_seconds() + 60)
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
    Scenario("lock lost before settling", SESSIONS, lock_lost_at_settlement),
    Scenario("host frozen for longer than a lock", SESSIONS, frozen),
    Scenario(
        "sent again within the duplicate window", SESSIONS, _within_window, line=VirtualLine, duplicate_window=_WINDOW
    ),
    Scenario(
        "sent again after the duplicate window",
        SESSIONS,
        _after_window,
        explains="by another host after the duplicate window",
        repeats=True,
        line=VirtualLine,
        duplicate_window=_WINDOW,
    ),
    Scenario(
        "redelivered to the same host after the duplicate window",
        SESSIONS,
        _same_host_after_window,
        line=VirtualLine,
        duplicate_window=_WINDOW,
    ),
    Scenario(
        "two hosts on one source, one killed",
        QUEUES,
        _two_hosts,
        explains="sent but not settled by the killed host: sent again",
        repeats=None,
    ),
    *(
        Scenario(
            f"host's clock {skew}", HUB_TO_SESSIONS, _skewed, line=line, lock=timedelta(seconds=20), ttl="remaining"
        )
        for skew, line in (("5 s ahead", LineWithHostAhead), ("5 s behind", LineWithHostBehind))
    ),
]

# The simulation has these three too, with locks, duplicate windows and clocks of its own; the others need the SDKs.
_AT_NIGHT = ("sent again within", "redelivered to the same", "host's clock 5 s ahead")
SHORT = [each for each in OUTAGES if not each.name.startswith(_AT_NIGHT)]
"""What also runs with all other tests."""
