"""Runs `busway plan`."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import typer

from cli.output import fail
from cli.topology.az_commands import az_commands
from cli.topology.compose import Emulator, compose_of
from cli.topology.config_json import document_of as config_json_of
from cli.topology.config_json import emulated
from cli.topology.difference import Action
from cli.topology.model import Kind
from cli.topology.needs import Needs
from cli.topology.planning import Plan, load_needs, make_plan
from cli.topology.show import document_of, print_plan
from cli.topology.sites import Access
from shared.config.files import Configuration
from shared.errors import ConfigError


class Output(StrEnum):
    """What `busway plan` prints."""

    TEXT = "text"
    JSON = "--json"
    AZ = "--az"
    BICEP = "--bicep"
    CONFIG_JSON = "--config-json"


def run_plan(
    folder: Path,
    aliases: Sequence[str],
    addresses: Sequence[str],
    authority: Path | None,
    files: Sequence[str],
    *,
    output: Output,
    target: Path | None,
    prune: bool,
) -> None:
    """Print a plan and end the command with its exit code."""
    try:
        configuration, needs = load_needs(folder, aliases)
        if output is Output.CONFIG_JSON and target is not None:
            _write_config_json(configuration, needs, target)
            return
        if output is Output.BICEP:
            from cli.topology.bicep import parameters_of

            typer.echo(parameters_of(configuration, needs), nl=False)
            return
        access = Access.of(addresses, authority, configuration.connections)
        plan = make_plan(configuration, needs, access, files)
    except ConfigError as error:
        fail(error.problems)
    _print(plan, output, prune=prune)
    raise typer.Exit(plan.exit_code or (3 if prune and plan.extras else 0))


def _print(plan: Plan, output: Output, *, prune: bool) -> None:
    if output is Output.JSON:
        typer.echo(document_of(plan))
    elif output is Output.AZ:
        _print_az(plan, prune=prune)
    else:
        print_plan(plan, prune=prune)
        if plan.steps or (prune and plan.extras):
            typer.echo("\nNothing was changed. To take the steps: busway apply")


def _print_az(plan: Plan, *, prune: bool) -> None:
    for site in plan.sites:
        for error in site.errors:
            typer.echo(f"# {site.alias}: {error}", err=True)
        if site.difference is None:
            continue
        steps = [*site.difference.steps, *(site.difference.extras if prune else ())]
        if steps:
            typer.echo(f"# {site.alias}: GROUP is the resource group of the namespace.")
        if any(step.rule is not None and step.action is Action.CREATE for step in site.difference.steps):
            typer.echo("# A new subscription has $Default until its first rule is created: run this before traffic.")
        for command in az_commands(steps, site.place, is_hubs=site.is_hubs):
            typer.echo(command)


def _write_config_json(configuration: Configuration, needs: Needs, target: Path) -> None:
    emulators: list[Emulator] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for key, needed in needs.namespaces.items():
            if not needed:
                continue
            namespace, lowered = emulated(needed)
            path = target / f"{needs.aliases[key]}.json"
            path.write_text(config_json_of(namespace, for_emulator=True), encoding="utf-8")
            typer.echo(f"{path}: {len(namespace.entities)} entities")
            for line in lowered:
                typer.echo(f"  {line}, the most of the emulators")
            alias = needs.aliases[key]
            is_hubs = any(each.name.kind is Kind.HUB for each in namespace.sorted())
            emulators.append(Emulator(alias, configuration.connections[alias].setting or alias.upper(), is_hubs))
        (target / "compose.yaml").write_text(compose_of(emulators), encoding="utf-8")
        typer.echo(f"{target / 'compose.yaml'}: {len(emulators)} emulators; its first lines say how to start them")
    except OSError as error:
        fail([f"{error.filename}: cannot be written: {error.strerror}"])
