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
Say which site applications use: in a DNS zone, in a file that they look at, or in Azure DNS.

`failover.yaml`, beside connections.yaml, names the sites, where it is said which one is in use, and what must be empty
before consumers leave a site. docs/failover.md has an example of each kind, and what to do in which order.
""",
)

Site = Annotated[str, typer.Argument(metavar="SITE", help="A site of failover.yaml.")]
Role = Annotated[
    list[str] | None, typer.Option(metavar="send|receive", help="Whom to move; repeatedly. [default: both]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@app.command()
def show(*, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Say which site is in use, and what each site holds."""
    from cli.failover import actions

    actions.show(config, as_json=as_json)


@app.command()
def plan(site: Site, *, role: Role = None, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Say what `switch` would change, and change nothing; exit code 1 if it would refuse."""
    from cli.failover import actions

    actions.plan(site, role, config, as_json=as_json)


@app.command()
def switch(
    site: Site,
    *,
    role: Role = None,
    force: Annotated[bool, typer.Option("--force", help="Also back to the primary site, without its checks.")] = False,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Point publishers and consumers to SITE, in one step; applications follow when they look again.

    It asks nothing of the site that is left: that one may be away. The way back is `busway failover failback`.
    """
    from cli.failover import actions

    actions.switch(site, role, config, force=force, as_json=as_json)


@app.command()
def failback(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Move consumers too while messages are left behind, and say how many.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for what is in the way.")] = 0.0,
    config: Folder = Path("config"),
    as_json: AsJson = False,
) -> None:
    """
    Go back to the primary site: publishers at once, consumers when nothing is left for them at the secondary.

    Exit code 2: not all is done yet, and the text says what is in the way. Run it again, or let it `--wait`.
    """
    from cli.failover import actions

    actions.failback(wait, config, force=force, as_json=as_json)


app.command()(drill)
