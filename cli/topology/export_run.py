"""Runs `busway export`."""

from collections.abc import Sequence
from pathlib import Path

import typer

from cli.output import fail, print_problems
from cli.topology.config_json import document_of, not_in_a_file
from cli.topology.needs import needs_of
from cli.topology.sites import Access, errors_of, read_site
from cli.topology.topology_file import read_topology
from shared.config.files import load, load_connections
from shared.errors import BuswayError, ConfigError, Problem


def run_export(alias: str, folder: Path, output: Path | None, addresses: Sequence[str], authority: Path | None) -> None:
    """Write the Config.json of a namespace; ends the command with exit code 1 if it cannot."""
    try:
        # The tasks may be what is wrong, or not yet written: only hubs need them.
        connections = load_connections(folder)
        connection = connections.get(alias)
        if connection is None:
            expected = f"{folder}/connections.yaml has {', '.join(connections) or 'none'}"
            raise ConfigError([Problem(alias, "is not a connection", expected)])
        needed = None
        if connection.kind == "event-hubs":
            needed = needs_of(load(folder), read_topology(folder)).namespaces[connection.key]
        namespace = read_site(alias, connection, Access.of(addresses, authority, connections), needed)
    except BuswayError as error:
        fail(errors_of(error))
    document = document_of(namespace)
    print_problems(f"{alias} {line}, which a Config.json cannot hold" for line in not_in_a_file(namespace))
    if output is None:
        typer.echo(document, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(document, encoding="utf-8")
    except OSError as error:
        fail([f"{output}: cannot be written: {error.strerror}"])
    typer.echo(f"{output}: {len(namespace.entities)} entities of {alias}")
