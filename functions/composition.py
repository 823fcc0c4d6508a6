"""The composition of the app: its tasks, their pipelines, and what it does beside them."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import azure.functions as func

from functions.settlement import HostSettlement
from functions.startup import warnings, write
from functions.status import register_status
from functions.tasks import register, register_hub_reader, register_peeking_tap, register_tap
from functions.termination import end_at_signals
from functions.timers import Duty, register_timers, spaced
from shared.assembly.heartbeats import heartbeat_schedule, heartbeat_timer
from shared.assembly.journals import Journals, without_journal
from shared.assembly.losses import loss_watches
from shared.assembly.measurements import EVERY_MINUTE, measurements, measurements_schedule
from shared.assembly.orders import pauses
from shared.assembly.pipelines import pipelines
from shared.assembly.status import StatusReader, publisher, recorder_of
from shared.errors import BuswayError
from shared.line.shutdown import Shutdown
from shared.losses.watch import LossWatch
from shared.nightly.settings import NightlySettings, nightly_settings
from shared.printable import printable
from shared.protocols import LossTelemetry, NightTelemetry, StatusTelemetry
from shared.status.recorder import TaskRecorder
from shared.stores.blobs import some_at_once
from shared.tasks.files import Configuration, load
from shared.tasks.switches import switched_on
from shared.telemetry.opening import Telemetries, open_telemetry


def compose(folder: Path, settings: Mapping[str, str]) -> func.FunctionApp:
    """Return the app of the configuration in *folder*; raises ConfigError with every problem."""
    # The SDKs log every link and request, and the worker would pass that on as the app's own log.
    logging.getLogger("azure").setLevel(logging.WARNING)
    write(warnings(settings))
    configuration = switched_on(without_journal(load(folder), settings), settings)
    telemetry = open_telemetry(settings)
    recorders = {task.task: recorder_of(task) for task in configuration.tasks}
    app = func.FunctionApp()
    _register_tasks(app, configuration, settings, telemetry, recorders)
    register_status(app, configuration, settings)
    publishing = publisher(configuration, settings, list(recorders.values()))
    register_timers(app, _duties(configuration, settings, telemetry, recorders), telemetry.flush)
    if publishing is not None:
        publishing.start()
    return app


def _register_tasks(
    app: func.FunctionApp,
    configuration: Configuration,
    settings: Mapping[str, str],
    telemetry: Telemetries,
    recorders: Mapping[str, TaskRecorder],
) -> None:
    shutdown = Shutdown()
    settlement = HostSettlement(has_twins=settings.get("FUNCTIONS_WORKER_PROCESS_COUNT", "1") not in {"", "1"})
    journals = Journals(configuration, settings)
    end_at_signals(shutdown, telemetry.flush)
    for task, pipeline in pipelines(
        configuration,
        settings,
        shutdown,
        journals=journals,
        telemetry=telemetry,
        recorders=recorders,
        pauses=pauses(configuration, settings),
        arrivals=recorders,
        settlement=settlement,
    ):
        source = configuration.connections[task.source.connection]
        has_texts = source.end.texts is not None
        if task.source.reader == "app":
            # Import lazily: only apps that read hubs themselves need this.
            from shared.assembly.hub_readers import hub_reader

            register_hub_reader(app, task.task, hub_reader(configuration, settings, task, pipeline, shutdown))
            continue
        register(app, task, pipeline, source.key, journals.binding(), has_texts=has_texts, sessions=settlement)
    for file, tap in journals.taps():
        key = configuration.connections[file.source.connection].key
        register_tap(app, file, tap, key, journals.binding(), sessions=settlement)
    for file, peeking in journals.peeking_taps():
        register_peeking_tap(app, file, peeking)


NIGHTLY = "nightly-reconciliation"
_LOSSES = logging.getLogger("busway.losses")

# On the Standard tier each peeked message counts against what the namespace may do in a second.
_MOST_PEEKED = 100
_QUARTER_OF_AN_HOUR = 900.0
_MARK_SECONDS = 600.0


def _duties(
    configuration: Configuration,
    settings: Mapping[str, str],
    telemetry: Telemetries,
    recorders: Mapping[str, TaskRecorder],
) -> Iterator[Duty]:
    """Yield the duties of *configuration*; raises ConfigError."""
    measured, schedule = telemetry.of_status(), measurements_schedule(settings)
    if measured is not None and schedule is not None:
        yield _measurements(configuration, settings, measured, schedule)
    heartbeats = heartbeat_timer(configuration, settings, recorders)
    if heartbeats is not None:
        # At a schedule of its own if a task has more than one a minute.
        yield Duty("busway-heartbeats", heartbeats.look, heartbeat_schedule(configuration) or EVERY_MINUTE)
    watches = loss_watches(configuration, settings, telemetry.of_losses())
    if watches.watches:
        yield _losses(watches.watches)
    nightly = nightly_settings(settings)
    if nightly is not None:
        yield from _nightly(nightly, telemetry.of_nights(), telemetry.of_losses())


def _measurements(
    configuration: Configuration, settings: Mapping[str, str], telemetry: StatusTelemetry, schedule: str
) -> Duty:
    """Return the duty that measures the status of all tasks for metrics and alerts."""
    reader = StatusReader(configuration, settings, most_peeked=_MOST_PEEKED)

    async def measure() -> None:
        telemetry.measured(measurements(configuration, await reader.read()))

    return Duty("busway-measurements", measure, schedule)


def _losses(watches: Sequence[LossWatch]) -> Duty:
    """Return the duty that looks for losses every minute at the sources that *watches* observe."""
    failing: set[str] = set()

    async def look_at(watch: LossWatch, now: datetime) -> None:
        try:
            await watch.look(now)
        except BuswayError as error:
            if watch.task not in failing:
                text = "its source cannot be watched for losses; the next look continues"
                _LOSSES.warning("%s: %s: %s", watch.task, text, printable(str(error)))
            failing.add(watch.task)
        else:
            if watch.task in failing:
                failing.discard(watch.task)
                _LOSSES.info("%s: its source is watched for losses again", watch.task)

    async def look() -> None:
        now = datetime.now(UTC)
        await some_at_once([look_at(watch, now) for watch in watches])

    # A task's first look must come before its first message. More instances look more often, which changes nothing.
    return Duty("busway-losses", look, is_at_start=True)


def _nightly(settings: NightlySettings, telemetry: NightTelemetry, losses: LossTelemetry) -> list[Duty]:
    """
    Return the duties that start the reconciliation, report its results, and leave a mark that the timer runs.

    Each look does what is due by then, so a late or repeated one does no harm.
    """
    # Import lazily: only apps with nightly reconciliation need this.
    from shared.nightly.container_job import ContainerJob
    from shared.nightly.hours import Hours
    from shared.nightly.night import Night
    from shared.nightly.results import Results

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
        nightly = Duty(NIGHTLY, spaced(look, _QUARTER_OF_AN_HOUR))
    else:
        nightly = Duty(NIGHTLY, look, settings.schedule)
    # The hourly job, which is no timer of the app, looks at its age: jobs/reconcile/busway_reconcile/container.py.
    return [nightly, Duty("busway-mark", spaced(mark, _MARK_SECONDS))]
