"""What `busway failover show`, `plan`, `switch` and `failback` do."""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from cli.failover.failback import Failback, WayBack, waited_for
from cli.failover.looking import Look, dead_lettered, looked_at, primary_answers
from cli.failover.opening import ROLES, Failover, open_failover
from cli.failover.register import FailoverRefused, Standing
from cli.failover.report import (
    plain,
    plain_local,
    plain_look,
    print_changes,
    print_failback,
    print_holdings,
    print_loading,
    print_standing,
)
from cli.output import fail
from shared.clock import SystemClock
from shared.config.failover import RECEIVE
from shared.errors import ConfigError, Problem, TargetUnavailable

NOT_YET = 2
"""Exit code for what has to be done again later, or forced."""


def show(config: Path, *, as_json: bool) -> None:
    """Print the site in use, and what each site holds."""
    with _told(config) as failover:
        standing = failover.register.read()
        if not as_json:
            print_standing(failover, standing)
        problems: list[Problem] = []
        found = {site: asyncio.run(_shown(failover, site, problems)) for site in failover.file.sites}
        if as_json:
            sites = {site: plain_look(look) for site, look in found.items()}
            typer.echo(json.dumps({**plain(failover, standing), "sites": sites}))
        else:
            print_holdings(failover, found)
        if problems:
            raise ConfigError(problems)


def plan(site: str, role: Sequence[str] | None, config: Path, *, as_json: bool) -> None:
    """Print what a switch to *site* would change."""
    with _told(config) as failover:
        standing = failover.register.read()
        lines = _changes(failover, site, _roles(role, failover.site(site)), standing)
        if as_json:
            typer.echo(json.dumps({**plain(failover, standing), "changes": list(lines)}))
            return
        print_changes(failover, lines, "would change")
        if lines:
            command = shlex.join(["busway", "failover", "switch", site, *(f"--role={each}" for each in role or ())])
            typer.echo(f"Applications follow within {standing.ttl_seconds} s; `{command}` does it.")


def switch(site: str, role: Sequence[str] | None, config: Path, *, force: bool, as_json: bool) -> None:
    """Point the *role*s to *site*, and print what changed."""
    with _told(config) as failover:
        roles = _roles(role, failover.site(site))
        standing = failover.register.read()
        lines = _changes(failover, site, roles, standing, force=force)
        after = failover.register.write(roles, standing)
        if as_json:
            typer.echo(json.dumps({**plain(failover, after), "changes": list(lines)}))
            return
        print_changes(failover, lines, "changed")
        if lines:
            print_loading(failover)
            typer.echo(f"Applications follow within {after.ttl_seconds} s.")


def failback(wait: float, config: Path, *, force: bool, as_json: bool) -> None:
    """Go back to the primary site; exit code NOT_YET if that is not complete."""
    with _told(config) as failover:
        before = failover.register.read()
        back = asyncio.run(_forced(failover) if force else _waited_for(failover, wait))
        dead = asyncio.run(dead_lettered(failover, failover.secondaries)) if back.is_done else {}
        if as_json:
            left = plain_local(back.found) if back.is_done else []
            more = {"waits_for": back.waits_for, "left_behind": left, "dead_lettered": plain_local(dead)}
            typer.echo(json.dumps({**plain(failover, back.standing), **more}))
        else:
            print_failback(failover, back, dead)
            if back.is_done and back.standing.version != before.version:
                print_loading(failover)
        if not back.is_done:
            raise typer.Exit(NOT_YET)


async def _shown(failover: Failover, site: str, problems: list[Problem]) -> Look:
    """Return what *site* holds, dead letters last; what hinders to open it is noted in *problems* too."""
    try:
        look = await looked_at(failover, site)
        if isinstance(look, str):
            return look
        dead = (await dead_lettered(failover, [site]))[site]
    except ConfigError as error:
        problems += error.problems
        return str(error)
    return dead if isinstance(dead, str) else [*look, *dead]


def _changes(
    failover: Failover, site: str, roles: Mapping[str, str], standing: Standing, *, force: bool = False
) -> Sequence[str]:
    """Return what a switch to *site* changes; raises FailoverRefused where it would not do it."""
    if site == failover.file.primary and RECEIVE in roles and standing.active[RECEIVE] != site and not force:
        raise FailoverRefused(
            f"{site} is the primary site: `busway failover failback` goes back without leaving messages behind "
            "(`switch --force` switches all the same)"
        )
    return failover.register.changes(roles, standing)


def _way_back(failover: Failover) -> WayBack:
    clock = SystemClock()
    return WayBack(
        failover.register,
        failover.file.primary,
        failover.secondaries,
        lambda site: looked_at(failover, site),
        clock,
        clock.now(),
        shares_alias=failover.shares_alias,
    )


async def _waited_for(failover: Failover, seconds: float) -> Failback:
    way = _way_back(failover)

    async def step(known: Standing | None) -> Failback:
        await primary_answers(failover)
        return await way.step(known)

    return await waited_for(step, way.clock, seconds)


async def _forced(failover: Failover) -> Failback:
    await primary_answers(failover)
    return await _way_back(failover).forced()


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
