"""Options that plan, apply and export have."""

from pathlib import Path
from typing import Annotated

import typer

AdminAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="CONNECTION=ADDRESS",
        help="Administration address of a local namespace, as `busway broker` prints it; may be repeated. By default "
        "port 5300 for a connection string with port 5672, 5301 for 5673 and so on.",
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option("--admin-ca", help="The busway-ca.pem of `busway broker --admin-tls`, for addresses with https."),
]
Connections = Annotated[
    list[str] | None,
    typer.Argument(help="Connections whose namespaces are compared. [default: all]"),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Also delete other rules of the tasks' subscriptions, and empty entities that `busway apply` has created "
        "and nothing needs any more.",
    ),
]
