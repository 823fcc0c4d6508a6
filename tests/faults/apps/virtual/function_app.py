"""The function app of this repository by another clock: as `function_app.py`, but for the pipelines' time."""

import os
from pathlib import Path

import azure.functions as func

from functions.tasks import RAW, register
from shared.config.assembly import assembled, opened_outputs
from shared.config.files import load
from shared.journal.log import LogJournal
from shared.pipeline import Pipeline
from tests.faults.virtual_time import RemoteClock

app = func.FunctionApp()

_clock = RemoteClock.of_environment()
_configuration = load(Path(os.environ["BUSWAY_CONFIG"]))
_tasks = assembled(_configuration, opened_outputs(_configuration, os.environ))

for _file, _task in zip(_configuration.tasks, _tasks, strict=True):
    _pipeline = Pipeline(_task, LogJournal(), _clock, _clock.sleep)
    register(app, _file, _pipeline, _configuration.connections[_file.source.connection].setting, RAW)
