"""The timer that measures the status of all tasks for metrics and alerts."""

from collections.abc import Mapping

import azure.functions as func

from shared.config.files import Configuration
from shared.config.measurements import measurements
from shared.config.status_assembly import StatusReader
from shared.protocols import StatusTelemetry

NAME = "busway-measurements"
# On the Standard tier each peeked message counts against what the namespace may do in a second.
MOST_PEEKED = 100


def register_measurements(
    app: func.FunctionApp,
    configuration: Configuration,
    settings: Mapping[str, str],
    telemetry: StatusTelemetry,
    schedule: str,
) -> None:
    """Add the timer to *app*; the host runs it in one instance, off the path of messages."""
    reader = StatusReader(configuration, settings, most_peeked=MOST_PEEKED)

    async def measure(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        telemetry.measured(measurements(configuration, await reader.read()))

    decorated = app.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=False)(measure)
    app.function_name(NAME)(decorated)
