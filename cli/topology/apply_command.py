"""`busway apply`: create and change entities until they are as the tasks need them."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from cli.topology.options import AdminAddresses, Authority, Connections, Prune


def apply(
    *,
    connections: Connections = None,
    config: Folder = Path("config"),
    admin: AdminAddresses = None,
    admin_ca: Authority = None,
    prune: Prune = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; for scripts.")] = False,
) -> None:
    """
    Show the plan, ask, and take its steps: create and change queues, topics, subscriptions and rules.

    `busway plan` shows the same and changes nothing. Each step is one request. If one fails, the others that do not
    need it are taken all the same; run the command again for what is left, also after Ctrl-C or a crash. What is sent
    to is created before what sends, and a new subscription has only its own rule from its first message on. Event hubs
    are not changed: the commands for them are printed.

    Exit code 0: every entity is as needed. 1: a step failed, a namespace cannot be read, or nobody agreed. 4: all steps
    are taken, and only a person can remove what is left. 130: cancelled with Ctrl-C. 2: unknown options.

    Example:
    busway apply west east --yes

    """
    from cli.topology.apply_run import run_apply

    run_apply(config, connections or [], admin or [], admin_ca, prune=prune, is_agreed=yes)
