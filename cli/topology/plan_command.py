"""`busway plan`: what the namespaces lack of what the tasks need."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from cli.topology.options import AdminAddresses, Authority, Connections, Prune


def plan(
    *,
    connections: Connections = None,
    config: Folder = Path("config"),
    admin: AdminAddresses = None,
    admin_ca: Authority = None,
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
            help="Write a Config.json for Microsoft's emulators for each connection, and a compose.yaml that runs "
            "them, into FOLDER; read nothing.",
        ),
    ] = None,
) -> None:
    """
    Compare the queues, topics, subscriptions, rules and hubs that the tasks need with those that exist.

    The needs come from all files of the configuration folder; what tasks do not decide, and the entities of
    applications, may be in its topology.yaml (docs/topology.md). Namespaces are read with the app settings of
    their connections. Nothing is changed.

    `+` is created, `~` changed, `-` deleted; `!` cannot change in place, or is an error; `?` is deleted only with
    `--prune`; `≠` differs between two sites.

    Exit code 0: every entity is as needed. 1: a namespace cannot be read, or the configuration has errors. 3:
    `busway apply` has steps to take. 4: only a person can remove what is left. 2: unknown options.

    Example:
    busway plan west east

    """
    from cli.topology.plan_run import Output, run_plan

    chosen = [
        each
        for each, is_chosen in (
            (Output.JSON, as_json),
            (Output.AZ, as_az),
            (Output.BICEP, as_bicep),
            (Output.CONFIG_JSON, config_json is not None),
        )
        if is_chosen
    ]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(chosen)}")
    run_plan(
        config,
        connections or [],
        admin or [],
        admin_ca,
        entities or [],
        output=chosen[0] if chosen else Output.TEXT,
        target=config_json,
        prune=prune,
    )
