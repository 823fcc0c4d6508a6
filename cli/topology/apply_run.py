"""Runs `busway apply`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from cli.output import fail, print_problems
from cli.topology.applying import Outcome, apply_steps
from cli.topology.difference import Step
from cli.topology.planning import Plan, SitePlan, load_needs, make_plan
from cli.topology.show import print_plan, print_step, verdict
from cli.topology.sites import Access, errors_of, open_client
from shared.errors import BuswayError, ConfigError

_CANCELLED = 130


def run_apply(
    folder: Path,
    aliases: Sequence[str],
    addresses: Sequence[str],
    authority: Path | None,
    *,
    prune: bool,
    is_agreed: bool,
) -> None:
    """Take the steps of a plan and end the command with its exit code."""
    try:
        configuration, needs = load_needs(folder, aliases)
        access = Access.of(addresses, authority, configuration.connections)
        plan = make_plan(configuration, needs, access)
    except ConfigError as error:
        fail(error.problems)
    print_plan(plan, prune=prune)
    if not plan.steps and not (prune and plan.extras):
        raise typer.Exit(plan.exit_code)
    if not is_agreed and not _is_agreed():
        raise typer.Exit(1)
    typer.echo("")
    outcome = Outcome()
    try:
        _apply(plan, access, outcome, prune=prune)
    except KeyboardInterrupt:
        typer.echo(f"Cancelled after {_counted(outcome)}. Run the command again for the rest.", err=True)
        raise typer.Exit(_CANCELLED) from None
    left = make_plan(configuration, needs, access)
    typer.echo(f"\n{_counted(outcome)[0].upper()}{_counted(outcome)[1:]}. {_rest(left, outcome, prune=prune)}")
    if outcome.failed or outcome.skipped or left.has_errors or left.steps:
        raise typer.Exit(1)
    raise typer.Exit(left.exit_code)


def _rest(left: Plan, outcome: Outcome, *, prune: bool) -> str:
    text = verdict(left, prune=prune)
    if left.steps and not outcome.failed:
        return f"{text} Someone else changes the entities as well: run the command again."
    return f"{text} Run the command again after fixing what failed." if outcome.failed else text


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        print_problems(["Nothing was changed: there is nobody to ask (add --yes)"])
        return False
    is_agreed = typer.confirm("\nTake these steps?")
    if not is_agreed:
        print_problems(["Nothing was changed."])
    return is_agreed


def _apply(plan: Plan, access: Access, outcome: Outcome, *, prune: bool) -> None:
    """Take the steps of all namespaces: first what is sent to, everywhere, then what is sent from, then deletions."""
    sites = [site for site in plan.sites if _steps(site, prune=prune)]
    phases = sorted({step.order[0] for site in sites for step in _steps(site, prune=prune)})
    for phase in phases:
        for site in sites:
            steps = [step for step in _steps(site, prune=prune) if step.order[0] == phase]
            if steps:
                _apply_site(plan, site, steps, access, outcome)


def _steps(site: SitePlan, *, prune: bool) -> list[Step]:
    extras = site.difference.extras if prune and site.difference is not None and not site.is_hubs else ()
    return sorted((*site.steps, *extras), key=lambda step: step.order)


def _apply_site(plan: Plan, site: SitePlan, steps: list[Step], access: Access, outcome: Outcome) -> None:
    try:
        with open_client(site.alias, plan.configuration.connections[site.alias], access) as client:
            apply_steps(client, site.alias, steps, outcome, lambda step, error: print_step(site.alias, step, error))
    except BuswayError as error:
        print_problems(errors_of(error))
        outcome.skipped += [(step, "the namespace cannot be opened") for step in steps]


def _counted(outcome: Outcome) -> str:
    text = f"{len(outcome.done)} steps taken" if len(outcome.done) != 1 else "1 step taken"
    if outcome.failed:
        text += f", {len(outcome.failed)} failed"
    if outcome.skipped:
        text += f", {len(outcome.skipped)} skipped"
    return text
