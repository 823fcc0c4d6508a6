"""`busway pause`, `busway drain` and `busway resume`."""

import getpass
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AdminAddresses, Authority, DryRun, Folder

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
Timeout = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long batches in progress may take.")]
_PAUSE_SECONDS = 30.0
_DRAIN_SECONDS = 600.0


def pause(
    tasks: Tasks,
    *,
    reason: Reason = None,
    by: By = None,
    timeout: Timeout = _PAUSE_SECONDS,
    az: Az = False,
    dry_run: DryRun = False,
    admin: AdminAddresses = None,
    authority: Authority = None,
    config: Folder = Path("config"),
) -> None:
    """
    Stop tasks until they are resumed; messages stay at their sources.

    Instances start no new batch within 5 s, and those in progress end. Then the queue or subscription gets the status
    ReceiveDisabled: it delivers nothing to anyone, so that no message is locked and none loses delivery attempts.
    Events of a hub wait in the app, and its checkpoints stay. `busway status` names the person
    and the time. If the command is interrupted, run it again.

    It needs the storage account of the status, and the right to manage the source's namespace.

    Exit code 0: nothing is in hand. 1: a task is not paused, or a batch did not end in time; then the task is paused,
    and its messages are delivered again after the resume. 2: the configuration has problems. Example:

    busway pause orders-west-to-east --reason "maintenance of east"
    """
    _pause(tasks, config, reason, by, timeout, admin=admin, authority=authority, az=az, dry_run=dry_run)


def drain(
    tasks: Tasks,
    *,
    reason: Reason = None,
    by: By = None,
    timeout: Timeout = _DRAIN_SECONDS,
    dry_run: DryRun = False,
    admin: AdminAddresses = None,
    authority: Authority = None,
    config: Folder = Path("config"),
) -> None:
    """
    Pause tasks, and wait longer for what is in hand: before an upgrade, or the removal of a namespace.

    As `busway pause`, with more time for batches in progress, such as those that wait for a target. `busway resume`
    ends it. Exit code 0 only if nothing is in hand.
    """
    _pause(tasks, config, reason, by, timeout, admin=admin, authority=authority, az=False, dry_run=dry_run)


def resume(
    tasks: Tasks,
    *,
    az: Az = False,
    dry_run: DryRun = False,
    admin: AdminAddresses = None,
    authority: Authority = None,
    config: Folder = Path("config"),
) -> None:
    """
    Undo `busway pause` and `busway drain`: the source gets the status that it had before.

    A status that someone else has set meanwhile stays. Exit code 0: the tasks are resumed. 1: not all of them. 2: the
    configuration has problems.
    """

    async def resume_task(steering: "Steering") -> bool:
        await (steering.show_resume() if dry_run else steering.resume())
        return True

    _steer(tasks, config, resume_task, admin=admin, authority=authority, az=az, is_pause=False)


def _pause(
    tasks: list[str],
    config: Path,
    reason: str | None,
    by: str | None,
    seconds: float,
    *,
    admin: list[str] | None,
    authority: Path | None,
    az: bool,
    dry_run: bool,
) -> None:
    async def pause_task(steering: "Steering") -> bool:
        if dry_run:
            await steering.show_pause()
            return True
        return not await steering.pause(by or getpass.getuser(), reason, seconds)

    _steer(tasks, config, pause_task, admin=admin, authority=authority, az=az, is_pause=True)


def _steer(
    tasks: list[str],
    config: Path,
    work: "Callable[[Steering], Awaitable[bool]]",
    *,
    admin: list[str] | None,
    authority: Path | None,
    az: bool,
    is_pause: bool,
) -> None:
    from cli.pause.tasks import az_commands, steer
    from cli.tasks import tasks_named
    from cli.topology.sites import Access
    from shared.config.files import load

    configuration = load(config)
    files = tasks_named(tasks, configuration)
    if az:
        for command in az_commands(files, is_pause=is_pause):
            typer.echo(command)
        return
    access = Access.of(admin or [], authority, configuration.connections)
    raise typer.Exit(steer(configuration, files, access, work))
