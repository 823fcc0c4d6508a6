"""All scenarios; the tests run them without the soak."""

from tests.faults.amqp import AMQP
from tests.faults.cuts import CUTS
from tests.faults.envelopes import ENVELOPED
from tests.faults.event_grid import EVENT_GRID
from tests.faults.holds import HOLDS
from tests.faults.kafka import KAFKA
from tests.faults.kills import KILLS
from tests.faults.outages import OUTAGES
from tests.faults.several_targets import SEVERAL_TARGETS
from tests.faults.single_dispatch import SINGLE_DISPATCH
from tests.faults.soak import SOAK
from tests.faults.stops import STOPS
from tests.faults.storage_queues import STORAGE_QUEUES

SCENARIOS = [
    *(*KILLS, *STOPS, *CUTS, *OUTAGES, *HOLDS, *ENVELOPED, *STORAGE_QUEUES, *EVENT_GRID, *KAFKA, *AMQP),
    *(*SINGLE_DISPATCH, *SEVERAL_TARGETS, *SOAK),
]

# A scenario mostly waits: for a host to start, for the SDKs to open and close connections.
CONCURRENT_SCENARIOS = 4
