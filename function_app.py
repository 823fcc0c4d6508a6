"""The function app: every task of the configuration folder as one function."""

import logging
import os
from pathlib import Path

import azure.functions as func

from functions.measurements import register_measurements
from functions.settlement import HostSettlement
from functions.startup import problems_on_standard_error, warn_about_worker
from functions.status import register_status
from functions.tasks import register, register_peeking_tap, register_tap
from functions.termination import end_at_signals
from shared.config.assembly import pipelines
from shared.config.files import load
from shared.config.heartbeat_assembly import heartbeat_schedule, heartbeat_timer
from shared.config.journal_assembly import Journals, without_journal
from shared.config.loss_assembly import loss_watches
from shared.config.measurements import measurements_schedule
from shared.config.orders import pauses
from shared.config.status_assembly import publisher, recorder_of
from shared.line.shutdown import Shutdown
from shared.nightly.settings import nightly_settings
from shared.telemetry.opening import open_telemetry

app = func.FunctionApp()

# The SDKs log every link and request, and the worker would pass that on as the app's own log.
logging.getLogger("azure").setLevel(logging.WARNING)

warn_about_worker()

with problems_on_standard_error():
    # Relative to this file, because the host chooses its current folder.
    _folder = Path(__file__).parent / os.environ.get("BUSWAY_CONFIG", "config")
    _configuration = without_journal(load(_folder), os.environ)

    _shutdown = Shutdown()
    _settlement = HostSettlement(has_twins=os.environ.get("FUNCTIONS_WORKER_PROCESS_COUNT", "1") not in {"", "1"})

    _journals = Journals(_configuration, os.environ)
    _telemetry = open_telemetry(os.environ)
    end_at_signals(_shutdown, _telemetry.flush)

    _recorders = {_task.task: recorder_of(_task) for _task in _configuration.tasks}
    for _task, _pipeline in pipelines(
        _configuration,
        os.environ,
        _shutdown,
        journals=_journals,
        telemetry=_telemetry,
        recorders=_recorders,
        pauses=pauses(_configuration, os.environ),
        arrivals=_recorders,
        settlement=_settlement,
    ):
        _source = _configuration.connections[_task.source.connection]
        _has_texts = _source.end.texts is not None
        if _task.source.reader == "app":
            # Import lazily: only apps that read hubs themselves need this.
            from functions.hub_reader import register_hub_reader
            from shared.config.hub_reader_assembly import hub_reader

            register_hub_reader(app, _task.task, hub_reader(_configuration, os.environ, _task, _pipeline, _shutdown))
            continue
        register(app, _task, _pipeline, _source.key, _journals.binding(), has_texts=_has_texts, sessions=_settlement)
    for _file, _tap in _journals.taps():
        _key = _configuration.connections[_file.source.connection].key
        register_tap(app, _file, _tap, _key, _journals.binding(), sessions=_settlement)
    for _file, _peeking in _journals.peeking_taps():
        register_peeking_tap(app, _file, _peeking)

    register_status(app, _configuration, os.environ)
    _publisher = publisher(_configuration, os.environ, list(_recorders.values()))
    if _publisher is not None:
        _publisher.start()

    _measured = _telemetry.of_status()
    _schedule = measurements_schedule(os.environ)
    if _measured is not None and _schedule is not None:
        register_measurements(app, _configuration, os.environ, _measured, _schedule)

    _heartbeats = heartbeat_timer(_configuration, os.environ, _recorders)
    if _heartbeats is not None:
        # Import lazily: only apps with heartbeats need this.
        from functions.heartbeats import register_heartbeats

        register_heartbeats(app, _heartbeats, heartbeat_schedule(_configuration))

    _watches = loss_watches(_configuration, os.environ, _telemetry.of_losses())
    if _watches.watches:
        # Import lazily: only apps with a journal in blobs need this.
        from functions.losses import register_losses

        register_losses(app, _watches.watches)

    _nightly = nightly_settings(os.environ)
    if _nightly is not None:
        # Import lazily: only apps with nightly reconciliation need this.
        from functions.nightly import register_nightly

        register_nightly(app, _nightly, _telemetry.of_nights(), _telemetry.of_losses())
