"""The actions of `busway failover show`, `plan`, `switch` and `failback`."""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from cli.failover.configuration import ROLES, Failover, open_failover
from cli.failover.dry_register import DryRegister
from cli.failover.failback import Failback, FailbackSteps, wait_until_done
from cli.failover.register import FailoverRefused, Register, RegisterState
from cli.failover.report import (
    contents_as_json,
    local_as_json,
    print_changes,
    print_contents,
    print_failback,
    print_local,
    print_reload,
    print_state,
    state_as_json,
)
from cli.failover.site_contents import Contents, check_primary, inspect_dead_letters, inspect_site
from cli.output import fail
from shared.clock import SystemClock
from shared.config.failover import RECEIVE
from shared.errors import ConfigError, Problem, TargetUnavailable

NOT_YET = 2
"""Exit code of a failback that must be run again, or forced."""


def show(config: Path, *, as_json: bool) -> None:
    """Print the active site, and the messages that each site holds."""
    with _failover(config) as failover:
        state = failover.register.read()
        if not as_json:
            print_state(failover, state)
        problems: list[Problem] = []
        found = {site: asyncio.run(_shown(failover, site, problems)) for site in failover.file.sites}
        if as_json:
            sites = {site: contents_as_json(look) for site, look in found.items()}
            typer.echo(json.dumps({**state_as_json(failover, state), "sites": sites}))
        else:
            print_contents(failover, found)
        if problems:
            raise ConfigError(problems)


def plan(site: str, role: Sequence[str] | None, config: Path, *, as_json: bool) -> None:
    """Print what a switch to *site* would change."""
    with _failover(config) as failover:
        state = failover.register.read()
        lines = _changes(failover, site, _roles(role, failover.site(site)), state)
        _print_dry(failover, state, lines, as_json=as_json)
        if lines and not as_json:
            command = shlex.join(["busway", "failover", "switch", site, *(f"--role={each}" for each in role or ())])
            typer.echo(f"Applications follow within {state.ttl_seconds} s; to do it, run `{command}`.")


def switch(site: str, role: Sequence[str] | None, config: Path, *, force: bool, as_json: bool, dry_run: bool) -> None:
    """Point the *role*s to *site*, and print what changed, or in a dry run what would change."""
    with _failover(config) as failover:
        roles = _roles(role, failover.site(site))
        state = failover.register.read()
        lines = _changes(failover, site, roles, state, force=force)
        if dry_run:
            _print_dry(failover, state, lines, as_json=as_json)
            return
        after = failover.register.write(roles, state)
        if as_json:
            typer.echo(json.dumps({**state_as_json(failover, after), "changes": list(lines)}))
            return
        print_changes(failover, lines, "changed")
        if lines:
            print_reload(failover)
            typer.echo(f"Applications follow within {after.ttl_seconds} s.")


def failback(wait: float, config: Path, *, force: bool, as_json: bool, dry_run: bool) -> None:
    """Go back to the primary site; exit code NOT_YET if that is not complete."""
    with _failover(config) as failover:
        if dry_run:
            _failback_dry(failover, force=force, as_json=as_json)
            return
        before = failover.register.read()
        back = asyncio.run(_forced(failover) if force else _waited_for(failover, wait))
        dead = asyncio.run(inspect_dead_letters(failover, failover.secondaries)) if back.is_done else {}
        if as_json:
            left = local_as_json(back.found) if back.is_done else []
            more = {"waits_for": back.waits_for, "left_behind": left, "dead_lettered": local_as_json(dead)}
            typer.echo(json.dumps({**state_as_json(failover, back.state), **more}))
        else:
            print_failback(failover, back, dead)
            if back.is_done and back.state.version != before.version:
                print_reload(failover)
        if not back.is_done:
            raise typer.Exit(NOT_YET)


async def _shown(failover: Failover, site: str, problems: list[Problem]) -> Contents:
    """Return the contents of *site*, dead letters last; problems with its configuration are added to *problems*."""
    try:
        look = await inspect_site(failover, site)
        if isinstance(look, str):
            return look
        dead = (await inspect_dead_letters(failover, [site]))[site]
    except ConfigError as error:
        problems += error.problems
        return str(error)
    return dead if isinstance(dead, str) else [*look, *dead]


def _changes(
    failover: Failover, site: str, roles: Mapping[str, str], state: RegisterState, *, force: bool = False
) -> Sequence[str]:
    """Return what a switch to *site* changes; raises FailoverRefused if it is not allowed."""
    if site == failover.file.primary and RECEIVE in roles and state.active[RECEIVE] != site and not force:
        raise FailoverRefused(
            f"{site} is the primary site: run `busway failover failback`, which leaves no messages behind "
            "(or `switch --force`, which does not check)"
        )
    return failover.register.changes(roles, state)


def _print_dry(
    failover: Failover, state: RegisterState, lines: Sequence[str], *, as_json: bool, **more: object
) -> None:
    if as_json:
        typer.echo(json.dumps({**state_as_json(failover, state), "changes": list(lines), **more}))
    else:
        print_changes(failover, lines, "would change")


def _failback_dry(failover: Failover, *, force: bool, as_json: bool) -> None:
    """Print what the first step of a failback would do."""
    register = DryRegister(failover.register, SystemClock())
    before = register.read()
    steps = _failback_steps(failover, register)

    async def step() -> Failback:
        await check_primary(failover)
        return await (steps.forced() if force else steps.step())

    back = asyncio.run(step())
    left = local_as_json(back.found)
    _print_dry(failover, before, register.noted, as_json=as_json, waits_for=back.waits_for, left_behind=left)
    if not as_json and back.waits_for is not None:
        typer.echo(f"Then it would wait: {back.waits_for}.")
    elif not as_json:
        print_local(back.found, "Would be left behind", "They stay there until they are received or expire.")
    if not back.is_done:
        raise typer.Exit(NOT_YET)


def _failback_steps(failover: Failover, register: Register | None = None) -> FailbackSteps:
    clock = SystemClock()
    return FailbackSteps(
        register or failover.register,
        failover.file.primary,
        failover.secondaries,
        lambda site: inspect_site(failover, site),
        clock,
        clock.now(),
        shares_alias=failover.shares_alias,
    )


async def _waited_for(failover: Failover, seconds: float) -> Failback:
    way = _failback_steps(failover)

    async def step(known: RegisterState | None) -> Failback:
        await check_primary(failover)
        return await way.step(known)

    return await wait_until_done(step, way.clock, seconds)


async def _forced(failover: Failover) -> Failback:
    await check_primary(failover)
    return await _failback_steps(failover).forced()


@contextlib.contextmanager
def _failover(folder: Path) -> Iterator[Failover]:
    """Open the configuration in *folder*; on an error, print one line for each problem and end the command."""
    try:
        yield open_failover(folder, SystemClock())
    except ConfigError as error:
        fail(error.problems)
    except (FailoverRefused, TargetUnavailable) as error:
        fail([error])


def _roles(names: Sequence[str] | None, site: str) -> dict[str, str]:
    for name in names or ():
        if name not in ROLES:
            raise typer.BadParameter(f"{name!r}: unknown role, expected {' or '.join(ROLES)}", param_hint="--role")
    return dict.fromkeys(names or ROLES, site)
