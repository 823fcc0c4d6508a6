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

    A line of MESSAGES.jsonl is a JSON object:

    - `body`: text, or any JSON value, which is sent as JSON; or `body_base64` for bytes. One of the two is required.
    - `session`: messages of one session stay in order; the default is `default`.
    - `properties`: application properties by name. A JSON scalar (null, true, 7, 1.5, "text") is sent as it is; other
      types are named: `{"type": "datetime", "value": "2026-01-31T12:00:00Z"}`. Types: bool, byte, sbyte, char, short,
      ushort, int, uint, long, ulong, float, double, decimal ("12.50"), guid, string, uri, datetime and datetimeoffset
      (ISO 8601), timespan (seconds).
    - `subject`, `content_type`, `correlation_id`, `to`, `reply_to`: text.
    """
    from cli.demo.demo import run_demo
    from cli.signals import run_until_signalled

    has_passed = run_until_signalled(run_demo(file, count, fewest=_FEWEST, keep=keep))
    raise typer.Exit(0 if has_passed else 1)
