"""`busway check`: every problem of the configuration at once."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders with connections.yaml and tasks/; each is checked separately. [default: config]"),
    ] = None,
    entities: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CONNECTION=]FILE",
            help="Config.json with the entities of a connection; may be repeated. Without CONNECTION=, the file's name "
            "is the connection's name. The files in FOLDER/entities are always read.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings as well.")] = False,
) -> None:
    """
    Load all connections and tasks and print every problem with its file and the path in it.

    If the files can be read, they are then reviewed together: loops, rules that select nothing, routes that no message
    reaches, and so on. Each finding says what to do; `busway docs checks` has more. An error is a configuration that
    loses messages or sends them in an endless loop; everything else is a warning.

    Entities are known only from Config.json files, in the format of Microsoft's emulators: those in FOLDER/entities
    and those that `--entities` names. App settings are not checked, because they differ from machine to machine.

    Exit code 0: no errors (with --strict: no warnings either), and a table of the tasks. Exit code 1: anything else.

    Example:
    busway check --entities infra/emulators/west.json --entities infra/emulators/east.json

    """
    from cli.check_folder import check_folder
    from shared.printable import printable

    names = folders or [Path("config")]
    has_failed = False
    for folder in names:
        if len(names) > 1:
            typer.echo(printable(f"{folder}:"), err=True)
        has_failed |= not check_folder(folder, entities or [], strict=strict)
    if has_failed:
        raise typer.Exit(1)
