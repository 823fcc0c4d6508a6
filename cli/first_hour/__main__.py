"""`tools/first-hour`: run the steps of docs/first-hour.md, and collect their answers in one file."""

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from azure.core.exceptions import AzureError

from cli.first_hour.answers import Answer, AnswerFile, Verdict, public
from cli.first_hour.passage import Passage
from cli.first_hour.steps import NOT_TRIED, STEPS, VERDICTS, Scene, Step
from cli.options import AdminAddresses, Authority, Folder
from cli.output import print_problems, problems_of
from cli.places import line_of
from cli.signals import run_until_signalled
from cli.topology.sites import Access
from shared.errors import BuswayError, ConfigError, Problem
from shared.tasks.files import Configuration, load


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
    out: Annotated[Path, typer.Option(help="The file with the answers.")] = Path("first-hour.json"),
    admin: AdminAddresses = None,
    authority: Authority = None,
    config: Folder = Path("config"),
) -> None:
    """
    Run the ten steps of docs/first-hour.md, and collect their answers in one file that can be sent back.

    **It sends messages, switches targets off for up to an hour, publishes the app and pauses a task**: use it before
    applications do. The file has no bodies, keys or ids of subscriptions. App settings are those of `busway send`.

    Exit code 0: all is as expected, or was not tried. 1: something is not.
    """
    # What fails is in the answers.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    configuration = load(config)
    access = Access.of(admin or [], authority, configuration.connections)
    with_sessions, without_sessions = _passages(configuration, task or [], access)
    scene = Scene(
        configuration, config, access, with_sessions, without_sessions, resource_group, name, minute, messages
    )
    place = "Azure" if resource_group else "this machine"
    file = AnswerFile(out, started=datetime.now(UTC).isoformat(timespec="seconds"), place=place)
    verdicts = []
    for number, step in enumerate(STEPS, 1):
        if only and number not in only:
            continue
        typer.echo(f"{number}. {step.name}: {step.command}")
        answer = run_until_signalled(_answer(number, step, scene))
        if answer is None:
            typer.echo("interrupted; the targets are switched on again")
            raise typer.Exit(130)
        file.add(answer)
        verdicts.append(answer.verdict)
        for line in answer.lines:
            typer.echo(f"   {public(line)}")
        typer.echo(f"   {answer.verdict} ({answer.seconds:.0f} s)")
    typer.echo(f"{out} has the answers")
    raise typer.Exit(1 if Verdict.NOT_AS_EXPECTED in verdicts else 0)


async def _answer(number: int, step: Step, scene: Scene) -> Answer:
    began = time.monotonic()
    try:
        found = await step.run(scene)
        verdict, lines = VERDICTS[found.is_expected], found.lines
    except NOT_TRIED as error:
        verdict, lines = Verdict.NOT_TRIED, [str(error)]
    except AzureError as error:
        verdict, lines = Verdict.NOT_AS_EXPECTED, [line_of(error)]
    except BuswayError as error:
        verdict, lines = Verdict.NOT_AS_EXPECTED, [str(error)]
    return Answer(number, step.name, step.command, verdict, round(time.monotonic() - began, 1), lines)


def _passages(configuration: Configuration, names: list[str], access: Access) -> tuple[Passage | None, Passage | None]:
    """Return the ways of a task with sessions and of one without; raises ConfigError for a name that has none."""
    unknown = [name for name in names if name not in {task.task for task in configuration.tasks}]
    if unknown:
        raise ConfigError([Problem(f"--task {each}", "is no task of the configuration") for each in unknown])
    chosen = [task for task in configuration.tasks if not names or task.task in names]
    ways = [Passage.of(configuration, task, access) for task in chosen]
    unusable = [way for way in ways if isinstance(way, str)]
    if names and unusable:
        raise ConfigError([Problem("--task", each) for each in unusable])
    found = [way for way in ways if isinstance(way, Passage)]
    return (
        next((passage for passage in found if passage.task.source.sessions), None),
        next((passage for passage in found if not passage.task.source.sessions), None),
    )


app = typer.Typer(add_completion=False)
app.command()(first_hour)

if __name__ == "__main__":
    try:
        app()
    except BuswayError as error:
        print_problems(problems_of(error))
        raise SystemExit(2) from error
