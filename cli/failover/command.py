"""The commands `busway failover show`, `plan`, `switch` and `failback`."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cli.failover.drill_command import drill
from cli.failover.failback import Failback, fail_back
from cli.failover.holdings import Holding, holdings
from cli.failover.opening import ROLES, Failover, open_failover
from cli.failover.register import FailoverRefused, Standing
from cli.output import console, fail, tell
from cli.places import Folder
from shared.clock import SystemClock
from shared.config.failover import RECEIVE, SEND
from shared.errors import ConfigError, TargetUnavailable

NOT_YET = 2
"""Exit code for what has to be done again later, or forced."""

_LOOK_SECONDS = 2.0

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
    with _told(config) as failover:
        standing = failover.register.read()
        held = {site: _looked_at(failover, site) for site in failover.file.sites}
        if as_json:
            typer.echo(json.dumps({**_plain(failover, standing), "sites": {site: _held(held[site]) for site in held}}))
            return
        _print_standing(failover, standing)
        _print_holdings(failover, held)


@app.command()
def plan(site: Site, *, role: Role = None, config: Folder = Path("config"), as_json: AsJson = False) -> None:
    """Say what `switch` would change, and change nothing; exit code 1 if it would refuse."""
    with _told(config) as failover:
        standing = failover.register.read()
        lines = failover.register.changes(_roles(role, failover.site(site)), standing)
        if as_json:
            plain = {**_plain(failover, standing), "changes": list(lines)}
            typer.echo(json.dumps(plain))
            return
        _print_changes(failover, lines, "would change")
        if lines:
            typer.echo(f"Applications follow within {standing.ttl_seconds} s; `busway failover switch {site}` does it.")


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
    with _told(config) as failover:
        roles = _roles(role, failover.site(site))
        standing = failover.register.read()
        if site == failover.file.primary and RECEIVE in roles and standing.active[RECEIVE] != site and not force:
            raise FailoverRefused(
                f"{site} is the primary site: `busway failover failback` goes back without leaving messages behind "
                "(--force switches all the same)"
            )
        lines = failover.register.changes(roles, standing)
        after = failover.register.write(roles, standing)
        if as_json:
            typer.echo(json.dumps({**_plain(failover, after), "changes": list(lines)}))
            return
        _print_changes(failover, lines, "changed")
        if lines:
            typer.echo(f"Applications follow within {after.ttl_seconds} s.")


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

    Exit code 2: publishers are back and consumers are not yet. Run it again, or let it `--wait`.
    """
    with _told(config) as failover:
        end = time.monotonic() + wait
        while True:
            back = asyncio.run(_fail_back(failover, force=force))
            if back.is_done or time.monotonic() >= end:
                break
            time.sleep(_LOOK_SECONDS)
        left = [each for each in back.held if each.local] if back.is_done else []
        if as_json:
            plain = {**_plain(failover, back.standing), "waits_for": back.waits_for, "left_behind": _held(left)}
            typer.echo(json.dumps(plain))
        else:
            _print_standing(failover, back.standing)
            for each in left:
                typer.echo(
                    f"Left behind in {each.entity}: {each.local} messages, enqueued {each.oldest} to {each.newest}. "
                    "They stay there until they are received or expire."
                )
            if back.waits_for is not None:
                typer.echo(f"Consumers stay: {back.waits_for}. Run it again, or with --wait SECONDS.")
        if not back.is_done:
            raise typer.Exit(NOT_YET)


app.command()(drill)


async def _fail_back(failover: Failover, *, force: bool) -> Failback:
    async def look(site: str) -> Sequence[Holding]:
        try:
            return await _held_by(failover, site)
        except TargetUnavailable as error:
            if not force:
                raise
            tell([f"{error}; what is left behind there is not known"])
            return []

    primary = failover.file.primary
    # The primary has to be there: whoever is sent to it has no other place to go.
    await _held_by(failover, primary)
    aliases = list(failover.file.aliases.values())
    shares = len(aliases) > len({alias.rstrip(".").lower() for alias in aliases})
    return await fail_back(failover.register, primary, look, SystemClock(), shares_alias=shares, force=force)


async def _held_by(failover: Failover, site: str) -> list[Holding]:
    primary = failover.path_name(failover.file.primary)
    return await holdings(site, failover.file.entities, primary, lambda: failover.client(site))


def _looked_at(failover: Failover, site: str) -> list[Holding] | str:
    """Return what *site* holds, or why that cannot be said: in an outage one of them does not answer."""
    try:
        return asyncio.run(_held_by(failover, site))
    except TargetUnavailable as error:
        return str(error)


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[Failover]:
    """Give what *folder* says, and end the command with one line for each problem that comes up."""
    try:
        yield open_failover(folder, SystemClock())
    except ConfigError as error:
        fail(error.problems)
    except (FailoverRefused, TargetUnavailable) as error:
        fail([error])


def _roles(names: Sequence[str] | None, site: str) -> dict[str, str]:
    for name in names or ():
        if name not in ROLES:
            raise typer.BadParameter(f"{name!r} is no role, expected {' or '.join(ROLES)}", param_hint="--role")
    return dict.fromkeys(names or ROLES, site)


def _plain(failover: Failover, standing: Standing) -> dict[str, object]:
    return {
        "register": failover.register.where,
        "primary": failover.file.primary,
        "active": dict(standing.active),
        "ttl_seconds": standing.ttl_seconds,
        "version": standing.version,
        "changed": None if standing.changed is None else standing.changed.isoformat(timespec="seconds"),
    }


def _held(held: Sequence[Holding] | str) -> object:
    return {"error": held} if isinstance(held, str) else [asdict(each) for each in held]


def _print_standing(failover: Failover, standing: Standing) -> None:
    primary = failover.file.primary
    who = {SEND: "Publishers", RECEIVE: "Consumers"}
    for role in ROLES:
        kind = "primary" if standing.active[role] == primary else "secondary"
        typer.echo(f"{who[role]:<10} {standing.active[role]} ({kind})")
    changed = "" if standing.changed is None else f", changed {standing.changed.isoformat(timespec='seconds')}"
    typer.echo(f"Said by    {failover.register.where}, time to live {standing.ttl_seconds} s{changed}")


def _print_changes(failover: Failover, lines: Sequence[str], verb: str) -> None:
    typer.echo(f"{failover.register.where}: {verb}" if lines else f"{failover.register.where}: nothing to change")
    for line in lines:
        typer.echo(f"  {line}")


def _print_holdings(failover: Failover, held: Mapping[str, Sequence[Holding] | str]) -> None:
    table = Table("site", "entity", "messages", "published there", "since")
    for site, found in held.items():
        if isinstance(found, str):
            table.add_row(site, "does not answer", "-", "-", "-")
            continue
        for each in found:
            is_primary = site == failover.file.primary
            table.add_row(
                site,
                each.entity,
                str(each.messages),
                "-" if is_primary else str(each.local),
                "-" if is_primary else each.oldest or "-",
            )
    console().print(table)
