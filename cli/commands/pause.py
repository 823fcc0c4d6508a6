"""`busway pause` and `busway resume`."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Folder, Yes

if TYPE_CHECKING:
    from cli.pause.steering import Steering

Tasks = Annotated[list[str], typer.Argument(metavar="TASK...", help="Names of tasks.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; `busway status` shows it.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who. [default: the user of this machine]")]
Az = Annotated[
    bool,
    typer.Option(
        "--az", help="Only print the command of the Azure CLI that does it by app settings; it restarts the app."
    ),
]
CloseSource = Annotated[
    bool,
    typer.Option(
        "--close-source",
        help="Also set the queue or subscription to ReceiveDisabled: nobody receives from it, and Azure's host asks it "
        "several times a second.",
    ),
]


def pause(
    tasks: Tasks,
    *,
    reason: Reason = None,
    by: By = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long batches in progress may take; before an upgrade or the removal of a namespace, 600.",
        ),
    ] = 30.0,
    az: Az = False,
    close_source: CloseSource = False,
    yes: Yes = False,
    config: Folder = Path("config"),
) -> None:
    """
    Stop tasks until they are resumed; messages stay at their sources.

    Instances start no new batch within 5 s, and those in progress end. What is delivered nevertheless waits in the app
    unsent, one batch for each lane and instance, with its locks renewed; the source and its senders notice nothing.
    A pause of more than some minutes is free only without functions: the command prints how to switch them off. Events
    of a hub wait in the app too, and its checkpoints stay. `busway status` names the person and the time. If the
    command is interrupted, run it again.

    It needs the storage account of the status; with --close-source also the right to manage the source's namespace.

    Exit code 0: nothing is in hand. 1: a task is not paused, or a batch did not end in time; then the task is paused,
    and its messages are delivered again after the resume. 2: the configuration has problems. Example:

    busway pause orders-west-to-east --reason "maintenance of east" --yes
    """
    if az:
        _print_switches(tasks, config, is_pause=True)
        return

    async def pause_task(steering: "Steering") -> bool:
        if not yes:
            await steering.show_pause()
            return True
        return not await steering.pause(by or getpass.getuser(), reason, wait)

    from cli.pause.tasks import steer

    code = steer(tasks, config, pause_task, uses_source=close_source, closes=close_source, yes=yes)
    if yes and not close_source:
        typer.echo("\nFor more than some minutes, switch them off: that restarts the app, and costs nothing.")
        _print_switches(tasks, config, is_pause=True)
    raise typer.Exit(code)


def resume(
    tasks: Tasks,
    *,
    az: Az = False,
    yes: Yes = False,
    config: Folder = Path("config"),
) -> None:
    """
    Undo `busway pause`: a source that it has closed gets the status that it had before.

    A status that someone else has set meanwhile stays. Exit code 0: the tasks are resumed. 1: not all of them. 2: the
    configuration has problems.
    """
    if az:
        _print_switches(tasks, config, is_pause=False)
        return

    async def resume_task(steering: "Steering") -> bool:
        await (steering.resume() if yes else steering.show_resume())
        return True

    from cli.pause.tasks import steer

    raise typer.Exit(steer(tasks, config, resume_task, uses_source=True, yes=yes))


def _print_switches(tasks: list[str], config: Path, *, is_pause: bool) -> None:
    from cli.pause.tasks import az_commands
    from cli.places import tasks_named
    from shared.tasks.files import load

    for command in az_commands(tasks_named(tasks, load(config)), is_pause=is_pause):
        typer.echo(command)
