"""The composition of the app: its tasks, their pipelines, and what it does beside them."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import azure.functions as func

from functions.measurements import measurements_duty
from functions.settlement import HostSettlement
from functions.startup import warnings, write
from functions.status import register_status
from functions.tasks import register, register_peeking_tap, register_tap
from functions.termination import end_at_signals
from functions.timers import Duty, register_timers
from shared.assembly.heartbeats import heartbeat_schedule, heartbeat_timer
from shared.assembly.journals import Journals, without_journal
from shared.assembly.losses import loss_watches
from shared.assembly.measurements import measurements_schedule
from shared.assembly.orders import pauses
from shared.assembly.pipelines import pipelines
from shared.assembly.status import publisher, recorder_of
from shared.line.shutdown import Shutdown
from shared.nightly.settings import nightly_settings
from shared.status.recorder import TaskRecorder
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
    duties = list(_duties(configuration, settings, telemetry, recorders))
    register_timers(app, duties, telemetry.flush)
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
            from functions.hub_reader import register_hub_reader
            from shared.assembly.hub_readers import hub_reader

            register_hub_reader(app, task.task, hub_reader(configuration, settings, task, pipeline, shutdown))
            continue
        register(app, task, pipeline, source.key, journals.binding(), has_texts=has_texts, sessions=settlement)
    for file, tap in journals.taps():
        key = configuration.connections[file.source.connection].key
        register_tap(app, file, tap, key, journals.binding(), sessions=settlement)
    for file, peeking in journals.peeking_taps():
        register_peeking_tap(app, file, peeking)


def _duties(
    configuration: Configuration,
    settings: Mapping[str, str],
    telemetry: Telemetries,
    recorders: Mapping[str, TaskRecorder],
) -> Iterator[Duty]:
    measured, schedule = telemetry.of_status(), measurements_schedule(settings)
    if measured is not None and schedule is not None:
        yield measurements_duty(configuration, settings, measured, schedule)
    heartbeats = heartbeat_timer(configuration, settings, recorders)
    if heartbeats is not None:
        # Import lazily: only apps with heartbeats need this.
        from functions.heartbeats import heartbeats_duty

        yield heartbeats_duty(heartbeats, heartbeat_schedule(configuration))
    watches = loss_watches(configuration, settings, telemetry.of_losses())
    if watches.watches:
        # Import lazily: only apps with a journal in blobs need this.
        from functions.losses import losses_duty

        yield losses_duty(watches.watches)
    nightly = nightly_settings(settings)
    if nightly is not None:
        # Import lazily: only apps with nightly reconciliation need this.
        from functions.nightly import nightly_duties

        yield from nightly_duties(nightly, telemetry.of_nights(), telemetry.of_losses())
