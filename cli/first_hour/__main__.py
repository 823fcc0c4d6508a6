"""`tools/first-hour`: run the steps of docs/first-hour.md, and print answers that can be sent back."""

import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from azure.core.exceptions import AzureError

from cli.first_hour.steps import STEPS, NotTried, Scene, Step
from cli.first_hour.way import Way, obstacle
from cli.options import Folder
from cli.output import print_problems, problems_of
from cli.places import line_of, tasks_named
from cli.signals import run_until_signalled
from cli.version import build
from shared.errors import BuswayError, ConfigError, Problem, TargetRefused
from shared.printable import printable
from shared.tasks.files import Configuration, load

AS_EXPECTED, NOT_AS_EXPECTED, NOT_TRIED = "as expected", "not as expected", "not tried"
# Subscriptions, tenants and principals are nobody else's business.
_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KEY = re.compile(r"(?i)(key|sig|signature|token)=[^\s;&\"']+")


def first_hour(
    *,
    resource_group: Annotated[str, typer.Option("--resource-group", help="Resource group of the app.")] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the Function app.")] = "",
    only: Annotated[
        list[int] | None, typer.Option(min=1, max=len(STEPS), help="Only this step; again for more.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="The tasks to use: one with sessions, one without.")] = None,
    messages: Annotated[int, typer.Option(min=1, help="Messages of the backlog.")] = 5000,
    minute: Annotated[
        float, typer.Option(min=0.01, help="Seconds of a minute; fewer than 60 only try the script.")
    ] = 60.0,
    config: Folder = Path("config"),
) -> None:
    """
    Run the ten steps of docs/first-hour.md, and print answers that can be sent back.

    **It sends messages, switches targets off for up to an hour, publishes the app and pauses a task**: use it before
    applications do. The answers have no bodies, keys or ids of subscriptions. App settings are those of `busway send`.

    Exit code 0: all is as expected, or was not tried. 1: something is not.
    """
    # What fails is in the answers.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    configuration = load(config)
    scene = Scene(configuration, config, _ways(configuration, task or []), resource_group, name, minute, messages)
    typer.echo(
        f"busway {build()} on {'Azure' if resource_group else 'this machine'}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    )
    verdicts = []
    for number, step in enumerate(STEPS, 1):
        if only and number not in only:
            continue
        typer.echo(f"{number}. {step.name}: {step.command}")
        began = time.monotonic()
        answer = run_until_signalled(_answer(step, scene))
        if answer is None:
            typer.echo("interrupted; the targets are switched on again")
            raise typer.Exit(130)
        verdict, lines = answer
        verdicts.append(verdict)
        for line in lines:
            typer.echo(f"   {public(line)}")
        typer.echo(f"   {verdict} ({time.monotonic() - began:.0f} s)")
    raise typer.Exit(1 if NOT_AS_EXPECTED in verdicts else 0)


async def _answer(step: Step, scene: Scene) -> tuple[str, list[str]]:
    try:
        found = await step.run(scene)
    except (NotTried, TargetRefused) as error:
        return NOT_TRIED, [str(error)]
    except AzureError as error:
        return NOT_AS_EXPECTED, [line_of(error)]
    except BuswayError as error:
        return NOT_AS_EXPECTED, [str(error)]
    return AS_EXPECTED if found.is_expected else NOT_AS_EXPECTED, [*found.lines]


def _ways(configuration: Configuration, names: list[str]) -> list[Way]:
    """Return the ways of a task with sessions and of one without; raises ConfigError for a named one that has none."""
    tasks = tasks_named(names, configuration, "--task") or configuration.tasks
    obstacles = {task.task: obstacle(configuration, task) for task in tasks}
    if names and any(obstacles.values()):
        raise ConfigError([Problem("--task", text) for text in obstacles.values() if text is not None])
    usable = [task for task in tasks if obstacles[task.task] is None]
    chosen = {bool(task.source.sessions): task for task in reversed(usable)}
    return [Way(configuration, chosen[kind]) for kind in (True, False) if kind in chosen]


def public(text: str) -> str:
    """Return *text* in one line, without ids of people and subscriptions, and without keys."""
    return _KEY.sub(lambda match: f"{match[1]}=…", _GUID.sub("…", printable(text)))


app = typer.Typer(add_completion=False)
app.command()(first_hour)

if __name__ == "__main__":
    try:
        app()
    except BuswayError as error:
        print_problems(problems_of(error))
        raise SystemExit(2) from error
