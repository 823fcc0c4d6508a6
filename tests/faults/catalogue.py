"""All scenarios."""

from tests.faults.amqp import AMQP
from tests.faults.cuts import CUTS
from tests.faults.envelopes import ENVELOPED
from tests.faults.event_grid import EVENT_GRID
from tests.faults.holds import HOLDS
from tests.faults.kafka import KAFKA
from tests.faults.kills import KILLS
from tests.faults.stops import STOPS
from tests.faults.storage_queues import STORAGE_QUEUES

SCENARIOS = [*KILLS, *STOPS, *CUTS, *HOLDS, *ENVELOPED, *STORAGE_QUEUES, *EVENT_GRID, *KAFKA, *AMQP]

# A scenario mostly waits: for a host to start, for the SDKs to open and close connections.
CONCURRENT_SCENARIOS = 4
