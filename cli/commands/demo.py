"""`busway demo`: two sites on this machine, and a check of what arrives."""

from pathlib import Path
from typing import Annotated

import typer

# With fewer messages some pattern would have none.
_FEWEST = 20


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running afterwards, and print how to use it.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(metavar="MESSAGES.jsonl", help="Send these messages instead of recorded webhooks.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=_FEWEST,
            max=100_000,
            help="How many messages to send; those of a file are repeated in turn. "
            "[default: 2000; with --file, each message once, but at least 20]",
        ),
    ] = None,
) -> None:
    """
    Run two sites, west and east, on this machine, send messages to both at once, and check what arrives.

    The messages are recorded GitHub webhooks, one session per repository. They are repeated with new ids, and each has
    application properties of every type that Service Bus allows. The tasks are those of config/tasks:

    - all-active: topic `events` on both sites, in order within each session;
    - active-passive: topic `payments` from west to east, where copies expire after two minutes;
    - spillover: queue `jobs`, whose consumers fail. A message that one site dead-letters goes to the other site, and
      from there to `jobs-auxiliary` if it fails again.

    Afterwards the nightly job reconciles the journals that the tasks wrote, and prints where its report page is.

    Exit code 0: nothing was lost, duplicated, sent back or out of order, every body and property arrived as it was
    sent, and the job found the same. Exit code 1: anything else. The logs of the processes are in build/demo.

    MESSAGES.jsonl has the format of `busway try`. A message without a session gets one, `default`.
    """
    from cli.demo.demo import run_demo
    from cli.signals import run_until_signalled

    has_passed = run_until_signalled(run_demo(file, count, fewest=_FEWEST, keep=keep))
    raise typer.Exit(0 if has_passed else 1)
