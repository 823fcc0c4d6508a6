"""The duty that measures the status of all tasks for metrics and alerts."""

from collections.abc import Mapping

from functions.timers import Duty
from shared.assembly.measurements import measurements
from shared.assembly.status import StatusReader
from shared.protocols import StatusTelemetry
from shared.tasks.files import Configuration

NAME = "busway-measurements"
# On the Standard tier each peeked message counts against what the namespace may do in a second.
MOST_PEEKED = 100


def measurements_duty(
    configuration: Configuration, settings: Mapping[str, str], telemetry: StatusTelemetry, schedule: str
) -> Duty:
    """Return the duty."""
    reader = StatusReader(configuration, settings, most_peeked=MOST_PEEKED)

    async def measure() -> None:
        telemetry.measured(measurements(configuration, await reader.read()))

    return Duty(NAME, measure, schedule)
