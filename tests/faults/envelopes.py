"""Messages in envelopes: the host sends several texts for each batch, and fails between two of them."""

from busway_broker.faults import Effect, Fault, Operation
from tests.faults.line import Line
from tests.faults.parties import drafts
from tests.faults.routes import CARRIER, ENVELOPES
from tests.faults.scenario import Scenario

# More often than the SDK of the host tries.
_TIMES = 6


def _fill(line: Line) -> None:
    """Let sends of the host fail, from the second text on."""
    sends = frozenset({Operation.SEND})
    line.target.add(Fault(effect=Effect.FILL, entity=CARRIER, operations=sends, at=2, times=_TIMES))
    line.send(drafts(line.route))
    line.host()
    line.wait_until_struck(line.target, _TIMES)
    line.wait_until_drained()


# The simulation has carriers with the other effects, and with kills between two texts; this needs the SDK of the host.
ENVELOPED = [Scenario("output of the host fails: full", ENVELOPES, _fill, is_short=True)]
