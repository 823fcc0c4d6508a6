"""The function app: every task of the configuration folder as one function."""

import os
from pathlib import Path

import azure.functions as func

from functions.drain import drain_on_signals
from functions.tasks import RAW, register
from shared.config.assembly import pipelines
from shared.config.files import load
from shared.shutdown import Shutdown

app = func.FunctionApp()

# Relative to this file, because the host's current folder is its own affair.
_configuration = load(Path(__file__).parent / os.environ.get("BUSWAY_CONFIG", "config"))

_shutdown = Shutdown()
drain_on_signals(_shutdown)

for _task, _pipeline in pipelines(_configuration, os.environ, _shutdown):
    _setting = _configuration.connections[_task.source.connection].setting
    register(app, _task, _pipeline, _setting, os.environ.get("BUSWAY_TRIGGER", RAW))
