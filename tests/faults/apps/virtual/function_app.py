"""The function app of this repository with another clock: like `function_app.py`, except the pipelines' time."""

import os
from pathlib import Path

import azure.functions as func

from functions.settlement import HostSettlement
from functions.tasks import register
from functions.termination import end_at_signals
from shared.config.assembly import pipelines
from shared.config.files import load
from shared.line.shutdown import Shutdown
from tests.faults.virtual_time import RemoteClock

app = func.FunctionApp()

_clock = RemoteClock.of_environment()
_configuration = load(Path(os.environ["BUSWAY_CONFIG"]))

_shutdown, _settlement = Shutdown(), HostSettlement()
end_at_signals(_shutdown, lambda _: None)

for _task, _pipeline in pipelines(
    _configuration, os.environ, _shutdown, settlement=_settlement, clock=_clock, sleep=_clock.sleep
):
    register(app, _task, _pipeline, _configuration.connections[_task.source.connection].key, sessions=_settlement)
