"""The timer that starts the nightly reconciliation of the journals and reports its result."""

import logging

import azure.functions as func

from shared.nightly.container_job import ContainerJob
from shared.nightly.hours import Hours
from shared.nightly.night import Night
from shared.nightly.settings import NightlySettings
from shared.protocols import LossTelemetry, NightTelemetry

_LOGGER = logging.getLogger("busway.nightly")

NAME = "nightly-reconciliation"


def register_nightly(
    app: func.FunctionApp, settings: NightlySettings, telemetry: NightTelemetry, losses: LossTelemetry
) -> None:
    """
    Add the timer to *app*.

    Each call does what is due by then, so a late or repeated call does no harm.
    """
    night = Night(settings, None if settings.job is None else ContainerJob(settings.job), telemetry)
    hours = Hours(settings, losses)

    async def look(timer: func.TimerRequest) -> None:
        if timer.past_due:
            _LOGGER.info("%s: the timer is past due; catching up now", NAME)
        try:
            await night.look()
        finally:
            await hours.look()

    decorated = app.timer_trigger(arg_name="timer", schedule=settings.schedule, run_on_startup=False)(look)
    app.function_name(NAME)(decorated)
