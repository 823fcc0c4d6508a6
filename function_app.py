"""The function app: every task of the configuration folder as one function."""

import os
from pathlib import Path

import azure.functions as func

from functions.tasks import register
from shared.config.assembly import pipelines
from shared.config.files import load

app = func.FunctionApp()

# Relative to this file, because the host's current folder is its own affair.
_configuration = load(Path(__file__).parent / os.environ.get("BUSWAY_CONFIG", "config"))

for _task, _pipeline in pipelines(_configuration, os.environ):
    _setting = _configuration.connections[_task.source.connection].setting
    register(app, _task, _pipeline, _setting)
