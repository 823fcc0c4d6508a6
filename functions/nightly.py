"""The duties that start the reconciliation, report its results, and leave a mark that the timer runs."""

from functions.timers import Duty, spaced
from shared.nightly.container_job import ContainerJob
from shared.nightly.hours import Hours
from shared.nightly.night import Night
from shared.nightly.results import Results
from shared.nightly.settings import NightlySettings
from shared.protocols import LossTelemetry, NightTelemetry

NAME = "nightly-reconciliation"
MARK = "busway-mark"
_QUARTER_OF_AN_HOUR = 900.0
_MARK_SECONDS = 600.0


def nightly_duties(settings: NightlySettings, telemetry: NightTelemetry, losses: LossTelemetry) -> list[Duty]:
    """
    Return the duties.

    Each look does what is due by then, so a late or repeated one does no harm.
    """
    night = Night(settings, None if settings.job is None else ContainerJob(settings.job), telemetry)
    hours = Hours(settings, losses)

    async def look() -> None:
        try:
            await night.look()
        finally:
            await hours.look()

    async def mark() -> None:
        async with Results(settings.results) as results:
            await results.mark_timer()

    if settings.schedule is None:
        nightly = Duty(NAME, spaced(look, _QUARTER_OF_AN_HOUR))
    else:
        nightly = Duty(NAME, look, settings.schedule)
    # The hourly job, which is no timer of the app, looks at its age: jobs/reconcile/busway_reconcile/timer_mark.py.
    return [nightly, Duty(MARK, spaced(mark, _MARK_SECONDS))]
