"""The run of `busway status`: read, print, and read again."""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from cli.output import print_problems
from cli.stack import run_until_signalled
from cli.status.table import status_text
from shared.config.files import Configuration, load
from shared.config.status_assembly import StatusReader
from shared.errors import ConfigError, Problem
from shared.status.model import EXIT_CODES, Health, Status

_WATCH_SECONDS = 3.0
_CLEAR = "\x1b[H\x1b[J"
_LOG_WIDTH = 80


def show_status(folder: Path, tasks: Sequence[str], *, watch: bool, as_json: bool, everything: bool) -> int:
    """Print the status of *tasks*, by default of all; return the exit code of the last one that was shown."""
    try:
        configuration = load(folder)
        _check_names(configuration, tasks)
    except ConfigError as error:
        print_problems(error.problems)
        return EXIT_CODES[Health.UNKNOWN]
    # What fails is in the status, with its reason.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    reader = StatusReader(configuration, os.environ)
    shown: list[Status] = []

    def show(status: Status) -> None:
        shown[:] = [status]
        if as_json:
            text = msgspec.json.encode(status)
            print((text if watch else msgspec.json.format(text, indent=2)).decode(), flush=True)
            return
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size((_LOG_WIDTH, 24)).columns if is_terminal else _LOG_WIDTH
        has_color = is_terminal and "NO_COLOR" not in os.environ
        text_of_status = status_text(status, width, everything=everything or bool(tasks), has_color=has_color)
        typer.echo((_CLEAR if watch and is_terminal else "") + text_of_status, color=has_color)

    async def run() -> None:
        try:
            show(await reader.read(tasks))
            while watch:
                await asyncio.sleep(_WATCH_SECONDS)
                show(await reader.read(tasks))
        finally:
            await reader.close()

    run_until_signalled(run())
    return EXIT_CODES[shown[0].health] if shown else EXIT_CODES[Health.UNKNOWN]


def _check_names(configuration: Configuration, tasks: Sequence[str]) -> None:
    known = [each.task for each in configuration.tasks]
    problems = [
        Problem(name, "is not a task of this configuration", f"the tasks are {', '.join(known)}")
        for name in tasks
        if name not in known
    ]
    if problems:
        raise ConfigError(problems)
