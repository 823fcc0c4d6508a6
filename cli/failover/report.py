"""The output of the commands of `busway failover`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import typer
from rich.table import Table

from cli.failover.configuration import ROLES, Failover
from cli.failover.contents import Contents
from cli.failover.failback import Failback
from cli.failover.register import RegisterState
from cli.output import console, print_problems
from shared.tasks.failover import RECEIVE, SEND

_WHO = {SEND: "Publishers", RECEIVE: "Consumers"}


def contents_as_json(look: Contents) -> object:
    """Return the contents of a site as JSON values."""
    return {"error": look} if isinstance(look, str) else [asdict(entity) for entity in look]


def local_as_json(found: Mapping[str, Contents]) -> list[dict[str, object]]:
    """Return the entities with local messages as JSON values, each with its site."""
    return [
        {"site": site, **asdict(entity)}
        for site, held in found.items()
        if not isinstance(held, str)
        for entity in held
        if entity.local
    ]


def print_state(failover: Failover, state: RegisterState) -> None:
    """Print the active site of each role, and where it is recorded."""
    for role in ROLES:
        kind = "primary" if state.active[role] == failover.file.primary else "secondary"
        typer.echo(f"{_WHO[role]:<10} {state.active[role]} ({kind})")
    changed = "" if state.changed is None else f", changed {state.changed.isoformat(timespec='seconds')}"
    typer.echo(f"Register   {failover.register.where}, time to live {state.ttl_seconds} s{changed}")


def print_changes(failover: Failover, lines: Sequence[str], verb: str) -> None:
    """Print what a switch changes."""
    typer.echo(f"{failover.register.where}: {verb}" if lines else f"{failover.register.where}: nothing to change")
    for line in lines:
        typer.echo(f"  {line}")


def print_reload(failover: Failover) -> None:
    """Print what the operator must do after a change, if anything."""
    if failover.register.reload_command is not None:
        typer.echo(f"Now {failover.register.reload_command}.")


def print_contents(failover: Failover, found: Mapping[str, Contents]) -> None:
    """Print the contents of each site, or why they are unknown."""
    table = Table("site", "entity", "messages", "published there", "since")
    for site, held in found.items():
        if isinstance(held, str):
            table.add_row(site, "unknown", "-", "-", "-")
            continue
        for entity in held:
            is_primary = site == failover.file.primary
            table.add_row(
                site,
                entity.entity,
                str(entity.messages),
                "-" if is_primary else str(entity.local),
                "-" if is_primary else entity.oldest or "-",
            )
    console().print(table)
    for held in found.values():
        if isinstance(held, str):
            typer.echo(held)


def print_failback(failover: Failover, back: Failback, dead: Mapping[str, Contents]) -> None:
    """Print the progress of a failback, and the messages that stay behind when it is finished."""
    print_state(failover, back.state)
    if back.waits_for is not None:
        stay = " and ".join(_WHO[role] for role in ROLES if back.state.active[role] != failover.file.primary)
        typer.echo(f"{f'{stay.capitalize()} stay' if stay else 'Not done'}: {back.waits_for}. {back.advice}")
        return
    print_local(back.found, "Left behind", "They stay there until they are received or expire.")
    print_local(dead, "Dead-lettered", "They stay there until an operator handles them.")


def print_local(found: Mapping[str, Contents], what: str, then: str) -> None:
    """Print the messages that were published at the sites and are still there."""
    for each in local_as_json(found):
        times = f"enqueued {each['oldest']} to {each['newest']}"
        typer.echo(f"{what} in {each['site']}/{each['entity']}: {each['local']} messages, {times}. {then}")
    print_problems(f"{held}; the messages left there are unknown" for held in found.values() if isinstance(held, str))
