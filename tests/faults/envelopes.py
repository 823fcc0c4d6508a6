"""
Messages in envelopes: the host sends several texts for each batch, and fails or dies between two of them.

The host then delivers the whole batch again, in other texts. The task that opens envelopes takes each message once
while it remembers it; a new process remembers nothing.
"""

from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import CARRIER, ENVELOPES
from tests.faults.scenario import Scenario

_SENDS = frozenset({Operation.SEND})
_HELD_SECONDS = 600.0

_OPENED = "opened by a process that ended, before the batch came again"


def _at_carrier(effect: Effect, *, times: int | None = None, takes_effect: bool = False) -> Fault:
    """Return the fault that strikes from the second text on."""
    delay = _HELD_SECONDS if effect is Effect.DELAY else 0.0
    return Fault(
        effect=effect, entity=CARRIER, operations=_SENDS, at=2, times=times, takes_effect=takes_effect, delay=delay
    )


def _fail(line: Line, fault: Fault) -> None:
    """Let sends of the host fail while it runs."""
    line.target.add(fault)
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target, fault.times or 1)
    line.wait_until_drained()


def _kill(line: Line) -> None:
    """Kill the host between two texts of a batch, and let another one continue."""
    line.target.add(_at_carrier(Effect.DELAY))
    line.send(drafts(line.route))
    host = line.host(is_awaited=False)
    line.wait_until_struck(line.target)
    line.wait_until(line.names_at_target, "opened the first text")
    host.kill()
    line.target.clear()
    line.expect_repeats(line.sent_but_unsettled())
    line.end_locks()
    line.host()
    line.wait_until_drained()


# The simulation has carriers with the other effects and moments; these need the SDK of the host.
ENVELOPED = [
    # More often than the SDK of the host tries.
    Scenario(
        f"output of the host fails: {Effect.FILL}", ENVELOPES, partial(_fail, fault=_at_carrier(Effect.FILL, times=6))
    ),
    Scenario(
        "acknowledgement of a text lost",
        ENVELOPES,
        partial(_fail, fault=_at_carrier(Effect.DROP_CONNECTION, times=1, takes_effect=True)),
    ),
    Scenario("kill -9 between two texts", ENVELOPES, _kill, explains=_OPENED, repeats=True),
]
