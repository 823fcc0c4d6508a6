"""The timer that has the journals of each day reconciled, and tells what came of it."""

import logging

import azure.functions as func

from shared.nightly.container_job import ContainerJob
from shared.nightly.night import Night
from shared.nightly.settings import NightlySettings
from shared.protocols import NightTelemetry

_LOGGER = logging.getLogger("busway.nightly")

NAME = "nightly-reconciliation"


def register_nightly(app: func.FunctionApp, settings: NightlySettings, telemetry: NightTelemetry) -> None:
    """
    Add the timer to *app*.

    Each call does what there is to do by the time it is, so one that comes late or twice does no harm.
    """
    night = Night(settings, None if settings.job is None else ContainerJob(settings.job), telemetry)

    async def look(timer: func.TimerRequest) -> None:
        if timer.past_due:
            _LOGGER.info("%s: the timer is past due; what has been missed is done now", NAME)
        await night.look()

    decorated = app.timer_trigger(arg_name="timer", schedule=settings.schedule, run_on_startup=False)(look)
    app.function_name(NAME)(decorated)
