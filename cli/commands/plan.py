"""`busway plan`: what the namespaces lack of what the tasks need."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Connections, Folder, Prune


def plan(
    *,
    connections: Connections = None,
    config: Folder = Path("config"),
    entities: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CONNECTION=]FILE",
            help="Compare with a Config.json, as `busway export` writes it, instead of the namespace; may be repeated.",
        ),
    ] = None,
    prune: Prune = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    as_az: Annotated[bool, typer.Option("--az", help="Print commands of the Azure CLI for the steps instead.")] = False,
    as_bicep: Annotated[
        bool,
        typer.Option(
            "--bicep", help="Print a parameter file for infra/entities.bicep with all entities; read nothing."
        ),
    ] = False,
    config_json: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write a Config.json for Microsoft's emulators for each connection into FOLDER; what a file has "
            "besides stays. Read no namespace.",
        ),
    ] = None,
) -> None:
    """
    Compare the queues, topics, subscriptions, rules and hubs that the tasks need with those that exist.

    The needs come from all files of the configuration folder; what tasks do not decide, and the entities of
    applications, may be in its topology.yaml (`busway docs topology`). Namespaces are read with the app settings of
    their connections. Nothing is changed.

    `+` is created, `~` changed, `-` deleted; `!` cannot change in place, or is an error; `?` is deleted only with
    `--prune`; `≠` differs between two sites.

    Exit code 0: every entity is as needed. 1: a namespace cannot be read, or the configuration has errors. 3:
    `busway apply` has steps to take. 4: only a person can remove what is left. 2: unknown options.

    Example:
    busway plan west east

    """
    outputs = {"--json": as_json, "--az": as_az, "--bicep": as_bicep, "--config-json": config_json is not None}
    chosen = [option for option, is_chosen in outputs.items() if is_chosen]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(chosen)}")

    from cli.topology.plan import load_needs, make_plan

    configuration, needs = load_needs(config, connections or [])
    if config_json is not None:
        from cli.topology.emulator_files import write_files

        for line in write_files(needs, config_json):
            typer.echo(line)
        return
    if as_bicep:
        from cli.topology.bicep import parameters_of

        typer.echo(parameters_of(configuration, needs), nl=False)
        return

    from cli.topology.plan_text import document_of, exit_code, print_az, print_plan

    found = make_plan(configuration, needs, entities or [])
    if as_json:
        typer.echo(document_of(found))
    elif as_az:
        print_az(found, prune=prune)
    else:
        print_plan(found, prune=prune)
        if found.steps or (prune and found.extras):
            typer.echo("\nNothing was changed. To take the steps: busway apply --yes")
    raise typer.Exit(exit_code(found, prune=prune))
