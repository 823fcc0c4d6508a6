"""The commands `busway failover show`, `switch`, `failback` and `drill`."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Folder, Yes

if TYPE_CHECKING:
    from cli.failover.configuration import Failover

_NOT_YET = 2
"""Exit code of a failback that must be run again, or forced."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""
Show and change the site that applications use.

The active site is recorded in a DNS zone file, in a JSON document, or in Azure DNS; applications look it up there.
`failover.yaml`, next to connections.yaml, names the sites, the place of the record, and the entities that must be empty
before consumers leave a site. `busway docs failover` has an example of each kind and a runbook.
""",
)

Site = Annotated[str, typer.Argument(metavar="SITE", help="A site of failover.yaml.")]
Role = Annotated[
    list[str] | None, typer.Option(metavar="send|receive", help="The role to move; may be repeated. [default: both]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@app.command()
def show(*, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Show the active site, and the messages that each site holds."""
    from cli.failover.contents import inspect_all
    from cli.failover.report import contents_as_json, print_contents, print_state
    from shared.errors import ConfigError, Problem

    failover = _opened(config)
    state = failover.register.read()
    if not as_json:
        print_state(failover, state)
    problems: list[Problem] = []
    found = {site: asyncio.run(inspect_all(failover, site, problems)) for site in failover.file.sites}
    if as_json:
        sites = {site: contents_as_json(look) for site, look in found.items()}
        typer.echo(json.dumps({**failover.document(state), "sites": sites}))
    else:
        print_contents(failover, found)
    if problems:
        raise ConfigError(problems)


@app.command()
def switch(
    site: Site,
    *,
    role: Role = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also switch to the primary site, without the checks of failback.")
    ] = False,
    renewed_serial: Annotated[
        int | None,
        typer.Option(
            "--renew-serial", metavar="SERIAL", help="Sign a document again that has expired, if this is its serial."
        ),
    ] = None,
    yes: Yes = False,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Switch publishers and consumers to SITE; applications follow when they next look it up.

    The other site is not contacted, since it may be unavailable. To return, use `busway failover failback`. Exit code
    1: it refuses, and says why. Example:

        busway failover switch east --yes
    """
    from cli.failover.configuration import ROLES
    from cli.failover.report import print_changes, print_reload
    from cli.output import print_only_shown

    failover = _opened(config, renewed_serial)
    roles = dict.fromkeys(role or ROLES, failover.site(site))
    for name in roles:
        if name not in ROLES:
            raise typer.BadParameter(f"{name!r}: unknown role, expected {' or '.join(ROLES)}", param_hint="--role")
    state = failover.register.read()
    lines = failover.changes(site, roles, state, force=force)
    if yes:
        state = failover.register.write(roles, state)
    if as_json:
        typer.echo(json.dumps({**failover.document(state), "changes": list(lines)}))
    else:
        print_changes(failover, lines, "changed" if yes else "would change")
        if lines and yes:
            print_reload(failover)
        if lines:
            typer.echo(f"Applications follow within {state.ttl_seconds} s.")
    if not yes:
        print_only_shown()


@app.command()
def failback(
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also move consumers while messages remain at the secondary site, and report how many."
        ),
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until consumers can move.")] = 0.0,
    yes: Yes = False,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Return to the primary site: publishers immediately, consumers when no messages are left at the secondary site.

    Exit code 2: not finished yet; the output shows the reason. Run it again, or use `--wait`.
    """
    from cli.failover.contents import check_primary, inspect_dead_letters, inspect_site
    from cli.failover.failback import Failback, FailbackSteps, wait_until_done
    from cli.failover.register import RegisterState
    from cli.failover.report import local_as_json, print_changes, print_failback, print_local, print_reload
    from cli.output import print_only_shown
    from shared.clock import SystemClock

    failover, clock = _opened(config), SystemClock()
    noted: list[str] = []
    before = failover.register.read()
    steps = FailbackSteps(
        failover.register,
        failover.file.primary,
        failover.secondaries,
        lambda site: inspect_site(failover, site),
        clock,
        clock.now(),
        shares_alias=failover.shares_alias,
        noted=None if yes else noted,
    )

    async def step(known: RegisterState | None) -> Failback:
        await check_primary(failover)
        return await (steps.forced() if force else steps.step(known))

    back = asyncio.run(step(None) if force or not yes else wait_until_done(step, clock, wait))
    dead = asyncio.run(inspect_dead_letters(failover, failover.secondaries)) if back.is_done and yes else {}
    left = local_as_json(back.found)
    if as_json:
        shown = failover.document(back.state if yes else before)
        shown |= {} if yes else {"changes": noted}
        shown |= {"waits_for": back.waits_for, "left_behind": left if back.is_done or not yes else []}
        typer.echo(json.dumps(shown | ({"dead_lettered": local_as_json(dead)} if yes else {})))
    elif not yes:
        print_changes(failover, noted, "would change")
        if back.waits_for is not None:
            typer.echo(f"Then it would wait: {back.waits_for}.")
        else:
            print_local(back.found, "Would be left behind", "They stay there until they are received or expire.")
    else:
        print_failback(failover, back, dead)
        if back.is_done and back.state.version != before.version:
            print_reload(failover)
    if not yes:
        print_only_shown()
    if not back.is_done:
        raise typer.Exit(_NOT_YET)


@app.command()
def drill(
    *,
    messages: Annotated[
        int,
        typer.Option(min=8, max=100_000, help="Messages to publish in each part: before, during and after the outage."),
    ] = 100,
    rate: Annotated[float, typer.Option(min=1, help="Messages published a second.")] = 50.0,
    decide: Annotated[float, typer.Option(min=0, help="Seconds from the first failed send to the switch.")] = 2.0,
    disaster: Annotated[
        bool, typer.Option("--disaster", help="The failed site does not return, and there is no failback.")
    ] = False,
    max_lost: Annotated[int, typer.Option(min=0, help="Objective: accepted messages that no consumer received.")] = 0,
    max_duplicates: Annotated[
        int | None, typer.Option(min=0, help="Objective: deliveries of messages that were already processed.")
    ] = None,
    max_order_breaks: Annotated[
        int | None, typer.Option(min=0, help="Objective: messages processed after a later one of their session.")
    ] = None,
    max_switch: Annotated[
        float, typer.Option(min=0, help="Objective: seconds from the cut until all consumers work at the other site.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the events and the table.")
    ] = False,
) -> None:
    """
    Simulate an outage on this machine and report its effects; exit code 1 if an objective is not met.

    Two sites, west and east, run as separate processes, with a task that copies messages from west to east. A
    publisher and consumers follow the endpoint document in build/drill/config. The drill kills west while messages
    are being sent, switches the document to east like `busway failover switch`, restarts west with the messages on
    its disk, and returns like `busway failover failback`: publishers immediately, consumers when no messages are left
    in east.
    """
    from cli.failover.drill.drill import Plan, run
    from cli.failover.drill.report import WORK, Objectives, report
    from cli.files import free_folder
    from cli.output import console
    from cli.signals import run_until_signalled

    planned = Plan(messages, rate, decide, disaster)
    objectives = Objectives(max_lost, max_duplicates, max_order_breaks, max_switch)
    with free_folder(WORK) as work:
        result = run_until_signalled(run(planned, work, (lambda _: None) if as_json else console().print))
    if result is None or not report(result, objectives, as_json=as_json):
        raise typer.Exit(1)


def _opened(folder: Path, renewed_serial: int | None = None) -> "Failover":
    from cli.failover.configuration import open_failover
    from shared.clock import SystemClock

    return open_failover(folder, SystemClock(), renewed_serial)
