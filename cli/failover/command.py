"""The commands `busway failover show`, `plan`, `switch`, `failback` and `drill`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.failover.drill_command import drill
from cli.options import Folder

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""
Show and change the site that applications use.

The active site is recorded in a DNS zone file, in a JSON document, or in Azure DNS; applications look it up there.
`failover.yaml`, next to connections.yaml, names the sites, the place of the record, and the entities that must be empty
before consumers leave a site. docs/failover.md has an example of each kind and a runbook.
""",
)

Site = Annotated[str, typer.Argument(metavar="SITE", help="A site of failover.yaml.")]
Role = Annotated[
    list[str] | None, typer.Option(metavar="send|receive", help="The role to move; may be repeated. [default: both]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


@app.command()
def show(*, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Show the active site, and the messages that each site holds."""
    from cli.failover import actions

    actions.show(config, as_json=as_json)


@app.command()
def plan(site: Site, *, role: Role = None, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Show what `switch` would change, without changing it; exit code 1 if it would refuse. As `switch --dry-run`."""
    from cli.failover import actions

    actions.plan(site, role, config, as_json=as_json)


@app.command()
def switch(
    site: Site,
    *,
    role: Role = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also switch to the primary site, without the checks of failback.")
    ] = False,
    dry_run: DryRun = False,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Switch publishers and consumers to SITE; applications follow when they next look it up.

    The other site is not contacted, since it may be unavailable. To return, use `busway failover failback`.
    """
    from cli.failover import actions

    actions.switch(site, role, config, force=force, as_json=as_json, dry_run=dry_run)


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
    dry_run: DryRun = False,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Return to the primary site: publishers immediately, consumers when no messages are left at the secondary site.

    Exit code 2: not finished yet; the output shows the reason. Run it again, or use `--wait`.
    """
    from cli.failover import actions

    actions.failback(wait, config, force=force, as_json=as_json, dry_run=dry_run)


app.command()(drill)
