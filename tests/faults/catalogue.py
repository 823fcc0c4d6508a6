"""All scenarios."""

from tests.faults.cuts import CUTS
from tests.faults.kills import KILLS
from tests.faults.outages import OUTAGES

SCENARIOS = [*KILLS, *CUTS, *OUTAGES]

# A scenario mostly waits: for a host to start, for the SDKs to open and close connections.
PLAYED_AT_ONCE = 4
