"""
The end of a host as on Azure: SIGTERM with 10 s of grace, and function timeout; `holds` has drains and restarts.

And a host that does nothing for a while.

What it had in hand comes again; what it had sent by then and not settled is duplicated.
"""

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

# Longer than the grace, a function timeout with all that follows, and the scenario.
_HELD_SECONDS = 600.0
_STOP_SECONDS = 40.0
_FUNCTION_TIMEOUT = {"AzureFunctionsJobHost__functionTimeout": "00:00:04"}
_AFTER_TIMEOUT_SECONDS = 90.0

_SMALL_BATCHES = {"AzureFunctionsJobHost__extensions__serviceBus__maxMessageBatchSize": "2"}
# Sixty batches take longer than the grace.
_SLOW_SECONDS = 0.5

IN_HAND = "in hand when the worker was killed: sent again"


def _held() -> Fault:
    return Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=_HELD_SECONDS)


def scale_in(line: Line) -> None:
    """Stop a host whose function waits for an answer beyond the grace, and let another one continue."""
    line.send(drafts(line.route))
    line.target.add(_held())
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    assert host.stop(_STOP_SECONDS) == 0, "the host did not stop"
    line.target.clear()
    line.go_on_with_another_host()


def _scale_in_under_load(line: Line) -> None:
    """Stop a host with a backlog that outlasts the grace: its listener takes batches until the worker is killed."""
    line.target.add(Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=_SLOW_SECONDS))
    line.send(drafts(line.route, keys=60, each=2))
    host = line.host(settings=_SMALL_BATCHES)
    line.wait_until(line.names_at_target, "at work")
    before = len(line.names_at_target())
    assert host.stop(_STOP_SECONDS) == 0, "the host did not stop"
    during = len(line.names_at_target()) - before
    # A host that stopped receiving at the signal would send what it had in hand: two messages.
    assert during > 4, f"{during} messages were sent during the grace"
    assert line.remaining(), "the backlog did not outlast the grace"
    line.target.clear()
    line.go_on_with_another_host()


def _time_out(line: Line) -> None:
    """Let a function run into its timeout: its worker is killed, and the host's next one continues."""
    line.send(drafts(line.route))
    line.target.add(_held())
    host = line.host(is_awaited=False, settings=_FUNCTION_TIMEOUT)
    line.wait_until_struck(line.target)
    line.wait_until(lambda: "the worker is killed" in host.log(), "timed out")
    # The listener hears of it ten seconds later, so nothing comes again before.
    line.target.clear()
    line.expect_repeats(line.sent_but_unsettled())
    line.wait_until_drained(_AFTER_TIMEOUT_SECONDS)


def _freeze(line: Line) -> None:
    """Freeze the host for longer than a lock, with messages in transit to it."""
    host = line.host()
    host.pause()
    line.send(drafts(line.route))
    line.end_locks()
    # Messages in transit are redelivered over the same link: the host gets them twice in one batch and sends them once.
    host.resume()
    line.wait_until_drained()


STOPS = [
    Scenario("host frozen for longer than a lock", SESSIONS, _freeze, is_short=True),
    *(
        Scenario(name, route, action, explains=IN_HAND, repeats=repeats)
        for name, route, action, repeats in (
            ("scale-in with a batch in hand", HUB_TO_SESSIONS, scale_in, True),
            ("scale-in under load", SESSIONS_TO_HUB, _scale_in_under_load, None),
            ("function timeout", SESSIONS, _time_out, True),
        )
    ),
]
