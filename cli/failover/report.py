"""What the commands of `busway failover` print."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import typer
from rich.table import Table

from cli.failover.failback import Failback
from cli.failover.looking import Look
from cli.failover.opening import ROLES, Failover
from cli.failover.register import Standing
from cli.output import console, print_problems
from shared.config.failover import RECEIVE, SEND

_WHO = {SEND: "Publishers", RECEIVE: "Consumers"}


def plain(failover: Failover, standing: Standing) -> dict[str, object]:
    """Return *standing* for JSON."""
    return {
        "register": failover.register.where,
        "primary": failover.file.primary,
        "active": dict(standing.active),
        "ttl_seconds": standing.ttl_seconds,
        "version": standing.version,
        "changed": None if standing.changed is None else standing.changed.isoformat(timespec="seconds"),
    }


def plain_look(look: Look) -> object:
    """Return what a site holds for JSON."""
    return {"error": look} if isinstance(look, str) else [asdict(each) for each in look]


def plain_local(found: Mapping[str, Look]) -> list[dict[str, object]]:
    """Return those that hold local messages for JSON, each with its site."""
    return [
        {"site": site, **asdict(each)}
        for site, held in found.items()
        if not isinstance(held, str)
        for each in held
        if each.local
    ]


def print_standing(failover: Failover, standing: Standing) -> None:
    """Print who uses which site, and who says so."""
    for role in ROLES:
        kind = "primary" if standing.active[role] == failover.file.primary else "secondary"
        typer.echo(f"{_WHO[role]:<10} {standing.active[role]} ({kind})")
    changed = "" if standing.changed is None else f", changed {standing.changed.isoformat(timespec='seconds')}"
    typer.echo(f"Said by    {failover.register.where}, time to live {standing.ttl_seconds} s{changed}")


def print_changes(failover: Failover, lines: Sequence[str], verb: str) -> None:
    """Print what a switch changes."""
    typer.echo(f"{failover.register.where}: {verb}" if lines else f"{failover.register.where}: nothing to change")
    for line in lines:
        typer.echo(f"  {line}")


def print_loading(failover: Failover) -> None:
    """Print what remains to be done after a change, if anything does."""
    if failover.register.loading is not None:
        typer.echo(f"Now {failover.register.loading}.")


def print_holdings(failover: Failover, found: Mapping[str, Look]) -> None:
    """Print what each site holds, and why that is not known of one."""
    table = Table("site", "entity", "messages", "published there", "since")
    for site, held in found.items():
        if isinstance(held, str):
            table.add_row(site, "not known", "-", "-", "-")
            continue
        for each in held:
            is_primary = site == failover.file.primary
            table.add_row(
                site,
                each.entity,
                str(each.messages),
                "-" if is_primary else str(each.local),
                "-" if is_primary else each.oldest or "-",
            )
    console().print(table)
    for held in found.values():
        if isinstance(held, str):
            typer.echo(held)


def print_failback(failover: Failover, back: Failback, dead: Mapping[str, Look]) -> None:
    """Print how far the way back has come, and what stays behind when it is at its end."""
    print_standing(failover, back.standing)
    if back.waits_for is not None:
        stay = " and ".join(_WHO[role] for role in ROLES if back.standing.active[role] != failover.file.primary)
        typer.echo(f"{f'{stay.capitalize()} stay' if stay else 'Not done'}: {back.waits_for}. {back.advice}")
        return
    print_left(back.found, "Left behind", "They stay there until they are received or expire.")
    print_left(dead, "Dead-lettered", "They stay there until somebody sees to them.")


def print_left(found: Mapping[str, Look], what: str, then: str) -> None:
    """Print what sites hold that was published there."""
    for each in plain_local(found):
        times = f"enqueued {each['oldest']} to {each['newest']}"
        typer.echo(f"{what} in {each['site']}/{each['entity']}: {each['local']} messages, {times}. {then}")
    print_problems(f"{held}; what is left there is not known" for held in found.values() if isinstance(held, str))
