"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from shared.resend.options import Unclear

RECONCILIATIONS = Path("build/reconcile")
"""The folder with the results of reconciliations."""

Folder = Annotated[Path, typer.Option("--config", envvar="BUSWAY_CONFIG", help="The folder with connections.yaml.")]
JournalFolder = Annotated[Path, typer.Option("--config", envvar="BUSWAY_CONFIG", help="The folder with journal.yaml.")]
SparkMemory = Annotated[str, typer.Option(help="Memory of Spark, written as for Java.")]
Where = Annotated[
    str | None,
    typer.Option(metavar="SQL", help="Only messages for which a rule is true, as in the filter of a subscription."),
]
OlderThan = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Only messages enqueued longer ago, such as 90s, 2h or 7d.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it, the command only shows what it would do.")]
Rate = Annotated[float | None, typer.Option(min=0.01, metavar="N", help="Send at most N messages per second.")]
UnclearChoice = Annotated[
    Unclear,
    typer.Option(
        help="What to do with a message that an interrupted run may have sent, if the target does not show it."
    ),
]
Wait = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="How long to wait for messages that another receiver has locked."),
]
ConsumerGroup = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For a hub: the consumer group to read with. [default: that of the task]"),
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
