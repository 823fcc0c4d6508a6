"""`busway export`: a live namespace as a Config.json."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from shared.errors import ConfigError, Problem


def export(
    connection: Annotated[str, typer.Argument(help="The connection of the namespace.")],
    *,
    config: Folder = Path("config"),
    output: Annotated[Path | None, typer.Option(help="Write this file. [default: standard output]")] = None,
) -> None:
    """
    Print what a Service Bus namespace has as Config.json, the format of Microsoft's emulators.

    The local broker runs such a file, and `busway check` compares the tasks with it: put it into CONFIG/entities under
    the connection's name. What the format cannot hold is listed on standard error; keys and messages are not exported.
    Of an Event Hubs namespace, the hubs that the tasks name are exported.

    Exit code 0: exported. 1: anything else.

    Example:
    busway export west --output config/entities/west.json

    """
    from cli.output import print_problems
    from cli.topology.config_json import document_of, not_in_a_file
    from cli.topology.needs import needs_of
    from cli.topology.sites import read_site
    from cli.topology.topology_file import read_topology
    from shared.tasks.files import load, load_connections

    # The tasks may be what is wrong, or not yet written: only hubs need them.
    connections = load_connections(config)
    found = connections.get(connection)
    if found is None:
        expected = f"{config}/connections.yaml has {', '.join(connections) or 'none'}"
        raise ConfigError([Problem(connection, "is not a connection", expected)])
    needed = None
    if found.end.has_hubs:
        needed = needs_of(load(config), read_topology(config)).namespaces[found.key]
    namespace = read_site(connection, found, needed)
    document = document_of(namespace)
    print_problems(f"{connection} {line}, which a Config.json cannot hold" for line in not_in_a_file(namespace))
    if output is None:
        typer.echo(document, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(document, encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(output), f"cannot be written: {error.strerror}")]) from error
    typer.echo(f"{output}: {len(namespace.entities)} entities of {connection}")
