"""
The end of a host as on Azure: scale-in (SIGTERM, 10 s of grace, SIGKILL) and function timeout.

In both the function notices nothing. What it had in hand comes again; what it had sent by then is duplicated.
"""

import threading

from local.broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, QUEUES, SESSIONS, SESSIONS_TO_HUB
from tests.faults.scenario import Scenario

# Longer than the grace, a function timeout with all that follows, and the scenario.
_HELD_SECONDS = 600.0
_STOP_SECONDS = 40.0
_FUNCTION_TIMEOUT = {"AzureFunctionsJobHost__functionTimeout": "00:00:04"}
_AFTER_TIMEOUT_SECONDS = 90.0

_IN_HAND = "in hand when the worker was killed: sent again"


def _held() -> Fault:
    return Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=_HELD_SECONDS)


def _scale_in(line: Line) -> None:
    """Stop a host whose function waits for an answer beyond the grace, and let another one continue."""
    line.send(drafts(line.route))
    line.target.add(_held())
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    assert host.stop(_STOP_SECONDS) == 0, "the host did not stop"
    line.target.clear()
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


def _scale_in_under_load(line: Line) -> None:
    """Stop a host while messages keep coming: its listener takes them until the end of the grace."""
    host = line.host()
    line.send(drafts(line.route, "before-"))
    stopping = threading.Thread(target=host.stop, args=(_STOP_SECONDS,))
    stopping.start()
    number = 0
    while stopping.is_alive():
        line.send(drafts(line.route, f"{number}-", keys=2, each=2))
        number += 1
        stopping.join(0.2)
    taken = len(line.names_at_target())
    assert taken > len(drafts(line.route)), f"{taken} messages at the target: none was taken during the grace"
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


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


STOPS = [
    *(
        Scenario("scale-in with a batch in hand", route, _scale_in, explains=_IN_HAND, repeats=True)
        for route in (QUEUES, SESSIONS, HUB_TO_SESSIONS)
    ),
    *(
        Scenario("scale-in under load", route, _scale_in_under_load, explains=_IN_HAND, repeats=None)
        for route in (QUEUES, SESSIONS_TO_HUB)
    ),
    *(
        Scenario("function timeout", route, _time_out, explains=_IN_HAND, repeats=True)
        for route in (QUEUES, SESSIONS, HUB_TO_SESSIONS)
    ),
]
